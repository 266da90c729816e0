# SPDX-License-Identifier: GPL-3.0-or-later

"""What programs that load GPUs print: rccl-tests, TransferBench, the ROCm Validation Suite."""

from __future__ import annotations

import re
from dataclasses import dataclass

_OUT_OF_BOUNDS = re.compile(r"^# Out of bounds values\s*:\s*(\d+)", re.MULTILINE)
_AVERAGE = re.compile(r"^Average\s+bandwidth \(GPU Timed\):\s*([\d.]+) GB/s", re.MULTILINE)
# CPU->CPU, CPU->GPU, GPU->CPU, GPU->GPU; N/A where there is no such pair.
_AVERAGES = re.compile(
    r"^[ \t]*Averages \(During\s+(Uni|Bi)Dir\):\s+(\S+)\s+(\S+)\s+(\S+)\s+(\S+)", re.MULTILINE
)
# Newer versions print tables with borders.
_BORDERS = str.maketrans({"│": " ", "|": " ", "║": " "})
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
class Row:
    """One message size in bytes, and the bus bandwidth in GB/s, out of place and in place."""

    bytes: int
    out_of_place: float
    in_place: float


@dataclass(frozen=True)
class Rccl:
    """``wrong`` is how many values came out wrong; None where the program did not say."""

    rows: tuple[Row, ...]
    wrong: int | None


def parse_rccl(output: str) -> Rccl:
    """Return the rows of a run, whatever else is printed around them.

    Columns: size, count, type, redop, root, then time, algbw, busbw, #wrong twice; collectives
    without an operation or a root have fewer columns in front.
    """
    rows = []
    for line in output.splitlines():
        words = line.split()
        if len(words) < 10 or not words[0].isdigit() or not words[1].isdigit():
            continue
        try:
            rows.append(Row(int(words[0]), float(words[-6]), float(words[-2])))
        except ValueError:
            continue
    match = _OUT_OF_BOUNDS.search(output)
    return Rccl(tuple(rows), int(match[1]) if match else None)


@dataclass(frozen=True)
class Transfers:
    """GB/s between GPUs; None for what this preset does not print."""

    average: float | None = None
    one_way: float | None = None
    both_ways: float | None = None


def parse_transferbench(output: str) -> Transfers:
    """Return the figures of a run; what is not there is None."""
    text = output.translate(_BORDERS)
    average = _AVERAGE.search(text)
    gpus = {found[1]: _number(found[5]) for found in _AVERAGES.finditer(text)}
    return Transfers(_number(average[1]) if average else None, gpus.get("Uni"), gpus.get("Bi"))


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


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


def parse_rvs(output: str) -> Rvs:
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
