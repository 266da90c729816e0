# SPDX-License-Identifier: GPL-3.0-or-later

"""A deployment's limits → objectives that its engines' histograms can tell, and their rules."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from ..documents import knowledge
from ..engine.conditions import order, parse_version
from ..findings import Finding
from ..plan.engines import argument
from ..plan.types import Plan
from ..slo import Limit
from ..slo import slo as limits
from .promql import Group, bound, number, quoted, read_template
from .types import Objective, TelemetrySettings

ERRORS = "errors"


def objectives(
    plans: Mapping[str, Sequence[Plan]], settings: TelemetrySettings
) -> tuple[tuple[Objective, ...], tuple[Finding, ...]]:
    """Return what each deployment has to keep, and what histograms cannot tell of it.

    ``plans`` are those of the hosts that answer for a deployment, by its name. Raises BENCH-SLO
    for limits that cannot be read.
    """
    result: list[Objective] = []
    notes: list[Finding] = []
    for name in sorted(plans):
        text = settings.slos.get(name)
        if text is None:
            notes.append(_missing(name))
        for limit in limits(text) if text else ():
            objective, finding = _objective(name, limit, plans[name])
            result += [objective] if objective else []
            notes += [finding] if finding else []
        result.append(Objective(name, ERRORS, settings.success_objective))
    return tuple(result), tuple(notes)


def slo_name(limit: Limit) -> str:
    """Return a limit's name as a label has it: ttft_p90."""
    return f"{limit.metric}_{limit.percentile}"


def bounds(plans: Sequence[Plan], family: str) -> tuple[float, ...]:
    """Return the bounds of a histogram that all engines of these plans have, in seconds, rising.

    An operator may have replaced them by vLLM's --custom-histogram-buckets.
    """
    table = knowledge("telemetry/vllm.yml")["buckets"]
    common: set[float] | None = None
    for plan in plans:
        for replica in plan.replicas:
            own = _custom(replica.argv, table["flag"]).get(family, table[family])
            common = set(own) if common is None else common & set(own)
    return tuple(sorted(table[family] if common is None else common))


def _custom(argv: Sequence[str], flag: str) -> dict[str, list[float]]:
    """Return the bounds that a command line sets, by family; what is no JSON sets none."""
    try:
        arguments = json.loads(argument(tuple(argv), flag) or "{}")
    except ValueError:
        return {}
    return arguments if isinstance(arguments, dict) else {}


def _objective(
    name: str, limit: Limit, plans: Sequence[Plan]
) -> tuple[Objective | None, Finding | None]:
    fact = knowledge("telemetry/vllm.yml")["limits"][limit.metric]
    below = [edge for edge in bounds(plans, fact["buckets"]) if edge <= limit.seconds]
    slo = slo_name(limit)
    if not below:
        return None, Finding(
            "TELEMETRY-SLO-UNSEEN",
            f"{name}: {slo}",
            f"no histogram of the engine has a bound at or below {limit.seconds:g} s, so nothing "
            "tells whether the limit is kept",
        )
    target = int(limit.percentile[1:]) / 100
    edge = Objective(name, slo, target, limit.seconds, below[-1])
    return edge, _approximate(edge, limit, plans, fact)


def _approximate(
    objective: Objective, limit: Limit, plans: Sequence[Plan], fact: Mapping[str, Any]
) -> Finding | None:
    """Say what is counted where it is not exactly the limit."""
    subject = f"{objective.deployment}: {objective.slo}"
    exact = fact.get("exact_since")
    versions = [parse_version(plan.deployment.engine.version) for plan in plans]
    if exact and any(version and version < order(exact) for version in versions):
        return Finding(
            "TELEMETRY-SLO-TOKENS",
            subject,
            f"vLLM before {exact} tells the gap between tokens, not a request's mean: a share of "
            "tokens is counted, not of requests",
            exact=exact,
        )
    if objective.bucket != objective.limit:
        return Finding(
            "TELEMETRY-SLO-BUCKET",
            subject,
            f"the engine's histogram has no bound at {objective.limit:g} s; {objective.bucket:g} s "
            "is counted, the next below, so that misses are never fewer than shown",
        )
    return None


def _missing(name: str) -> Finding:
    return Finding(
        "TELEMETRY-SLO-MISSING",
        name,
        "has no SLO, so that only failed requests burn its budget and nothing calls for slow ones",
        name=name,
    )


def slo_groups(promised: Sequence[Objective]) -> Sequence[Group]:
    """Return the recording rules of the objectives: constants, misses, burn rates, goodput."""
    facts = knowledge("telemetry/settings.yml")
    names = dict.fromkeys(objective.deployment for objective in promised)
    limited = {name: counted_limits(name, promised) for name in names}
    groups: Sequence[Group] = read_template(
        "slo.yml",
        promised=promised,
        burn=facts["burn"],
        intervals=facts["intervals"],
        good={name: slos for name, slos in limited.items() if slos},
        counts=counts,
        number=number,
        quoted=quoted,
    )["groups"]
    return groups


def counts(objective: Objective, window: str) -> tuple[str, str]:
    """Return PromQL for all that counts in a window, and for what kept the limit (or failed)."""
    of = f"deployment={quoted(objective.deployment)}"

    def total(name: str, more: str = "") -> str:
        return f'increase({name}{{job="vllm", {of}{more}}}[{window}])'

    if objective.slo == ERRORS:
        name = "vllm:request_success_total"
        failed = total(name, ', finished_reason=~"error|repetition"')
        return f"sum by (deployment) ({total(name)})", f"sum by (deployment) ({failed})"
    series = knowledge("telemetry/vllm.yml")["limits"][objective.slo.split("_")[0]]["series"]
    le = f', le="{bound(objective.bucket or 0)}"'
    # Of two names the first is the newer version's; an engine that serves both counts once.
    every = " or ".join(total(f"{name}_count") for name in series)
    within = " or ".join(total(f"{name}_bucket", le) for name in series)
    return f"sum by (deployment) ({every})", f"sum by (deployment) ({within})"


def counted_limits(name: str, promised: Sequence[Objective]) -> tuple[str, ...]:
    """Return the objectives that a request has to keep to be good: of each metric the tightest."""
    facts = knowledge("telemetry/vllm.yml")["limits"]
    tightest: dict[str, Objective] = {}
    for objective in promised:
        metric = objective.slo.split("_")[0]
        if objective.deployment != name or objective.limit is None or not facts[metric]["requests"]:
            continue
        before = tightest.get(metric)
        if before is None or objective.limit < (before.limit or 0):
            tightest[metric] = objective
    return tuple(objective.slo for objective in tightest.values())
