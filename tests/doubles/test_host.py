# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which GPUs a process sees, and whether promises about the host are kept."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from engine_double import environment, hardware
from engine_double.logs import StartupError

# The fixture's KFD order 1,3,2,0,5,7,6,4 over the buses 05 26 46 65 85 a6 c6 e5.
HIP = ("26", "65", "46", "05", "a6", "e5", "c6", "85")


def seen(root: Path, **variables: str) -> list[str]:
    return [gpu.bdf[5:7] for gpu in hardware.visible_gpus(str(root), variables)]


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({}, HIP),
        ({"HIP_VISIBLE_DEVICES": "0,3"}, ("26", "05")),
        ({"HIP_VISIBLE_DEVICES": "3,0"}, ("05", "26")),
        ({"HIP_VISIBLE_DEVICES": ""}, HIP),
        ({"CUDA_VISIBLE_DEVICES": "1"}, ("65",)),
        ({"HIP_VISIBLE_DEVICES": "1,9,2"}, ("65",)),
        ({"HIP_VISIBLE_DEVICES": "1,1,2"}, ("65",)),
        ({"ROCR_VISIBLE_DEVICES": "4,5"}, ("a6", "e5")),
        ({"ROCR_VISIBLE_DEVICES": "4,4,5"}, ("a6",)),
        ({"ROCR_VISIBLE_DEVICES": ""}, ()),
        ({"ROCR_VISIBLE_DEVICES": "4,5", "HIP_VISIBLE_DEVICES": "1"}, ("e5",)),
        ({"ROCR_VISIBLE_DEVICES": "4,5", "HIP_VISIBLE_DEVICES": "4,5"}, ()),
        ({"ROCR_VISIBLE_DEVICES": "GPU-9ff0c5f642c68900"}, ("05",)),
        ({"ROCR_VISIBLE_DEVICES": "GPU-9ff0"}, ()),
    ],
)
def test_visibility_variables_select_in_hip_order(host, variables, expected):
    assert seen(host, **variables) == list(expected)


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({"HIP_VISIBLE_DEVICES": "0", "CUDA_VISIBLE_DEVICES": "1"}, "Inconsistent GPU visibility"),
        ({"HIP_VISIBLE_DEVICES": "GPU-9ff0c5f642c68900"}, "invalid literal for int()"),
    ],
)
def test_visibility_that_vllm_cannot_read_is_refused(host, variables, message):
    with pytest.raises(StartupError, match=message.replace("(", r"\(").replace(")", r"\)")):
        seen(host, **variables)


def test_a_gpu_whose_render_node_is_not_passed_is_not_seen(host):
    (host / "dev/dri/renderD129").unlink()
    assert seen(host) == list(HIP[1:])
    assert seen(host, HIP_VISIBLE_DEVICES="0") == [HIP[1]]


def test_without_kfd_there_are_no_gpus(host):
    (host / "dev/kfd").unlink()
    assert seen(host) == []


def test_partitions_of_a_socket_have_their_own_keys(host):
    nodes = host / "sys/class/kfd/kfd/topology/nodes"
    for node, function in ((2, 0), (3, 1)):
        path = nodes / str(node) / "properties"
        text = f"simd_count 4\nlocation_id {0x2600 + function}\ndrm_render_minor {128 + node}\n"
        path.write_text(text)
    keys = [gpu.bdf for gpu in hardware.kfd_gpus(str(host))[:2]]
    assert keys == ["0000:26:00.0#0", "0000:26:00.0#1"]


def promised(host: Path, **promises: str) -> None:
    hardware.check_promises(hardware.visible_gpus(str(host), {}), promises)


def test_kept_promises_pass_whatever_their_order(host):
    cpus = ",".join(map(str, sorted(os.sched_getaffinity(0))))
    gpus = ",".join(f"0000:{bus}:00.0" for bus in reversed(HIP))
    promised(host, APIARY_GPUS=gpus.upper(), APIARY_CPUS=cpus)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("APIARY_GPUS", "0000:05:00.0", "promised 0000:05:00.0; found 0000:05:00.0,0000:26"),
        ("APIARY_CPUS", "900-901", "promised 900-901; found "),
        ("APIARY_MEMORY_NODES", "1", "promised 1; found"),
    ],
)
def test_a_broken_promise_names_both_sides(host, monkeypatch, name, value, message):
    monkeypatch.setattr(hardware, "_kernel_nodes", lambda: frozenset({0, 1}))
    monkeypatch.setattr(hardware, "_allowed_nodes", lambda: "0")
    with pytest.raises(StartupError) as broken:
        promised(host, **{name: value})
    assert str(broken.value).startswith(f"{name}: {message}")


@pytest.mark.parametrize(
    ("shown", "expected"),
    [
        ("NUMAPolicy=bind\\nNUMAMask=0", ("bind", frozenset({0}))),
        ("NUMAPolicy=bind\\nNUMAMask=0-1", ("bind", frozenset({0, 1}))),
        ("NUMAPolicy=n/a\\nNUMAMask=", ("n/a", frozenset())),
    ],
)
def test_the_memory_policy_is_what_systemd_says(tmp_path, monkeypatch, shown, expected):
    script = tmp_path / "systemctl"
    script.write_text(f"#!/bin/sh\nprintf '{shown}\\n'\n")
    script.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    assert hardware.memory_policy("apiary.service") == expected


def test_no_gpu_serves_two_engines(host):
    gpus = hardware.visible_gpus(str(host), {})
    held = hardware.claim(gpus[:4], str(host), 0.9)
    with pytest.raises(StartupError, match="less than desired GPU memory utilization"):
        hardware.claim(gpus[3:], str(host), 0.9)
    for holder in held:
        holder.close()
    for holder in hardware.claim(gpus[3:4], str(host), 0.9):
        holder.close()


def test_memory_in_use_by_others_counts(host):
    device = host / "sys/bus/pci/devices/0000:26:00.0"
    device.mkdir(parents=True)
    (device / "mem_info_vram_total").write_text(str(256 * 2**30))
    (device / "mem_info_vram_used").write_text(str(64 * 2**30))
    with pytest.raises(StartupError, match=r"\(192.00/256.00 GiB\)"):
        hardware.claim(hardware.visible_gpus(str(host), {})[:1], str(host), 0.9)


@pytest.mark.parametrize(("version", "warned"), [("0.16.0", 0), ("0.17.1", 1), ("0.33.0", 1)])
def test_unknown_variables_are_warned_of_where_the_version_checks(
    document, capsys, version, warned
):
    environment.check({"VLLM_USE_V2": "1", "OTHER": "1"}, document(version), strict=False)
    expected = "Unknown vLLM environment variable detected: VLLM_USE_V2"
    assert capsys.readouterr().out.count(expected) == warned


def test_unknown_variables_are_refused_on_request(document):
    with pytest.raises(StartupError, match="VLLM_USE_V2"):
        environment.check({"VLLM_USE_V2": "1"}, document("0.33.0"), strict=True)


@pytest.mark.parametrize(("version", "value"), [("0.33.0", "FP8"), ("0.24.0", "INT3")])
def test_a_value_that_is_not_a_choice_is_refused(document, version, value):
    variables = {"VLLM_ROCM_QUICK_REDUCE_QUANTIZATION": value}
    with pytest.raises(StartupError, match=f"Invalid value '{value}' for VLLM_ROCM_QUICK_REDUCE"):
        environment.check(variables, document(version), strict=False)


def test_a_choice_of_the_version_is_taken(document):
    variables = {"VLLM_ROCM_QUICK_REDUCE_QUANTIZATION": "INT3"}
    environment.check(variables, document("0.26.0"), strict=True)
