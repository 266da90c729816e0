# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The CDI specification: what it says of a host, and that engines would take it."""

import json
import os
import subprocess
import sys

import jsonschema
import pytest
from ansible_collections.apiary.instinct.plugins.module_utils import cdi
from ansible_collections.apiary.instinct.plugins.plugin_utils.host.container_runtime import (
    specification as names,
)

from support.host.cdi_schema import SCHEMA
from support.host.container import hardware, nodes_by_name

SCHEMA_JUDGE = jsonschema.Draft202012Validator(SCHEMA)
TWO = (
    cdi.Device("0000:26:00.0", "renderD131", "card3"),
    cdi.Device("0000:05:00.0", "renderD129", "card1"),
)


def test_the_specification_of_a_host(golden):
    golden("host/cdi.json", cdi.dumps(cdi.document(TWO, cdi.WITH_GROUPS, [104])))


def test_a_gpu_has_the_same_nodes_by_index_and_by_address():
    nodes = nodes_by_name(cdi.document(TWO, cdi.PLAIN))
    assert (
        nodes["0"]
        == nodes["0000:05:00.0"]
        == {
            "/dev/dri/renderD129",
            "/dev/dri/card1",
        }
    )
    assert nodes["all"] == nodes["0"] | nodes["1"]


def test_indices_follow_the_bus_and_then_the_partition():
    keys = ["0000:26:00.0", "0000:05:00.0#10", "0000:05:00.0#2"]
    devices = [cdi.Device(key, f"renderD{128 + at}") for at, key in enumerate(keys)]
    assert [one.name for one in cdi.ordered(devices)] == [
        "0000:05:00.0-p2",
        "0000:05:00.0-p10",
        "0000:26:00.0",
    ]


def test_groups_are_told_only_where_the_specification_has_them():
    assert "additionalGids" not in cdi.document(TWO, cdi.PLAIN, [104])["containerEdits"]
    told = cdi.document(TWO, cdi.WITH_GROUPS, [104, 44])
    assert told["containerEdits"]["additionalGids"] == [44, 104]


@pytest.mark.parametrize("version", [cdi.PLAIN, cdi.WITH_GROUPS])
def test_what_is_written_is_sound(version):
    document = cdi.document(TWO, version, [104])
    SCHEMA_JUDGE.validate(document)


@pytest.mark.parametrize(
    "faults",
    [(), ("missing=3",), ("nokfd=2",), ("partition=all:CPX",), ("partition=5:DPX",), ("vf",)],
    ids=",".join,
)
def test_the_program_on_the_host_finds_what_the_evidence_says(tmp_path, faults):
    evidence = hardware(tmp_path, *faults)
    told = cdi.devices_of_host(str(tmp_path))
    assert told == names.devices_of(evidence)
    assert told
    SCHEMA_JUDGE.validate(cdi.document(told, cdi.PLAIN))


@pytest.fixture
def run(tmp_path_factory):
    """Run the program as a host does: a file of its own, nothing else of ours."""
    program = tmp_path_factory.mktemp("libexec") / "cdi"
    program.write_text(names.program().content)

    def start(*arguments):
        return subprocess.run(
            [sys.executable, "-I", program, *arguments],
            capture_output=True,
            text=True,
            check=False,
        )

    return start


def test_the_program_writes_once_and_only_what_changed(tmp_path, run):
    hardware(tmp_path)
    output = tmp_path / "etc/cdi/amd.json"
    arguments = ("--root", str(tmp_path), "--output", str(output))
    assert run(*arguments).returncode == 0
    assert len(json.loads(output.read_text())["devices"]) == 17
    assert output.stat().st_mode & 0o777 == 0o644
    first = os.stat(output).st_ino
    assert run(*arguments).returncode == 0
    assert os.stat(output).st_ino == first
    assert os.listdir(output.parent) == ["amd.json"]


def test_the_program_leaves_no_stale_file_without_gpus(tmp_path, run):
    hardware(tmp_path, "nodriver")
    output = tmp_path / "amd.json"
    output.write_text("{}")
    done = run("--root", str(tmp_path), "--output", str(output))
    assert done.returncode == 1
    assert "CONTAINER-NO-GPU" in done.stderr
    assert not output.exists()


def test_the_program_tells_the_groups_of_the_nodes(tmp_path):
    hardware(tmp_path)
    (tmp_path / "dev/dri").mkdir(parents=True)
    (tmp_path / "dev/kfd").touch()
    os.chown(tmp_path / "dev/kfd", -1, os.getgid() or 12345)
    devices = cdi.devices_of_host(str(tmp_path))
    assert cdi.groups_of(devices, str(tmp_path)) == [os.getgid() or 12345]


def test_addresses_are_read_as_the_kernel_packs_them(tmp_path):
    node = tmp_path / "sys/class/kfd/kfd/topology/nodes/2"
    node.mkdir(parents=True)
    location = 0xE5 << 8 | 0x1F << 3 | 1
    (node / "properties").write_text(
        f"simd_count 304\ndomain 2\nlocation_id {location}\ndrm_render_minor 129\n"
    )
    assert cdi.devices_of_host(str(tmp_path)) == [cdi.Device("0002:e5:1f.1", "renderD129")]
