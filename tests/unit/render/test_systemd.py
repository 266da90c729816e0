# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

import dataclasses
import fnmatch
import json
import shutil
import subprocess
from pathlib import Path

import pytest
from ansible_collections.apiary.instinct.plugins.module_utils.evidence.gpu import FILE_LIMIT
from ansible_collections.apiary.instinct.plugins.module_utils.evidence.host import masked
from ansible_collections.apiary.instinct.plugins.plugin_utils.deployment import Layout
from ansible_collections.apiary.instinct.plugins.plugin_utils.documents import (
    from_document,
    knowledge,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.evidence.types import sources
from ansible_collections.apiary.instinct.plugins.plugin_utils.plan.types import Node, Plan
from ansible_collections.apiary.instinct.plugins.plugin_utils.render.replicas import render_systemd

from support.demo import demo_plan

GOLDEN_UNITS = Path(__file__).parents[2] / "golden/demo/etc/systemd/system"


def rendered():
    return {item.path: item for item in render_systemd(demo_plan())}


def unit(index):
    return rendered()[f"/etc/systemd/system/apiary-qwen3-235b-{index}.service"].content


@pytest.mark.parametrize(
    "path",
    [
        "/etc/systemd/system/apiary-qwen3-235b-0.service",
        "/etc/systemd/system/apiary-qwen3-235b-1.service",
        "/etc/systemd/system/apiary-qwen3-235b.target",
        "/etc/systemd/system/apiary.slice",
        "/etc/apiary/qwen3-235b/replica-0.env",
        "/etc/apiary/qwen3-235b/replica-0.json",
        "/etc/apiary/qwen3-235b/replica-1.env",
        "/etc/apiary/qwen3-235b/replica-1.json",
        "/etc/apiary/qwen3-235b/plan.json",
    ],
)
def test_golden(golden, path):
    golden("demo" + path, rendered()[path].content)


def test_the_launcher_is_executable_and_whole():
    launcher = rendered()["/usr/libexec/apiary/launch"]
    assert launcher.mode == "0755"
    assert launcher.content.startswith("#!/usr/bin/env -S python3")
    compile(launcher.content, launcher.path, "exec")


def test_the_plan_on_the_host_reads_back_as_the_plan():
    text = rendered()["/etc/apiary/qwen3-235b/plan.json"].content
    assert from_document(Plan, json.loads(text), "host") == demo_plan()


@pytest.mark.parametrize(
    ("index", "cpus", "node", "buses"),
    [
        (0, "2-63,130-191", 0, ("05", "26", "46", "65")),
        (1, "66-127,194-255", 1, ("85", "a6", "c6", "e5")),
    ],
)
def test_a_replica_is_bound_to_its_own_socket(index, cpus, node, buses):
    lines = unit(index).splitlines()
    assert f"CPUAffinity={cpus}" in lines
    assert f"NUMAMask={node}" in lines
    allowed = [line for line in lines if line.startswith("DeviceAllow=/dev/dri")]
    assert allowed == [
        f"DeviceAllow=/dev/dri/by-path/pci-0000:{bus}:00.0-render rw" for bus in buses
    ]


def test_a_unit_tells_how_its_engine_is_cut():
    """The GPUs of a host are not the tensor-parallel size where an engine has pipeline stages."""
    plan = demo_plan()
    wide = Layout(4, 2, pipeline_parallel_size=2, nodes=2)
    node = Node(1, 2, "10.0.0.1", ("gpu-001", "gpu-002"))
    for one, name in (
        (plan, "TP4 on 0000:05:00.0 "),
        (dataclasses.replace(plan, layout=wide, node=node), "TP4 PP2, host 2 of 2, on 0000:05:00."),
    ):
        files = {item.path: item.content for item in render_systemd(one)}
        text = files["/etc/systemd/system/apiary-qwen3-235b-0.service"]
        assert f"Description=vLLM replica 0 of qwen3-235b, {name}" in text


def test_no_index_is_stored():
    text = unit(0)
    assert "renderD" not in text
    assert "VISIBLE_DEVICES" not in text


def test_no_removed_flag_of_the_published_recipe_is_there():
    text = unit(0)
    for gone in ("full_cuda_graph", "max_capture_size", "disable-log-requests", "VLLM_USE_V1"):
        assert gone not in text


needs_systemd = pytest.mark.skipif(
    not shutil.which("systemd-analyze"), reason="no systemd on this machine"
)


def analyze(*arguments):
    return subprocess.run(
        ["systemd-analyze", *map(str, arguments)], capture_output=True, text=True, check=False
    )


@needs_systemd
def test_real_systemd_finds_nothing_wrong(tmp_path):
    """Stand-ins for the programs let systemd-analyze find the executables that hosts have."""
    for item in render_systemd(demo_plan()):
        path = tmp_path / item.path.lstrip("/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(item.content.replace("/usr/libexec/apiary/launch", "/bin/true"))
    units = sorted(str(path) for path in Path(tmp_path, "etc/systemd/system").iterdir())
    assert [Path(path).suffix for path in units] == [".service", ".service", ".target", ".slice"]
    done = analyze("verify", "--man=no", *units)
    # An unknown key is a line of stderr alone, and so would one be that is newer than systemd here.
    assert [line for line in done.stderr.splitlines() if "apiary" in line] == []
    assert done.returncode == 0


@needs_systemd
@pytest.mark.parametrize("path", sorted(GOLDEN_UNITS.glob("*.service")), ids=lambda path: path.name)
def test_a_unit_is_exposed_as_little_as_serving_allows(path):
    """Under 3.0 of 10, and what is counted is what serving.yml gives the reason of."""
    assert analyze("security", "--offline=true", "--threshold=30", path).returncode == 0
    listed = analyze("security", "--offline=true", "--json=short", path).stdout
    counted = {item["json_field"] for item in json.loads(listed) if item["exposure"]}
    assert counted == set(knowledge("serving.yml")["exposed"]["entries"])


def test_the_unit_changes_with_the_files_it_reads():
    """A change of its environment or document must restart it, and nobody else."""
    plan = demo_plan()
    first, second = plan.replicas
    other = dataclasses.replace(first, env={**first.env, "NCCL_DEBUG": "WARN"})
    changed = dataclasses.replace(plan, replicas=(other, second))
    before = rendered()
    differ = {
        item.path: item.unit
        for item in render_systemd(changed)
        if before[item.path].content != item.content
    }
    assert differ == {
        "/etc/apiary/qwen3-235b/replica-0.env": first.unit,
        "/etc/systemd/system/apiary-qwen3-235b-0.service": first.unit,
        "/etc/apiary/qwen3-235b/plan.json": None,
    }


def test_files_that_all_share_are_nobodys():
    shared = {path for path, item in rendered().items() if item.unit is None}
    assert {"/usr/libexec/apiary/launch", "/etc/systemd/system/apiary.slice"} <= shared
    assert not any("replica-" in path for path in shared)


def test_secrets_are_credentials_by_name():
    plan = demo_plan()
    deployment = dataclasses.replace(plan.deployment, secrets=("VLLM_API_KEY",))
    files = {
        item.path: item for item in render_systemd(dataclasses.replace(plan, deployment=deployment))
    }
    text = files["/etc/systemd/system/apiary-qwen3-235b-0.service"].content
    wanted = "LoadCredential=VLLM_API_KEY:/etc/apiary/qwen3-235b/credentials/VLLM_API_KEY\n"
    assert wanted in text


@pytest.mark.parametrize(
    ("path", "said"),
    [("/srv/models/x", "yes"), ("/home/models/x", "read-only"), ("/homes/x", "yes")],
)
def test_weights_in_a_home_stay_readable(path, said):
    plan = demo_plan()
    model = dataclasses.replace(plan.deployment.model, path=path)
    deployment = dataclasses.replace(plan.deployment, model=model)
    files = render_systemd(dataclasses.replace(plan, deployment=deployment))
    (text,) = (item.content for item in files if item.path.endswith("qwen3-235b-0.service"))
    assert f"ProtectHome={said}\n" in text


def test_acceptance_sees_every_file_as_it_is():
    """What the evidence lacks, cuts off or masks would be told as drift of a sound host."""
    collected = sources(["acceptance"])["files"]
    for path, item in rendered().items():
        assert any(fnmatch.fnmatchcase(path, pattern) for pattern in collected)
        assert masked(item.content) == item.content
        assert len(item.content.encode()) < FILE_LIMIT
