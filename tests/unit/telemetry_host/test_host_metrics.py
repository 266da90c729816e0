# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a host tells of itself, read from a simulated /sys as it is at that moment."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from ansible_collections.apiary.instinct.plugins.module_utils import host_metrics
from ansible_collections.apiary.instinct.plugins.plugin_utils.documents import knowledge

from support.each import each
from support.telemetry.prometheus import program

ROOT = Path(__file__).parents[3]
SIMULATOR = ROOT / "tests/lab/simulated_sysfs.py"
PLAN = next((ROOT / "tests/golden/demo/etc/apiary").glob("*/plan.json"))
FACTS = knowledge("telemetry/host.yml")
LINE = re.compile(r"(\w+)(?:\{(.*)\})? (\S+)")


def settings(**other):
    """What the role writes for a host of eight GPUs."""
    return {
        "gpu_host": True,
        "gpus": 8,
        "mesh": True,
        "guest": False,
        "models": {"74a5": "MI325X"},
        "driver": "6.10.5",
        "arguments": ["iommu=pt"],
        "mounts": {},
        "mount_seconds": 3,
        "causes": ["gpu_memory"],
        "metrics": FACTS["metrics"],
        **other,
    }


def active(units):
    """What systemd says of units that serve."""
    return {name: {"ActiveState": "active", "NRestarts": "2"} for name in units}


def host(root, *faults):
    """A simulated host with these faults, which runs the demo's plan."""
    options = [word for fault in faults for word in ("--fault", fault)]
    subprocess.run([sys.executable, SIMULATOR, "generate", root / "sys", *options], check=True)
    for path, text in (
        ("etc/apiary/qwen3-235b/plan.json", PLAN.read_text()),
        ("proc/cmdline", "quiet iommu=pt\n"),
        ("proc/sys/kernel/numa_balancing", "0\n"),
    ):
        target = root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)
    return root


def told(root, states=active, **other):
    """{metric: {labels: value}} of a host."""
    found = {}
    for line in host_metrics.gather(settings(**other), 1e9, str(root), states).splitlines():
        if line.startswith("#"):
            continue
        name, labels, value = LINE.fullmatch(line).groups()
        pairs = re.findall(r'(\w+)="([^"]*)"', labels or "")
        found.setdefault(name, {})[tuple(pairs)] = float(value)
    return found


@pytest.fixture(scope="module")
def healthy(tmp_path_factory):
    return host(tmp_path_factory.mktemp("healthy"))


def one(metrics, name):
    """The value of a metric that has one."""
    (value,) = metrics[name].values()
    return value


def test_every_metric_is_known_and_has_the_labels_that_knowledge_says(tmp_path):
    root = host(tmp_path)
    died(root).write_text('{"at": 1764000000, "cause": "gpu_memory"}')
    figures = {"weights_bytes_per_gpu": 5, "kv_tokens": 7, "attention_backend": ["a"]}
    text = json.dumps({"planned": figures, "actual": {**figures, "kv_tokens": 1e99}})
    (next((root / "run/apiary").iterdir()) / "figures.json").write_text(text)
    answers = {"recipe": "3bc9", "counts": {"right": 3}, "answers": {"questions-9": 7}}
    (next((root / "run/apiary").iterdir()) / "quality.json").write_text(json.dumps(answers))
    metrics = told(root, mounts={"/": "-.mount"})
    for name, samples in metrics.items():
        for labels in samples:
            assert [label for label, _value in labels] == FACTS["metrics"][name]["labels"]
    assert set(metrics) == set(FACTS["metrics"])


def died(root):
    """Where a replica's supervisor records the end of its engine."""
    plan = json.loads((root / "etc/apiary/qwen3-235b/plan.json").read_text())
    path = root / "run/apiary" / plan["replicas"][1]["unit"] / "died.json"
    path.parent.mkdir(parents=True)
    return path


@pytest.mark.parametrize(
    "text",
    [
        '{"at": 1764000000, "cause": "gpu_memory", "message": "x"}',
        '{"at": 1764000000, "cause": "another"}',
        '{"at": "now", "cause": "gpu_memory"}',
        '{"at": 1e99, "cause": ["gpu_memory"]}',
        "[" * 16000,
        "[]",
        "a link",
        "a pipe",
    ],
)
def test_only_what_a_supervisor_writes_is_a_cause(tmp_path, text):
    root = host(tmp_path)
    path = died(root)
    if text == "a link":
        (tmp_path / "other").write_text('{"at": 1764000000, "cause": "gpu_memory"}')
        path.symlink_to(tmp_path / "other")
    elif text == "a pipe":
        os.mkfifo(path)
    else:
        path.write_text(text)
    found = told(root).get("apiary_replica_died_timestamp_seconds", {})
    assert list(found.values()) == ([1764000000] if "message" in text else [])


