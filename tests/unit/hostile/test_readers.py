# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whoever reads a host's text does it in work in proportion to it: up to 1 MiB of the worst."""

import re

from ansible_collections.apiary.instinct.plugins.module_utils.evidence.host import masked
from ansible_collections.apiary.instinct.plugins.module_utils.load.scrape import LABEL
from ansible_collections.apiary.instinct.plugins.module_utils.weights.hub import NEXT
from ansible_collections.apiary.instinct.plugins.plugin_utils.acceptance.measured import (
    parse_rccl,
    parse_rvs,
    parse_transferbench,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.findings import ApiaryError, visible
from ansible_collections.apiary.instinct.plugins.plugin_utils.topology.host import from_evidence
from ansible_collections.apiary.instinct.plugins.plugin_utils.topology.read import read
from ansible_collections.apiary.instinct.plugins.plugin_utils.tune.trial import cause, exited

from apiary.help.bundle.masking import Masker
from support.each import each
from support.patterns import LINEAR, grown

# Lengths of texts by which growth is seen, and of more than any tool prints.
SHORT, TRIED, MIB = 2**11, 2**14, 2**20
# One command of each tool: others' outputs have the same reader, and amd-smi's that of a capture.
ASKED = ("rocm_smi_topology", "rocminfo", "lspci", "lscpu", "numactl")


def refusing(reader):
    """The reader, of which a refusal is as good as an answer."""

    def call(text):
        try:
            return reader(text)
        except ApiaryError:
            return None

    return call


def command(name):
    """Read evidence in which one command printed the text, in part as complaints."""

    def call(text):
        half = len(text) // 2
        printed = {"stdout": text[:half] + "\0", "stderr": text[half:]}
        output = {"argv": [name], "exit": 0, **printed, "seconds": 1.0}
        return from_evidence({
            "host": "a", "collected_at": "", "collector": "2", "commands": {name: output}
        })  # fmt: skip

    return call


def file(path):
    """Read evidence in which a file has the text."""

    def call(text):
        return from_evidence({
            "host": "a", "collected_at": "", "collector": "2", "files": {path: text}
        })  # fmt: skip

    return call


READERS = {
    "a capture": lambda text: read(text, "gpu-001.txt"),
    **{f"evidence of {name}": command(name) for name in ASKED},
    "a KFD node": file("/sys/class/kfd/kfd/topology/nodes/1/properties"),
    "a list of CPUs": file("/sys/devices/system/node/node0/cpulist"),
    "memory of a node": file("/sys/devices/system/node/node0/meminfo"),
    "a journal": lambda text: (cause(text), exited(text)),
    "a bundle's text": lambda text: Masker(["secret"]).text(text),
    "a bundle's unit": lambda text: Masker(["secret"]).unit(text),
    "passwords": masked,
    "rccl-tests": parse_rccl,
    "RVS": parse_rvs,
    "TransferBench": parse_transferbench,
    "an exporter": LABEL.findall,
    "the hub": NEXT.findall,
    "a terminal": visible,
}
# What repetitions are tried with; each is a text that some reader's grammar has.
WORST = (
    *("a", " ", "\n", "\t \n", "=", "|", "a ", "0 ", "0,", "[", "{", "<", '"', "\\", "-", "/"),
    *("eyJ.", "eyJ-", "a.", "a://b:c", "://a:", "a@", 'a="', "GPU", "GPU[0] : ", "GPU0 "),
    *("GPU: 0\n", "GPU: 0\n    BDF: 0000:05:00.0\n"),
    *("AMDSMI_STATUS_", "WEIGHT TABLE:\n", "0000:05:00.0 ", "    BDF: ", "Device: 1, "),
    *("$ANSIBLE_VAULT;1.1;A", "Environment=\\\n", "Agent 1\n", "  Name: \n", "> ", "lspci "),
    *("[a] [GPU:: ", "error: A-B: ", "a.service: ", "x: x\n", "==> a <==\n", "Error", ">>>///"),
    *('{"gpu": 0},\n', "[{", '{"card0": {', "cpu_cores_count 0\n", "0: a\n", "0-1,"),
    *("node 0 cpus:", "==> /nodes/1/properties <==\n"),
)  # fmt: skip


def texts():
    for pump in WORST:
        yield lambda size, p=pump: p * (size // len(p)) + "\0"
    for head in ("GPU[0]", "KEY:", "GPU: 0\n    KEY:", "=", "Device: 1, ", "  Name:", "a" * 9):
        yield lambda size, h=head: h + " " * size + "x"
        yield lambda size, h=head: (h + " " * 200 + "x ") * (size // (202 + len(h)))


@each(sorted(READERS))
def test_a_reader_is_linear(name):
    reader = refusing(READERS[name])
    slow = []
    for number, maker in enumerate(texts()):
        spent, growth = grown(reader, maker(SHORT), maker(TRIED))
        assert growth < LINEAR, f"{maker(60)!r}: {growth:.2f}"
        slow.append((spent, number, maker))
    # What takes longest of all, in more than any tool prints.
    _spent, _number, maker = max(slow)
    spent, growth = grown(reader, maker(TRIED), maker(MIB))
    assert growth < LINEAR, f"{maker(60)!r}: {growth:.2f}"


@each(["http://u:p@h/a", "https://t@h", "http://u:p/w://x@h:8", "://u:p@x,http://v:q@y"])
def test_addresses_lose_their_passwords(address):
    shown = masked(f"proxy={address} rest")
    assert shown.endswith(" rest")
    assert not re.search(r"u:p|t@|v:q|u:p/w", shown)
    assert "***@" in shown


@each(["http://h/a@b", "http://h:80/", "a@b", "http:// @"])
def test_other_addresses_stay(address):
    assert masked(address) == address
