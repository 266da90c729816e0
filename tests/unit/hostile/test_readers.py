# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whoever reads a host's text does it in work in proportion to it: up to 1 MiB of the worst."""

import re

from ansible_collections.apiary.instinct.plugins.module_utils.evidence.host import masked
from ansible_collections.apiary.instinct.plugins.module_utils.load.gpus import LABEL
from ansible_collections.apiary.instinct.plugins.module_utils.weights.hub import NEXT
from ansible_collections.apiary.instinct.plugins.plugin_utils.acceptance.tools import (
    parse_rccl,
    parse_rvs,
    parse_transferbench,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.findings import ApiaryError, visible
from ansible_collections.apiary.instinct.plugins.plugin_utils.topology.host import from_evidence
from ansible_collections.apiary.instinct.plugins.plugin_utils.topology.read import read
from ansible_collections.apiary.instinct.plugins.plugin_utils.tune.journal import cause, exited

from apiary.help.bundle.masking import Masker
from support.each import each
from support.patterns import MOST, work

# Lengths of a text that is tried, of one by which growth is seen, and of more than any tool prints.
TRIED, LONG, MIB = 2**14, 2**17, 2**20
# CPU seconds that are far above a clock's tick, and what no reader takes for each KiB of a text.
MEASURABLE, OF_KIB = 0.05, 0.03
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
    """Read evidence in which one command printed the text."""

    def call(text):
        output = {"argv": [name], "exit": 0, "stdout": text, "stderr": text, "seconds": 1.0}
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


def spent_by(reader, text, limit):
    """CPU seconds of a reader; what is above the limit is tried again, the machine may be busy."""
    spent = work(reader, text, runs=1, most=5 * limit)
    return spent if spent < limit else work(reader, text, runs=5, most=5 * limit)


@each(sorted(READERS))
def test_a_reader_is_linear(name):
    reader = refusing(READERS[name])
    slow = []
    for maker in texts():
        start, small = maker(60), maker(TRIED)
        limit = OF_KIB * TRIED / 1024
        spent = spent_by(reader, small, limit)
        assert spent < limit, f"{start!r}: {spent:.2f} s"
        slow.append((spent, len(slow), maker))
    # What takes longest of all, in a longer text, and the slowest of these in 1 MiB.
    growing = []
    for spent, number, maker in sorted(slow, reverse=True)[:3]:
        limit = MOST * max(spent, MEASURABLE) * LONG / TRIED
        longer = spent_by(reader, maker(LONG), limit)
        assert longer < limit, f"{maker(60)!r}: {longer:.2f} s"
        growing.append((longer, number, maker))
    longer, _number, maker = max(growing)
    limit = MOST * max(longer, MEASURABLE) * MIB / LONG
    spent = spent_by(reader, maker(MIB), limit)
    assert spent < limit, f"{maker(60)!r}: {spent:.2f} s"


@each(["http://u:p@h/a", "https://t@h", "http://u:p/w://x@h:8", "://u:p@x,http://v:q@y"])
def test_addresses_lose_their_passwords(address):
    shown = masked(f"proxy={address} rest")
    assert shown.endswith(" rest")
    assert not re.search(r"u:p|t@|v:q|u:p/w", shown)
    assert "***@" in shown


@each(["http://h/a@b", "http://h:80/", "a@b", "http:// @"])
def test_other_addresses_stay(address):
    assert masked(address) == address
