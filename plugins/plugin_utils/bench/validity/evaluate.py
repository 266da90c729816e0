# SPDX-License-Identifier: GPL-3.0-or-later

"""Whether a level is a measurement at all, and whether it keeps the SLO: the maker of Levels."""

from __future__ import annotations

import math
from operator import attrgetter
from statistics import fmean
from typing import Any

from ...documents import from_document, knowledge
from ...findings import ApiaryError, Finding, has_errors
from ...slo import Limit
from ..engine_metrics import restarted, use_of
from ..measure import measure, missed, spread, steady_seconds
from ..parse import requested_lengths, requests_of, shard_requests
from ..types import ClientUse, EngineUse, GpuUse, Level, Load, Raw, Status
from .inputs import Seen, share_failed, usage_cached
from .rules import KEPT, NOTES, OF_WARMUP

CHECKS = {**KEPT, **NOTES}


RULES: dict[str, dict[str, Any]] = knowledge("bench/thresholds.yml")["rules"]
# A rule without a threshold allows no case.
LIMITS = {name: rule["threshold"] for name, rule in RULES.items() if "threshold" in rule}


def evaluate(raw: Raw, slo: tuple[Limit, ...], name: str | None = None) -> Level:
    """Return the level that a raw result is, with its status and every finding.

    FAILED when more requests failed than a service may; else INVALID when any rule of severity
    error is broken; else SLO_MISS when a limit is; else OK. ``name`` is the raw result's file; a
    load that is none raises a DOC- finding. A raw result that can't be read is INVALID, with
    BENCH-RESULT.
    """
    load = from_document(Load, raw.load, name or "load")
    subject = f"level {load.key}"
    try:
        requests = requests_of(raw, subject)
        requested = requested_lengths(raw)
    except ApiaryError as refusal:
        return _unread(raw, load, subject, name, refusal)
    engine = use_of(raw)
    seconds = max(float(shard["duration"]) for shard in raw.shards)
    cached = engine.cached_tokens if engine else None
    if cached is None and (counted := usage_cached(raw)) is not None:
        cached = counted[0]
    client, problem = _client(raw)
    seen = Seen(
        raw=raw,
        load=load,
        slo=slo,
        requests=requests,
        measured=measure(requests, load, slo, seconds, cached),
        engine=engine or EngineUse(),
        client=client,
        limits=LIMITS,
        seconds=seconds,
        requested=requested,
        self_test_problem=problem,
        began_anew=restarted(raw),
    )
    findings = _broken(seen, subject)
    broken = missed(seen.measured, slo)
    return Level(
        load=load,
        status=_status(seen, findings, broken),
        measured=seen.measured if seen.measured.completed else None,
        engine=engine,
        gpus=gpus_of(raw, steady_seconds(requests, load)),
        client=client,
        missed=broken,
        findings=findings,
        raw=name,
    )


def gpus_of(raw: Raw, within: tuple[float, float] | None = None) -> tuple[GpuUse, ...]:
    """Return power (W) and clock (MHz) of each GPU during a level, by BDF.

    ``within`` are the seconds that the rates are of; without a sample then, all of the level's.
    """
    used = []
    first, last = within or (0.0, math.inf)
    samples = [one for one in raw.gpus if first <= one.seconds <= last] or raw.gpus
    for key in sorted({sample.key for sample in samples}):
        own = [sample for sample in samples if sample.key == key]
        power = [sample.power_w for sample in own if sample.power_w is not None]
        clock = [sample.clock_mhz for sample in own if sample.clock_mhz is not None]
        used.append(
            GpuUse(
                key,
                power_w_mean=fmean(power) if power else None,
                power_w_max=max(power, default=None),
                clock_mhz_mean=fmean(clock) if clock else None,
                clock_mhz_min=min(clock, default=None),
            )
        )
    return tuple(used)


def self_test_holds(raw: Raw) -> bool:
    """Return whether the client's self-test was made and stayed within the rule's threshold."""
    excess, problem = _self_test(raw)
    return problem is None and excess is not None and excess <= LIMITS["self_test"]


def _broken(seen: Seen, subject: str) -> tuple[Finding, ...]:
    findings = []
    for rule, check in CHECKS.items():
        if seen.load.phase == "warmup" and rule not in OF_WARMUP:
            continue
        message = check(seen)
        if message is not None:
            findings.append(_finding(rule, subject, message))
    return tuple(findings)


def _finding(rule: str, subject: str, message: str) -> Finding:
    facts = RULES[rule]
    return Finding(facts["code"], subject, message, source=facts["source"])


def _status(seen: Seen, findings: tuple[Finding, ...], broken: tuple[Limit, ...]) -> Status:
    if share_failed(seen) > seen.limits["failed"]:
        return "FAILED"
    if has_errors(findings):
        return "INVALID"
    return "SLO_MISS" if broken else "OK"


def _unread(raw: Raw, load: Load, subject: str, name: str | None, refusal: ApiaryError) -> Level:
    """Return the level of a result that can't be read: nothing is known of it but why."""
    bad = ", ".join(str(code) for code in raw.exit_codes if code)
    ended = (_finding("exit", subject, f"the load generator ended with {bad}"),) if bad else ()
    again = restarted(raw)
    anew = (_finding("restarted", subject, f"{', '.join(again)} began anew"),) if again else ()
    return Level(
        load=load,
        status="INVALID",
        measured=None,
        engine=use_of(raw),
        gpus=gpus_of(raw),
        client=_client(raw)[0],
        findings=(*refusal.findings, *ended, *anew),
        raw=name,
    )


def _client(raw: Raw) -> tuple[ClientUse, str | None]:
    """Return what the client cost and how wrong it measures, and why the latter is not known."""
    excess, problem = _self_test(raw)
    processes = len(raw.argv) or len(raw.shards)
    client = ClientUse(raw.backend, raw.version, processes, raw.cpu_seconds, raw.cores, excess)
    return client, problem


def _self_test(raw: Raw) -> tuple[float | None, str | None]:
    test = raw.self_test
    if test is None:
        return None, None
    if any(test.exit_codes):
        return None, f"it ended with {', '.join(map(str, test.exit_codes))}"
    try:
        requests = [
            request
            for number, shard in enumerate(test.shards)
            for request in shard_requests(shard, f"self-test, shard {number}")
        ]
    except ApiaryError as refusal:
        return None, refusal.findings[0].message
    if any(request.error for request in requests):
        return None, next(request.error for request in requests if request.error).strip()[-200:]
    if all(request.start is not None for request in requests):
        # The first of each slot begin all at once, which no later one does.
        slots = raw.load.get("concurrency") or 0
        requests = sorted(requests, key=attrgetter("start"))[slots:] or requests
    seen = spread([request.ttft for request in requests if request.ttft is not None])
    if seen is None:
        return None, "it measured no TTFT"
    return max(0.0, seen.p90 - test.ttft_seconds), None
