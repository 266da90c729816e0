# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The life of a host after its first day, by the how-to pages to the letter.

The pages follow one another on one lab, so they run in order.
"""

from __future__ import annotations

import json
import shlex

from loss.fleet import ROOT

PAGES = ROOT / "docs/how-to"
MODEL = "Qwen/Qwen3-VL-235B-A22B-Instruct"


def served(reader, host):
    """Return the plan that a host serves by its own word."""
    return json.loads(reader.fleet.run(host, "cat /etc/apiary/qwen3-235b/plan.json"))


def routed(reader):
    """Return the replicas that the router sends requests to."""
    said = reader.fleet.ask_router("router-001", "show stat")
    rows = [line.split(",") for line in said.splitlines() if not line.startswith("#")]
    return {
        row[1]
        for row in rows
        if len(row) > 17 and row[0] == "qwen3-235b" and row[1] != "BACKEND" and "UP" in row[17]
    }


def unique_ids(reader, host):
    read = json.loads((reader.work / f"artifacts/{host}/topology.json").read_text())
    return {gpu["bdf"]: gpu["unique_id"] for gpu in read["gpus"]}


def test_add_a_host(serving):
    serving.follow(PAGES / "add-a-host.md")
    assert routed(serving) == {f"gpu-00{host}-{index}" for host in (1, 2) for index in (0, 1)}


def test_change_the_layout(serving):
    serving.follow(PAGES / "change-the-layout.md")
    assert routed(serving) == {"gpu-001-0", "gpu-002-0"}
    assert [len(one["gpus"]) for one in served(serving, "gpu-002")["replicas"]] == [8]


def test_upgrade_vllm(serving):
    serving.follow(PAGES / "upgrade-vllm.md")
    assert routed(serving) == {"gpu-001-0", "gpu-002-0"}
    for host in ("gpu-001", "gpu-002"):
        assert served(serving, host)["deployment"]["engine"]["version"] == "0.33.0"


def test_change_the_model(serving):
    serving.follow(PAGES / "change-the-model.md")
    assert routed(serving) == {"gpu-001-0", "gpu-002-0"}
    assert served(serving, "gpu-001")["deployment"]["model"]["name"] == MODEL


def test_upgrade_the_driver(serving):
    before = serving.fleet.run("gpu-002", "cat /proc/sys/kernel/random/boot_id")
    serving.follow(PAGES / "upgrade-the-driver.md")
    assert serving.fleet.run("gpu-002", "cat /proc/sys/kernel/random/boot_id") != before
    assert routed(serving) == {"gpu-001-0", "gpu-002-0"}


def test_what_fails_in_maintenance_stays_out_until_it_is_mended(serving):
    """The page's promise: out of the routers with the reason, and the same command goes on."""
    run = "ansible-playbook -i inventory/mine playbooks/maintain.yml -e target=gpu-002"
    quarantine = serving.work / "artifacts/gpu-002/quarantine.json"
    wrong = shlex.quote(
        json.dumps({"maintain_reboot": True, "acceptance_versions": {"driver": "9.*"}})
    )
    failed = serving.run(f"{run} -e {wrong}")
    assert failed.returncode != 0
    assert "ROLLOUT-FAILED: gpu-002" in failed.stdout
    assert "ACCEPT-" in json.loads(quarantine.read_text())["message"]
    assert routed(serving) == {"gpu-001-0"}
    # Nothing is left for the one that would take the last replica.
    refused = serving.run(f"{run.removesuffix('gpu-002')}gpu-001 -e maintain_reboot=true")
    assert refused.returncode != 0
    assert "ROLLOUT-OUTAGE: gpu-001" in refused.stdout
    assert not (serving.work / "artifacts/gpu-001/quarantine.json").exists()
    mended = serving.run(run)
    assert mended.returncode == 0, mended.stdout
    assert not quarantine.exists()
    assert routed(serving) == {"gpu-001-0", "gpu-002-0"}


def test_replace_a_gpu(serving):
    before = unique_ids(serving, "gpu-002")
    serving.follow(PAGES / "replace-a-gpu.md")
    after = unique_ids(serving, "gpu-002")
    assert before.keys() == after.keys()
    assert sum(before[bdf] != after[bdf] for bdf in before) == 1
    assert routed(serving) == {"gpu-001-0", "gpu-002-0"}


def test_re_image_a_host(serving):
    serving.follow(PAGES / "re-image-a-host.md")
    assert routed(serving) == {"gpu-001-0", "gpu-002-0"}


def test_remove_a_host(serving):
    serving.follow(PAGES / "remove-a-host.md")
    assert routed(serving) == {"gpu-001-0"}
    assert "gpu-002" not in serving.fleet.ask_router("router-001", "show stat")
    assert list((serving.work / "artifacts/removed").glob("*-gpu-002/gpu-002/survey.json"))
    assert not (serving.work / "artifacts/gpu-002").exists()
    assert not serving.fleet.run("gpu-002", "ls /etc/systemd/system | grep apiary- || true")


def test_one_replica_over_two_hosts(serving):
    serving.follow(PAGES / "multi-node.md")
    ranks = [
        json.loads(serving.fleet.run(host, "cat /etc/apiary/large/plan.json"))["node"]["rank"]
        for host in ("gpu-001", "gpu-002")
    ]
    assert ranks == [0, 1]
    assert MODEL in serving.fleet.run("gpu-001", "curl --silent http://127.0.0.1:8000/v1/models")
