# SPDX-License-Identifier: GPL-3.0-or-later

"""Checks of what was measured on a host: replicas' answers, reading, programs on GPUs."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ..documents import knowledge
from ..findings import Severity
from ..gpus import gpu_facts
from ..host.types import Check, CheckState
from .types import CODES, HasRead, Health, Measured, Ran, Settings

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


def checks(host: str, model: str | None, given: Measured, settings: Settings) -> Iterator[Check]:
    """Yield the checks of everything that was measured on a host whose GPUs are of one model."""
    for item in given.health:
        yield _healthy(host, item)
    if given.read:
        yield _read(host, given.read, settings.nfs_minimum)
    elif settings.nfs_throughput:
        yield Check(
            "ACCEPT-NFS-THROUGHPUT",
            host,
            "skip",
            "not measured: refused, in check mode, or no weights are mounted here",
            "weights mounted over NFS",
        )
    for ran in given.runs:
        yield from _ran(host, model, ran)


def _healthy(host: str, answer: Health) -> Check:
    return Check(
        "ACCEPT-HEALTH",
        f"{host}: {answer.unit}",
        "pass" if answer.status == 200 else "fail",
        f"HTTP {answer.status}" if answer.status else answer.error or "no answer",
        "HTTP 200 of its /health",
        unit=answer.unit,
    )


def _read(host: str, read: HasRead, minimum: float | None) -> Check:
    facts = knowledge("acceptance/nfs.yml")["throughput"]
    least = facts["mb_s"] if minimum is None else minimum
    state: CheckState = "unknown"
    actual = read.error or "nothing was read"
    if read.bytes and read.seconds > 0 and not read.error:
        rate = read.bytes / 1e6 / read.seconds
        state = "pass" if rate >= least else "fail"
        actual = (
            f"{rate:.0f} MB/s, {read.bytes / 1e9:.1f} GB of {read.files} files "
            f"in {read.seconds:.1f} s"
        )
    return Check(
        "ACCEPT-NFS-THROUGHPUT",
        host,
        state,
        actual,
        f"at least {least:g} MB/s past the page cache",
        source=facts["source"] if minimum is None else None,
    )


def _ran(host: str, model: str | None, ran: Ran) -> Iterator[Check]:
    """Yield the checks of one program: skipped where it is not there, failed where it broke off."""
    facts = knowledge("acceptance/tests.yml")
    code, subject = CODES[ran.test], f"{host}: {ran.test} {ran.name}"
    source = facts["sources"][facts[ran.test]["source"].removeprefix("sources.")]
    if not ran.argv:
        # Not there is no fault; there and in use by another is a refusal.
        state: CheckState = "fail" if ran.installed else "skip"
        reason = ran.error or "not installed"
        yield Check(code, subject, state, reason, "a run of it", name=ran.name)
        return
    yield from _clocks(host, ran, facts["clock"])
    if ran.exit != 0:
        reason = ran.error or f"ended with {ran.exit}"
        last = [line.strip() for line in ran.output.splitlines() if line.strip()][-1:]
        shown = f"{reason}: {last[0][:200]}" if last else reason
        yield Check(
            code, subject, "fail", shown, "a run that ends well", source=source, name=ran.name
        )
        if ran.test != "rvs":
            return
    evaluate = {"rccl": _rccl, "transferbench": _transfers, "rvs": _rvs}[ran.test]
    for name, state, actual, expected, severity in evaluate(ran, model, facts[ran.test]):
        yield Check(
            code,
            f"{subject}{name}",
            state,
            actual,
            expected,
            source=source,
            minor=severity == "warning",
            name=ran.name,
        )


def _clocks(host: str, ran: Ran, facts: Mapping[str, Any]) -> Iterator[Check]:
    """Yield whether every GPU's clock rose while a program loaded them all."""
    if not ran.clocks or ran.name not in facts["loads"] or ran.seconds < facts["seconds"]:
        return
    least = facts["least_mhz"]
    stuck = [f"{key} at {mhz:.0f} MHz" for key, mhz in sorted(ran.clocks.items()) if mhz < least]
    yield Check(
        "ACCEPT-CLOCK",
        f"{host}: {ran.test} {ran.name}",
        "fail" if stuck else "pass",
        ", ".join(stuck) or f"{min(ran.clocks.values()):.0f} MHz or more",
        f"every GPU above {least} MHz at some time",
        source=facts["source"],
    )


# Of a figure: what it is of, state, found, expected, severity.
_Judged = Iterator[tuple[str, CheckState, str, str, Severity]]


def _rccl(ran: Ran, model: str | None, facts: Mapping[str, Any]) -> _Judged:
    parsed = parse_rccl(ran.output)
    row = next((each for each in parsed.rows if each.bytes == facts["bytes"]), None)
    if row is None:
        yield "", "unknown", f"no line of {facts['bytes']} bytes", "a line of that size", "error"
        return
    if parsed.wrong is not None:
        state: CheckState = "fail" if parsed.wrong else "pass"
        yield ", values", state, f"{parsed.wrong} out of bounds", "none out of bounds", "error"
    yield _bound("", row.in_place, "in-place bus bandwidth at 8 GiB", "all_reduce", model, facts)


def _transfers(ran: Ran, model: str | None, facts: Mapping[str, Any]) -> _Judged:
    parsed = parse_transferbench(ran.output)
    figures = {
        "a2a": (("a2a", "", parsed.average),),
        "p2p": (
            ("p2p_one_way", ", one way", parsed.one_way),
            ("p2p_both_ways", ", both ways", parsed.both_ways),
        ),
    }[ran.name]
    for key, name, figure in figures:
        if figure is None:
            yield name, "unknown", "no such figure in its output", "an average over GPUs", "error"
        else:
            yield _bound(name, figure, "average over pairs of GPUs", key, model, facts)


def _rvs(ran: Ran, model: str | None, facts: Mapping[str, Any]) -> _Judged:
    parsed = parse_rvs(ran.output)
    bad = [verdict for verdict in parsed.verdicts if not verdict.good]
    for verdict in bad:
        of = f" of GPU {verdict.gpu}" if verdict.gpu else ""
        actual = verdict.found or "FALSE"
        yield f", {verdict.action}{of}", "fail", actual, "what its configuration asks for", "error"
    if parsed.errors:
        yield ", log", "fail", parsed.errors[0][:200], "no errors in its log", "error"
    if parsed.verdicts and not bad:
        count = f"all {len(parsed.verdicts)} of its own checks"
        yield "", "pass", count, "what its configuration asks for", "error"
    for bdf, rate in parsed.rates:
        yield _bound(f", {bdf}", rate, "slowest transfer of host memory", ran.name, model, facts)
    if not parsed.verdicts and not parsed.rates and ran.exit == 0:
        yield "", "unknown", "no verdict in its output", "a verdict a GPU", "error"


def _bound(
    name: str, figure: float, what: str, key: str, model: str | None, facts: Mapping[str, Any]
) -> tuple[str, CheckState, str, str, Severity]:
    """Compare a figure with the least that AMD allows, and with what it calls usual."""
    published = gpu_facts(model).acceptance
    least, usual = published.minimum.get(key), published.usual.get(key)
    actual = f"{figure:g} GB/s"
    if least is not None and figure < least:
        return name, "fail", actual, f"{what}: at least {least:g} GB/s", "error"
    if usual is not None and figure < usual:
        return name, "fail", actual, f"{what}: {usual:g} GB/s is usual", "warning"
    if least is None and usual is None:
        return name, "pass", actual, f"{what}; nobody published a bound", "error"
    return name, "pass", actual, f"{what}: at least {usual or least:g} GB/s", "error"
