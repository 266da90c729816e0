# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""GPUs that are lost after a boot, or slow: the kernel's lines and clocks, from real reports."""

import re

import pytest
from ansible_collections.apiary.instinct.plugins.module_utils.evidence import acceptance as probe
from ansible_collections.apiary.instinct.plugins.plugin_utils.acceptance import measured
from ansible_collections.apiary.instinct.plugins.plugin_utils.acceptance.types import (
    Measured,
    Ran,
    Settings,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.documents import knowledge

KINDS = knowledge("host/acceptance.yml")["kernel_log"]
MARK = "amdgpu 0000:05:00.0: amdgpu: "


def kinds(line):
    return [kind["id"] for kind in KINDS if re.search(kind["pattern"], line)]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        # legacy-rocm-build#3856, #4454, #1896, #5008
        (f"{MARK}get invalid ip discovery binary signature", ["ip-discovery"]),
        (f"{MARK}get invalid ip discovery binary signature from vram", ["ip-discovery"]),
        (f"{MARK}invalid ip discovery binary checksum", ["ip-discovery"]),
        (f"{MARK}failed to read ip discovery binary from file", ["ip-discovery"]),
        ("[drm:amdgpu_discovery_set_ip_blocks [amdgpu]] *ERROR* amdgpu_discovery_init failed",
         ["ip-discovery"]),
        (f"{MARK}Fatal error during GPU init", ["probe"]),
        # #3856, #6281, #6373
        ("amdgpu: probe of 0000:05:00.0 failed with error -22", ["probe"]),
        ("amdgpu 0000:05:00.0: probe with driver amdgpu failed with error -12", ["probe"]),
        ("amdgpu 0000:05:00.0: probe with driver amdgpu failed with error -5", ["probe"]),
        # #4688, #4933
        ("WARNING: CPU: 58 PID: 35 at amdgpu_xcp.c:242 amdgpu_xcp_query_partition_mode+0xa8/0x130",
         ["partition-mode"]),
        (f"{MARK}Cached partition mode 0 not matching with device mode 15", ["partition-mode"]),
        (f"{MARK}1 new uncorrectable hardware errors detected in umc block", ["hardware"]),
        (f"{MARK}hardware error logged by MCA", ["hardware"]),
        # No reason to drain a host.
        (f"{MARK}1533 new correctable hardware errors detected in xgmi_wafl block", []),
        (f"{MARK}3 correctable hardware errors detected in total in umc block", []),
        (f"{MARK}0 uncorrectable hardware errors detected in total in umc block", []),
        (f"{MARK}SMU is initialized successfully!", []),
    ],
)  # fmt: skip
def test_a_line_of_the_kernel_is_what_it_means(line, expected):
    assert kinds(line) == expected


def test_late_loading_is_what_amd_advises_for_firmware_that_is_late():
    (kind,) = [one for one in KINDS if one["id"] == "ip-discovery"]
    assert "amdgpu_later" in kind["advice"]
    assert "pull/4434" in kind["source"]
    assert "amdgpu_later" in knowledge("host/tuning.yml")["settings"]


@pytest.mark.parametrize(
    ("area", "code"),
    [("replica", "REPLICA-GPU-BUSY"), ("topology", "TOPO-GPU-UNUSABLE"),
     ("topology", "TOPO-MEMORY-ERRORS"), ("acceptance", "ACCEPT-UNCORRECTABLE")],
)  # fmt: skip
def test_no_reset_is_advised_while_a_neighbour_serves(area, code):
    remedy = knowledge(f"findings/{area}.yml")[code]["remedy"]
    assert "every GPU of its hive" in remedy
    assert "rain the" in remedy


def clocks(name="gst", seconds=60.0, **mhz):
    ran = Ran("rvs", name, ("rvs",), 0, "", seconds, clocks=mhz)
    found = measured.checks("gpu-001", "MI325X", Measured(runs=(ran,)), Settings())
    return [(one.state, one.found) for one in found if one.code == "ACCEPT-CLOCK"]


def test_a_clock_that_stays_near_idle_under_load_fails():
    assert clocks(a=2100.0, b=64.0) == [("fail", "b at 64 MHz")]
    assert clocks(a=2100.0, b=2090.0) == [("pass", "2090 MHz or more")]


def test_clocks_of_what_loads_no_gpu_or_ends_at_once_say_nothing():
    assert clocks(name="peqt", a=64.0) == clocks(seconds=2.0, a=64.0) == clocks() == []


def test_clocks_are_read_while_a_program_runs(tmp_path, monkeypatch):
    told = iter([132.0, 2100.0, 150.0])

    def reading(_known):
        return [{"key": "0000:05:00.0", "power_w": None, "clock_mhz": next(told, None)}]

    monkeypatch.setattr(probe, "readings", reading)
    monkeypatch.setattr(probe, "SAMPLE_SECONDS", 0.01)
    done = tmp_path / "done"
    tool = tmp_path / "tool"
    tool.write_text(f"#!/bin/sh\nwhile ! test -e {done}; do :; done\n")
    tool.chmod(0o755)
    original = probe.subprocess.Popen.wait
    waits = []

    def wait(process, seconds=None):
        waits.append(seconds)
        if len(waits) == 3:
            done.touch()
            seconds = 30
        return original(process, seconds)

    monkeypatch.setattr(probe.subprocess.Popen, "wait", wait)
    ran = probe.run([{"argv": [str(tool)]}], 60, 2**30, str(tmp_path))
    assert ran["exit"] == 0
    assert ran["clocks"] == {"0000:05:00.0": 2100.0}
