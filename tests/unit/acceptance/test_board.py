# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Links, memory, firmware, counters and versions of a host, each drift by its own code."""

import copy
import json
import re

import pytest
from ansible_collections.apiary.instinct.plugins.plugin_utils.acceptance.accept import (
    accept,
    to_measure,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.acceptance.types import Settings
from ansible_collections.apiary.instinct.plugins.plugin_utils.render.replicas import render_systemd

from support.demo import demo_plan
from support.topology.simulated import simulated_evidence

CARD = "/sys/class/drm/card0/device"
FIRST, SECOND = "0000:05:00.0", "0000:26:00.0"
PCI = "/sys/bus/pci/devices"
LINK = f"{PCI}/{FIRST}/current_link"


def said(stdout):
    return {"argv": ["x"], "exit": 0, "stdout": stdout, "stderr": "", "seconds": 0.1}


@pytest.fixture(scope="module")
def right():
    """The bundle of a host that serves the demo's plan and tells all that is asked for."""
    bundle = simulated_evidence()
    plan = demo_plan()
    units = "".join(f"{one.unit} loaded active running x\n" for one in plan.replicas)
    ports = "".join(f"LISTEN 0 1 0.0.0.0:{one.port} 0.0.0.0:*\n" for one in plan.replicas)
    bundle["commands"] |= {
        "replicas": said(units),
        "listening": said(ports),
        "kernel_log": said(""),
        "pcie_counters": said(json.dumps({"gpu_data": [pcie(0)]})),
    }
    bundle["files"] |= {item.path: item.content for item in render_systemd(plan)}
    bundle["files"] |= {
        f"{CARD}/pcie_replay_count": "3\n",
        f"{CARD}/ras/gpu_vram_bad_pages": "0x00000001 : 0x00001000 : R\n",
        "/proc/meminfo": f"MemTotal: {3000 * 2**20} kB\n",
        "/sys/module/amdgpu/version": "6.16.13\n",
        "/opt/rocm/.info/version": "7.2.4-81\n",
        "/sys/class/dmi/id/bios_version": "2.4\n",
        "/etc/apiary/weights.json": json.dumps(
            {"mounts": [{"path": "/srv/models"}], "models": ["/srv/models/a", "/data/b"]}
        ),
    }
    return bundle


def pcie(naks):
    counters = {"replay_count": 0, "l0_to_recovery_count": 1, "nak_sent_count": "N/A"}
    return {"gpu": 0, "pcie": {**counters, "nak_received_count": naks}}


@pytest.fixture
def host(right):
    return copy.deepcopy(right)


def failed(judged):
    return {check.code for check in judged.checks if check.state == "fail"}


def of(judged, code):
    return [one for one in judged.checks if one.code == code]


def test_everything_listed_is_checked(host):
    judged = accept(host, Settings(strict=True, versions={"driver": "6.16.*"}))
    assert judged.accepted, judged.summary()
    assert {
        "ACCEPT-GPU-COUNT",
        "ACCEPT-LINKS",
        "ACCEPT-PCIE",
        "ACCEPT-PCIE-ERRORS",
        "ACCEPT-MEMORY",
        "ACCEPT-BAD-PAGES",
        "ACCEPT-FIRMWARE",
        "ACCEPT-VERSION",
    } <= {check.code for check in judged.checks}
    assert len(of(judged, "ACCEPT-PCIE")) == 8
    assert judged.excerpts == ()


@pytest.mark.parametrize(
    ("path", "value", "code", "told"),
    [
        ("/proc/meminfo", f"MemTotal: {2000 * 2**20} kB\n", "ACCEPT-MEMORY", "2000 GiB"),
        (f"{CARD}/pcie_replay_count", "101\n", "ACCEPT-PCIE-ERRORS", "replay_count 101"),
        (f"{CARD}/ras/gpu_vram_bad_pages", "0x1 : 0x1000 : P\n", "ACCEPT-BAD-PAGES", "1 waiting"),
        (f"{PCI}/{SECOND}/fw_version/mec_fw_version", "0x0f\n", "ACCEPT-FIRMWARE", "mec: "),
    ],
)
def test_a_drift_is_named(host, path, value, code, told):
    host["files"][path] = value
    # amd-smi tells of the same counter; the file alone counts here.
    host["commands"].pop("pcie_counters")
    judged = accept(host)
    assert failed(judged) == {code}
    assert told in next(one for one in judged.checks if one.state == "fail").found
    assert judged.accepted
    assert [one.code for one in judged.excerpts] == [code]
    assert value.split()[0] in judged.excerpts[0].text


def test_counters_of_amd_smi_count_too(host):
    host["commands"]["pcie_counters"] = said("WARNING\n" + json.dumps([pcie(500)]))
    judged = accept(host)
    # The simulated host has no tool, so nothing says which GPU amd-smi means by 0.
    assert [one.subject for one in judged.checks if one.state == "fail"] == [
        f"{judged.host}: GPU 0"
    ]


def test_a_slot_that_cannot_do_what_amd_asks_for_is_named(host):
    for path in [path for path in host["files"] if path.endswith(("link_speed",))]:
        host["files"][path] = "16.0 GT/s PCIe\n"
    judged = accept(host)
    assert failed(judged) == {"ACCEPT-PCIE"}
    assert {one.found for one in of(judged, "ACCEPT-PCIE")} == {"16 GT/s x16"}


def test_a_link_that_the_topology_complains_of_is_told_once(host):
    host["files"][f"{LINK}_width"] = "8\n"
    judged = accept(host)
    assert [one.code for one in judged.complaints] == ["TOPO-PCIE-LINK"]
    assert len(of(judged, "ACCEPT-PCIE")) == 7
    assert any(f"{LINK}_width: 8" in one.text for one in judged.excerpts)


def test_the_memory_asked_for_overrides_what_amd_asks_for(host):
    assert failed(accept(host, Settings(memory_gib=4000))) == {"ACCEPT-MEMORY"}
    assert failed(accept(host, Settings(memory_gib=100))) == set()


@pytest.mark.parametrize(
    ("name", "pattern", "state"),
    [
        ("driver", "6.16.13", "pass"),
        ("driver", "6.14.*", "fail"),
        ("rocm", "7.2.4", "pass"),
        ("bios", "2.4", "pass"),
        ("kernel", "6.8.*", "unknown"),
    ],
)
def test_versions_asked_for(host, name, pattern, state):
    host["files"].pop("/proc/sys/kernel/osrelease", None)
    judged = accept(host, Settings(versions={name: pattern}))
    assert [one.state for one in of(judged, "ACCEPT-VERSION")] == [state]
    assert judged.accepted is (state != "fail")


def test_nothing_is_said_of_what_the_host_does_not_tell(host):
    for path in [path for path in host["files"] if re.search("fw_version|vbios|bad_pages", path)]:
        del host["files"][path]
    del host["files"]["/proc/meminfo"]
    codes = {check.code for check in accept(host).checks}
    assert not codes & {"ACCEPT-FIRMWARE", "ACCEPT-BAD-PAGES", "ACCEPT-MEMORY"}


def test_replicas_that_run_are_asked(host):
    asked = to_measure(host, Settings())
    plan = demo_plan()
    assert [(one["unit"], one["port"]) for one in asked.health] == [
        (one.unit, one.port) for one in plan.replicas
    ]
    assert asked.reading is None
    assert asked.runs == ()


def test_what_would_disturb_replicas_is_refused(host):
    settings = Settings(tests=("rccl", "rvs"), nfs_throughput=True)
    asked = to_measure(host, settings)
    assert (asked.reading, asked.runs) == (None, ())
    assert {one.code for one in asked.refused} == {"ACCEPT-BUSY"}
    assert len(asked.refused) == 2
    judged = accept(host, settings, refused=asked.refused)
    assert not judged.accepted


def test_reading_beside_replicas_may_be_allowed(host):
    asked = to_measure(host, Settings(nfs_throughput=True, nfs_while_serving=True))
    assert asked.reading["paths"] == ["/srv/models/a"]
    assert asked.refused == ()


def test_programs_are_started_for_the_hosts_own_gpus(host):
    host["commands"]["replicas"] = said("")
    asked = to_measure(host, Settings(tests=("rccl", "transferbench", "rvs")))
    first = {(run["test"], run["name"]): run["attempts"][0] for run in asked.runs}
    assert first["rccl", "all_reduce"]["argv"][-1] == "8"
    assert first["rvs", "gst"]["needs"].endswith("/conf/MI325X/gst_single.conf")
    assert {name for name, _part in first} == {"rccl", "transferbench", "rvs"}


def test_a_process_with_vram_serves_too(host):
    host["commands"]["replicas"] = said("")
    host["files"]["/sys/class/kfd/kfd/proc/77/vram_4711"] = f"{100 * 2**30}\n"
    assert [one.code for one in to_measure(host, Settings(tests=("rvs",))).refused] == [
        "ACCEPT-BUSY"
    ]


@pytest.mark.parametrize(
    ("part", "name", "value", "code", "text"),
    [
        (
            "commands",
            "kernel_log",
            "x\namdgpu: GPU reset begin!\ny\n",
            "ACCEPT-KERNEL-LOG",
            "GPU re",
        ),
        ("commands", "replicas", "other.service loaded\n", "ACCEPT-REPLICA", "other.service"),
        ("commands", "listening", "LISTEN 0 1 0.0.0.0:22 0.0.0.0:*\n", "ACCEPT-PORT", ":22"),
        ("files", f"{CARD}/ras/gfx_err_count", "ue: 7\n", "ACCEPT-UNCORRECTABLE", "ue: 7"),
    ],
)
def test_a_failed_check_comes_with_what_it_rests_on(host, part, name, value, code, text):
    host[part][name] = said(value) if part == "commands" else value
    judged = accept(host)
    excerpts = [one for one in judged.excerpts if one.code == code]
    assert [text in one.text for one in excerpts] == [True]
    # Only what has to do with it, and no more than a person reads.
    assert all(len(one.text.splitlines()) <= 13 for one in judged.excerpts)


def test_excerpts_of_a_long_list_are_cut(host):
    lines = [f"LISTEN 0 1 0.0.0.0:{port} 0.0.0.0:* {'x' * 400}" for port in range(1, 60)]
    host["commands"]["listening"] = said("\n".join(lines))
    (excerpt,) = accept(host).excerpts
    assert excerpt.text.splitlines()[-1] == "… 47 more lines"
    assert max(map(len, excerpt.text.splitlines())) == 300