@each(
    [
        {"answers": {f"questions-{number}": number for number in range(2000)}},
        {"counts": {"right": -1, "wrong": 2**60, 'a"b': 1, "more": [1]}},
        {"counts": ["right"], "answers": 7},
        {"recipe": 'r"', "counts": {"right": 1}},
        {"recipe": None, "counts": {"right": 1}},
    ]
)
def test_answers_that_a_supervisor_records_are_bounded(record):
    whose = {"deployment": "d", "replica": "0"}
    found = list(host_metrics.answered({"recipe": "r", **record}, whose))
    assert len(found) == (64 if isinstance(record.get("answers"), dict) else 0)


def test_gpus_are_named_by_bus_address_and_numbered_in_bus_order(healthy):
    rows = [dict(labels) for labels in told(healthy)["apiary_gpu_info"]]
    assert [row["gpu"] for row in rows] == sorted(row["gpu"] for row in rows)
    assert [row["gpu_id"] for row in rows] == [str(number) for number in range(8)]
    assert {row["replica"] for row in rows if row["numa_node"] == "0"} == {"0"}
    assert {row["replica"] for row in rows if row["numa_node"] == "1"} == {"1"}
    assert len({row["hive"] for row in rows}) == 1


def test_numbers_change_and_addresses_do_not_when_a_gpu_falls_off(tmp_path):
    metrics = told(host(tmp_path, "missing=1"))
    rows = {dict(labels)["gpu"]: dict(labels)["gpu_id"] for labels in metrics["apiary_gpu_info"]}
    assert rows["0000:46:00.0"] == "1"
    assert one(metrics, "apiary_gpus_present") == 7
    assert one(metrics, "apiary_gpus_expected") == 8
    gone = [dict(labels) for labels, up in metrics["apiary_planned_gpu_present"].items() if not up]
    assert gone == [{"gpu": "0000:26:00.0", "deployment": "qwen3-235b", "replica": "0"}]
    # A GPU that is gone is no link that is down.
    assert one(metrics, "apiary_xgmi_links_present") == 21
    assert one(metrics, "apiary_xgmi_links_expected") == 21


@pytest.mark.parametrize(
    ("fault", "name", "labels", "value"),
    [
        ("pcie=0:5", "apiary_xgmi_links_present", {}, 27),
        ("nokfd=2", "apiary_gpus_present", {}, 7),
        ("linkwidth=2:8", "apiary_pcie_link_degraded", {"gpu": "0000:46:00.0"}, 1),
        ("slotwidth=2:8", "apiary_pcie_link_degraded", {"gpu": "0000:46:00.0"}, 1),
        ("linkspeed=2:16", "apiary_pcie_link_degraded", {"gpu": "0000:46:00.0"}, 1),
        (
            "ue=3:4",
            "apiary_gpu_ras_errors_total",
            {"gpu": "0000:65:00.0", "kind": "uncorrectable"},
            4,
        ),
    ],
)
def test_a_fault_shows(tmp_path, healthy, fault, name, labels, value):
    key = tuple(labels.items())
    assert told(host(tmp_path, fault))[name][key] == value
    assert told(healthy)[name][key] != value


def test_partitions_are_devices_of_one_gpu(tmp_path):
    metrics = told(host(tmp_path, "partition=all:CPX"))
    keys = [dict(labels)["gpu"] for labels in metrics["apiary_gpu_info"]]
    assert len(keys) == len(set(keys)) == 64
    assert keys[0] == "0000:05:00.0#0"
    assert one(metrics, "apiary_gpus_present") == 8
    assert one(metrics, "apiary_xgmi_links_present") == 28


def test_a_guest_says_nothing_of_links_that_it_cannot_see(healthy):
    metrics = told(healthy, guest=True)
    hidden = {"apiary_pcie_link_degraded", "apiary_gpu_ras_errors_total"}
    hidden |= {"apiary_xgmi_links_expected", "apiary_xgmi_links_present"}
    assert not hidden & set(metrics)


def test_a_host_without_the_driver_has_no_gpus(tmp_path):
    metrics = told(host(tmp_path, "nodriver"))
    assert one(metrics, "apiary_gpus_present") == 0
    assert one(metrics, "apiary_driver_as_expected") == 0


