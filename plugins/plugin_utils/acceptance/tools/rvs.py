# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The log of the ROCm Validation Suite: its own verdicts, and the rates beside them."""

from __future__ import annotations

import re
from dataclasses import dataclass

# [RESULT] [seconds] [action] [GPU:: id] ...; versions write "[GPU:: 28851]" or "28851".
_MET = re.compile(
    r"\[(?P<action>[^][]+)\] \[GPU::(?P<gpu>[^][]+)\] GFLOPS (?P<found>\d{1,12}(?:\.\d{1,9})?) "
    r"Target GFLOPS: (?P<target>\d{1,12}(?:\.\d{1,9})?) met: (?P<met>TRUE|FALSE)"
)
_PASS = re.compile(
    r"\[(?P<action>[^][]+)\] \[GPU::(?P<gpu>[^][]+)\].{0,200}?pass: (?P<met>TRUE|FALSE)"
)
_PEQT = re.compile(r"\[(?P<action>[^][]+)\] peqt (?P<met>true|false)")
_RATE = re.compile(
    r"pcie-bandwidth\s*\[ *\d+/ *\d+\] \[CPU:: *\d+\] "
    r"\[GPU::[^][]*?(?P<bdf>(?<![0-9a-f:.])[0-9a-f]{4}:[0-9a-f:.]+)\]"
    r".{0,200}? (?P<rate>\d{1,12}(?:\.\d{1,9})?) GBps"
)
_ERRORS = re.compile(r"^.*(?:\[ERROR\s*\]|RVS-ERROR).*$", re.MULTILINE)


@dataclass(frozen=True)
class Verdict:
    """What RVS itself says of one action, of one GPU (its own id) where it is of one."""

    action: str
    gpu: str
    good: bool
    found: str = ""


@dataclass(frozen=True)
class Rvs:
    """``rates`` are GB/s by bus address, the slowest transfer of each GPU."""

    verdicts: tuple[Verdict, ...] = ()
    rates: tuple[tuple[str, float], ...] = ()
    errors: tuple[str, ...] = ()


def parse(output: str) -> Rvs:
    """Return the verdicts, rates and errors of a run, in the order of the log."""
    verdicts = []
    for line in output.splitlines():
        if match := _MET.search(line):
            text = f"{float(match['found']):.0f} of {float(match['target']):.0f} GFLOPS"
            verdicts.append(
                Verdict(match["action"], match["gpu"].strip(), match["met"] == "TRUE", text)
            )
        elif match := _PASS.search(line):
            verdicts.append(Verdict(match["action"], match["gpu"].strip(), match["met"] == "TRUE"))
        elif match := _PEQT.search(line):
            verdicts.append(Verdict(match["action"], "", match["met"] == "true"))
    rates: dict[str, float] = {}
    for match in _RATE.finditer(output):
        rate = float(match["rate"])
        rates[match["bdf"]] = min(rate, rates.get(match["bdf"], rate))
    errors = tuple(match[0].strip() for match in _ERRORS.finditer(output))
    return Rvs(tuple(verdicts), tuple(sorted(rates.items())), errors)
