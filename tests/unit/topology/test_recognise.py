# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a text is, is decided once: whose outputs, of which host, without what stands before lines.

Tests with S and R numbers are findings of a review of real outputs.
"""

import dataclasses
import re

import pytest
from ansible_collections.apiary.instinct.plugins.plugin_utils.findings import ApiaryError
from ansible_collections.apiary.instinct.plugins.plugin_utils.topology.read import read
from ansible_collections.apiary.instinct.plugins.plugin_utils.topology.recognise import recognise

from tests.support.printers import amd_smi as amd
from tests.support.printers import machine as printers
from tests.support.printers import rocm_smi as rocm
from tests.support.printers import system
from tests.support.printers.machine import Machine

MESH = printers.mesh()
TOPOLOGY = printers.rocm_smi_topology(MESH)
LIST = amd.list_text(MESH)
OUTPUTS = {
    "rocm-smi": TOPOLOGY,
    "amd-smi": LIST,
    "rocminfo": system.rocminfo(MESH),
    "rocm_bandwidth_test": system.bandwidth_test(MESH),
    "numactl": system.numactl([range(4), range(4, 8)]),
    "lspci": system.lspci(MESH),
    "KFD sysfs": "".join(
        f"==> {path} <==\n{text.strip()}\n\n" for path, text in printers.kfd_files(MESH).items()
    ),
}


def refusal(text):
    with pytest.raises(ApiaryError) as refused:
        read(text, "t.txt")
    (finding,) = refused.value.findings
    return finding


def every(prefix, text):
    return "".join(f"{prefix(place)}{line}\n" for place, line in enumerate(text.splitlines(), 1))


@pytest.mark.parametrize("tool", OUTPUTS)
def test_a_tools_lines_are_no_other_tools(tool):
    recognised = recognise(OUTPUTS[tool], "t.txt")
    assert recognised.tools == (tool,)
    assert {line.tool for line in recognised.lines} <= {tool, None}


@pytest.mark.parametrize("first", OUTPUTS)
@pytest.mark.parametrize("second", OUTPUTS)
def test_two_tools_are_two_outputs_by_their_lines(first, second):
    text = f"$ head\n{OUTPUTS[first]}$ head\n{OUTPUTS[second]}"
    recognised = recognise(text, "t.txt")
    assert set(recognised.tools) == {first, second}
    lines = text.splitlines()
    for output in recognised.outputs:
        assert [lines[line.number - 1] for line in output.lines] == [x.text for x in output.lines]


@pytest.mark.parametrize(
    "text",
    [
        "".join(f"GPU {i}: NVIDIA H100 80GB HBM3\n" for i in range(8)),
        "".join(f"GPU {i}: NVIDIA H100 80GB HBM3 (UUID: GPU-5ab1-{i})\n" for i in range(8)),
        "PyTorch version: 2.4.0\nIs CUDA available: True\nGPU models and configuration: \n"
        + "".join(f"GPU {i}: NVIDIA H100 80GB HBM3\n" for i in range(8)),
        "\tGPU0\tGPU1\tCPU Affinity\nGPU0\t X \tNV18\t0-47\nGPU1\tNV18\t X \t0-47\n",
        "| NVIDIA-SMI 550.54.15    Driver Version: 550.54.15    CUDA Version: 12.4 |\n",
    ],
    ids=["collect_env", "-L", "collect_env whole", "topo -m", "table"],
)
@pytest.mark.parametrize("beside", ["", TOPOLOGY])
def test_s01_nvidia_hosts_are_no_amd_hosts(text, beside):
    finding = refusal(beside + text)
    assert finding.code == "TOPO-UNRECOGNISED"
    assert "nvidia-smi's" in finding.message
    first = next(
        place
        for place, line in enumerate((beside + text).splitlines(), 1)
        if place > beside.count("\n") and ("GPU 0" in line or "NV" in line)
    )
    assert ("this output" if not beside else f"from line {first} on") in finding.message


HEADS = {
    "Ansible": "{} | CHANGED | rc=0 >>\n",
    "prompt": "root@{}:~# rocm-smi --showtopo\n",
    "bracketed prompt": "[root@{} ~]# rocm-smi --showtopo\n",
    "ssh": "$ ssh root@{} rocm-smi --showtopo\n",
    "clush -b": "---------------\n{}\n---------------\n",
    "echo": "=== {} ===\n",
}


@pytest.mark.parametrize("head", HEADS)
def test_s04_two_visible_hosts_are_two_though_they_print_the_same(head):
    text = "".join(HEADS[head].format(name) + TOPOLOGY for name in ("gpu-001", "gpu-002"))
    finding = refusal(text)
    assert finding.code == "TOPO-SEVERAL-OUTPUTS"
    assert "gpu-001, gpu-002" in finding.message
    assert len(read(text.replace("gpu-002", "gpu-001"), "t.txt").links) == 28


def test_s10_what_cat_shows_for_ends_of_lines_and_tabs_is_taken_away():
    text = every(lambda place: "", TOPOLOGY.replace("\t", "^I")).replace("\n", "$\n")
    assert read(text, "t.txt") == read(TOPOLOGY, "t.txt")
    rows = re.sub(r"(?m)^(GPU\d .*)$", r"\1$", TOPOLOGY)
    assert read(rows, "t.txt") == read(TOPOLOGY, "t.txt")


PREFIXES = {
    "srun --label": lambda place: "0: ",
    "kubectl logs --timestamps": lambda place: f"2026-11-20T10:00:00.{place:09}Z ",
    "CRI": lambda place: f"2026-11-20T10:00:00.{place:09}+00:00 stdout F ",
    "ts": lambda place: f"[2026-11-20 10:00:{place % 60:02}] ",
    "grep -n": lambda place: f"{place}:",
    "grep -n of a part": lambda place: f"{place + 40}-",
    "grep -Hn": lambda place: f"out/gpu-001.txt:{place}:",
    "nl": lambda place: f"{place:6}\t",
    "cat -n on a page": lambda place: f"    {place:3}  ",
    "journalctl": lambda place: "Nov 20 10:00:00 gpu-001 probe[71]: ",
    "kubectl logs --prefix": lambda place: "[pod/vllm-0/engine] ",
    "docker compose": lambda place: "engine-1  | ",
    "quotation": lambda place: "> ",
    "a page": lambda place: "    ",
}


@pytest.mark.parametrize("before", ["", "+ srun --label rocm-smi\n", "root@gpu-001:~# rocm-smi\n"])
@pytest.mark.parametrize("prefix", PREFIXES)
@pytest.mark.parametrize("tool", ["rocm-smi", "amd-smi", "KFD sysfs"])
def test_r02_r03_a_prefix_of_every_line_is_taken_away(tool, prefix, before):
    if prefix == "quotation" and before:
        return
    text = before + every(PREFIXES[prefix], OUTPUTS[tool])
    topology, plain = read(text, "t.txt"), read(OUTPUTS[tool], "t.txt")
    assert (topology.gpus, topology.links) == (plain.gpus, plain.links)
    numbers = [line.number for line in recognise(text, "t.txt").outputs[0].lines]
    assert numbers[-1] == text.count("\n")


@pytest.mark.parametrize("concise", [rocm.concise(MESH, "6.1.1"), amd.box(MESH)])
def test_r02_two_prefixes_are_taken_away(concise):
    text = every(PREFIXES["grep -n"], every(PREFIXES["kubectl logs --timestamps"], concise))
    assert read(text, "t.txt") == read(concise, "t.txt")


def test_r02_ranks_of_which_each_sees_one_gpu_are_several_outputs():
    lines = rocm.bus_of_partitions(Machine(MESH.cards[:1]), 1).splitlines()
    text = "+ srun --label rocm-smi --showbus\n" + "".join(
        f"{rank}: {line.replace('05:00', f'{rank}5:00')}\n" for rank in (1, 0) for line in lines
    )
    finding = refusal(text)
    assert finding.code == "TOPO-SEVERAL-OUTPUTS"
    assert "1, 0" in finding.message


def test_numbers_of_rows_are_no_numbers_of_lines():
    other = dataclasses.replace(MESH, cards=MESH.cards[:4])
    text = amd.partition_text(8, 1)
    assert len(read(text, "t.txt").gpus) == 8
    assert len(read(rocm.concise(other, "6.1.1"), "t.txt").gpus) == 4