def test_drift_shows(tmp_path):
    root = host(tmp_path)
    assert one(told(root), "apiary_driver_as_expected") == 1
    assert one(told(root, driver="6.16.13"), "apiary_driver_as_expected") == 0
    assert one(told(root), "apiary_cmdline_as_expected") == 1
    assert one(told(root, arguments=["iommu=pt", "pci=realloc"]), "apiary_cmdline_as_expected") == 0
    (root / "proc/sys/kernel/numa_balancing").write_text("1\n")
    assert one(told(root), "apiary_numa_balancing") == 1
    (root / "run").mkdir()
    (root / "run/reboot-required").write_text("")
    assert one(told(root), "apiary_reboot_required") == 1


def test_nobody_is_told_of_a_driver_or_words_that_nobody_asked_for(healthy):
    metrics = told(healthy, driver=None, arguments=[], gpus=None)
    hidden = {"apiary_driver_as_expected", "apiary_cmdline_as_expected", "apiary_gpus_expected"}
    assert not hidden & set(metrics)


@pytest.mark.parametrize(
    ("state", "up", "stopped"),
    [("active", 1, 0), ("activating", 0, 0), ("failed", 0, 1), ("inactive", 0, 1)],
)
def test_a_replica_that_starts_is_neither_up_nor_stopped(healthy, state, up, stopped):
    metrics = told(healthy, lambda units: {units[0]: {"ActiveState": state, "NRestarts": "0"}})
    assert list(metrics["apiary_replica_unit_active"].values()) == [up]
    assert list(metrics["apiary_replica_unit_stopped"].values()) == [stopped]


def test_what_systemd_does_not_answer_is_not_guessed(healthy):
    metrics = told(healthy, lambda _units: {})
    assert "apiary_replica_unit_active" not in metrics
    assert len(metrics["apiary_replica_info"]) == 2


@pytest.mark.parametrize("damage", ["{", "[]", '{"replicas": [{}]}'])
def test_a_damaged_plan_has_no_replicas(tmp_path, damage):
    root = host(tmp_path)
    (root / "etc/apiary/qwen3-235b/plan.json").write_text(damage)
    metrics = told(root)
    assert "apiary_replica_info" not in metrics
    assert one(metrics, "apiary_gpus_present") == 8


def test_a_mount_that_does_not_answer_is_told_in_time(monkeypatch):
    def hang(_path):
        host_metrics.signal.pause()

    assert host_metrics.responsive("/", 5)
    assert not host_metrics.responsive("/no/such/mount", 5)
    monkeypatch.setattr(host_metrics.os, "statvfs", hang)
    assert not host_metrics.responsive("/", 0.1)


@pytest.mark.parametrize("units", ["etc/systemd/system", "run/systemd/generator"])
def test_a_directory_whose_mount_is_gone_is_told(tmp_path, units):
    # A server that is down while the host boots: the directory below answers, empty.
    place, unit = "/srv/big models", "srv-big\\x20models.mount"
    (tmp_path / place.strip("/")).mkdir(parents=True)
    table = tmp_path / "proc/self/mountinfo"
    table.parent.mkdir(parents=True)
    root = "21 1 8:2 / / rw - ext4 /dev/sda2 rw\n"
    given = {"gpu_host": False, "mounts": {place: unit, f"{place}/": unit}}

    def answers():
        (said,) = set(told(tmp_path, **given)["apiary_weights_mount_responsive"].values())
        return said

    table.write_text(root)
    assert answers() == 1, "a directory that nothing is to be mounted on"
    (tmp_path / units).mkdir(parents=True)
    (tmp_path / units / unit).touch()
    assert answers() == 0
    table.write_text(root + "40 21 0:50 / /srv/big\\040models ro - nfs4 nas:/w ro\n")
    assert answers() == 1
    table.unlink()
    assert answers() == 1, "what cannot be read is not guessed"


def test_labels_are_escaped():
    text = host_metrics.exposition(
        [("apiary_weights_mount_responsive", {"mount": 'a"b\\c\nd'}, 1)], FACTS["metrics"]
    )
    assert text.splitlines()[-1] == r'apiary_weights_mount_responsive{mount="a\"b\\c\nd"} 1'


def test_the_program_replaces_its_file(tmp_path, monkeypatch):
    target = tmp_path / "a.prom"
    document = settings(gpu_host=False, file=str(target))
    given = tmp_path / "settings.json"
    given.write_text(json.dumps(document))
    monkeypatch.setattr(sys, "argv", ["host_metrics.py", str(given)])
    host_metrics.main()
    assert "apiary_textfile_written_seconds" in target.read_text()
    assert "apiary_gpus_present" not in target.read_text()
    assert target.stat().st_mode & 0o777 == 0o644
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.prom", "settings.json"]


def test_promtool_finds_nothing_wrong(healthy):
    text = host_metrics.gather(settings(mounts={"/": "-.mount"}), 1e9, str(healthy), active)
    done = subprocess.run(
        [program("promtool"), "check", "metrics"],
        input=text,
        text=True,
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
