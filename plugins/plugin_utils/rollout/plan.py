# SPDX-License-Identifier: GPL-3.0-or-later

"""Decide a rollout: hosts, their steps, batches, and what forbids it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Any

from ..documents import knowledge
from ..findings import Finding
from .batches import allowed_out, brought_back, cut_batches, too_many
from .steps import down, host_steps
from .types import Comparison, HostSteps, Rollout, Settings, Situation, Step


def plan_rollout(deployment: str, hosts: Sequence[Situation], settings: Settings) -> Rollout:
    """Return the rollout of a deployment over hosts, in their order, the canary first.

    The findings of severity error say why it must not begin: ROLLOUT-OUTAGE,
    ROLLOUT-MAX-UNAVAILABLE, ROLLOUT-HOST-UNHEALTHY, ROLLOUT-IN-PROGRESS, ROLLOUT-UNKNOWN-HOST,
    ROLLOUT-NEW-PORTS, ROLLOUT-ENGINE-KEY, ROLLOUT-NODES.
    Raises ApiaryError (ROLLOUT-SETTING) for a share that is none.
    """
    decided = {one.host: host_steps(one) for one in hosts}
    names = [host for host, one in decided.items() if one.steps]
    first = [host for host in settings.canary if host in names]
    # What an interrupted run left out comes back before anything else goes out.
    begun = [host for host in names if decided[host].back and host not in first]
    order = [*first, *begun, *(host for host in names if host not in {*first, *begun})]
    chosen = [decided[host] for host in order]
    replicas = settings.elsewhere + sum(min(len(one.running), one.known) for one in hosts)
    missing = settings.down_elsewhere + sum(len(down(one)) for one in hosts)
    allowed = allowed_out(settings.max_unavailable, replicas)
    budget = settings.failure_budget
    batches = cut_batches(chosen, settings.batches, len(first), allowed - missing, budget)
    changing = [one for one in hosts if one.host in names]
    findings = [
        *_unknown(settings.canary, decided),
        *_locked(changing, settings),
        *_unhealthy(changing, settings),
        *_nothing_to_go_back_to(changing),
        *_several_nodes(changing),
        # Routers follow at the end: whatever waits for them must be what may be out anyway.
        *(
            _new_ports(changing, settings)
            if settings.routers and sum(one.out for one in chosen) > allowed - missing
            else ()
        ),
        *(_engine_key(changing, settings) if settings.routers else ()),
        *(
            finding
            for end, size in zip(accumulate(batches), batches, strict=True)
            for one in chosen[end - size : end]
            for finding in too_many(
                deployment,
                one.host,
                one.out,
                (replicas, allowed, missing - brought_back(chosen[: end - size], budget)),
                settings.allow_outage,
            )
        ),
    ]
    return Rollout(
        deployment=deployment,
        order=tuple(order),
        batches=batches,
        hosts=tuple(chosen),
        unchanged=tuple(host for host in decided if host not in names),
        replicas=replicas,
        allowed=allowed,
        failure_budget=budget,
        findings=tuple(findings),
    )


def summary(rollout: Rollout) -> tuple[str, ...]:
    """Return the order in lines for a person: which replica is replaced when."""
    if not rollout.order:
        return (f"{rollout.deployment}: nothing to change on {len(rollout.unchanged)} hosts",)
    lines = [
        f"{rollout.deployment}: {len(rollout.order)} hosts in {len(rollout.batches)} batches; "
        f"at most {rollout.allowed} of {rollout.replicas} replicas out at once; "
        f"stops after {rollout.failure_budget + 1} failed hosts"
    ]
    rest = list(rollout.hosts)
    for number, size in enumerate(rollout.batches, 1):
        lines.append(f"batch {number}" + (", the canary" if number == 1 else ""))
        for host in rest[:size]:
            lines += [f"  {host.host}: {_told(step)}" for step in host.steps]
        rest = rest[size:]
    if rollout.unchanged:
        lines.append(f"unchanged: {', '.join(rollout.unchanged)}")
    return tuple(lines)


def _told(step: Step) -> str:
    """Return a step in a line."""
    later = f"; {', '.join(step.later)} back when the routers know the change" if step.later else ""
    return _done(step) + later


def _done(step: Step) -> str:
    if step.kind == "replace":
        return f"replace {step.drain[0]}: {step.reason}"
    if step.kind == "return":
        return f"bring back {', '.join(step.ask)}: {step.reason}"
    if step.kind == "finish":
        return f"write {step.reason}"
    away = f"drain {', '.join(step.drain)}; " if step.drain else ""
    there = f"then serve from {', '.join(step.ask)}" if step.ask else "then remove them"
    return f"{away}{there}: {step.reason}"


def _unknown(canary: Sequence[str], decided: dict[str, HostSteps]) -> Iterator[Finding]:
    for host in canary:
        if host not in decided:
            yield Finding(
                "ROLLOUT-UNKNOWN-HOST",
                host,
                "is to be the canary, but is not among the hosts of this run",
            )


def _locked(hosts: Sequence[Situation], settings: Settings) -> Iterator[Finding]:
    for one in hosts:
        if one.lock is None:
            continue
        taken = settings.take_over or one.lock.dead
        yield Finding(
            "ROLLOUT-IN-PROGRESS",
            one.host,
            f"{one.lock.owner} has been changing it since {one.lock.since}"
            + (f"; out of the routers: {', '.join(one.lock.out)}" if one.lock.out else "")
            + ("; this run takes over" if taken else ""),
            accepted=taken,
        )


def _unhealthy(hosts: Sequence[Situation], settings: Settings) -> Iterator[Finding]:
    for one in hosts:
        left = set(one.lock.out) if one.lock else set[str]()
        broken = sorted({slot.unit for slot in one.running} - set(one.serving) - left)
        if broken:
            allowed = settings.allow_unhealthy
            yield Finding(
                "ROLLOUT-HOST-UNHEALTHY",
                one.host,
                f"{', '.join(broken)} does not serve before the change",
                accepted=allowed,
            )


def _nothing_to_go_back_to(hosts: Sequence[Situation]) -> Iterator[Finding]:
    for one in hosts:
        if one.running and one.kept is None:
            yield Finding(
                "ROLLOUT-NO-PREVIOUS",
                one.host,
                "keeps no release of what it runs: if the new one fails, there is no way back",
            )


def _new_ports(hosts: Sequence[Situation], settings: Settings) -> Iterator[Finding]:
    """Refuse ports, or TLS, that the routers would learn of only when all hosts have changed."""
    for one in hosts:
        now = {slot.unit: slot.reached for slot in one.running}
        other = [
            each.unit for each in one.wanted if now.get(each.unit, each.reached) != each.reached
        ]
        if other:
            yield Finding(
                "ROLLOUT-NEW-PORTS",
                one.host,
                f"{', '.join(other)} would listen on another port, or begin or end TLS, and no "
                "router knows until all hosts have changed",
                accepted=settings.allow_outage,
            )


def _engine_key(hosts: Sequence[Situation], settings: Settings) -> Iterator[Finding]:
    """Refuse another key of the engine: routers show all replicas of a deployment the same one."""
    for one in hosts:
        if one.key_first and settings.elsewhere:
            yield Finding(
                "ROLLOUT-ENGINE-KEY",
                one.host,
                "routers would show the first of the new keys (VLLM_API_KEY) to "
                f"{settings.elsewhere} replicas that are not of this run, which may not accept it",
                accepted=settings.allow_outage,
            )
        if not one.engine_key:
            continue
        alone = not settings.elsewhere
        yield Finding(
            "ROLLOUT-ENGINE-KEY",
            one.host,
            "the key that the engine asks for (VLLM_API_KEY) changes; routers show one key to all "
            "replicas of the deployment, which would refuse it until all have changed"
            + ("" if alone else f", and {settings.elsewhere} replicas are not of this run"),
            accepted=settings.allow_outage and alone,
        )


def _several_nodes(hosts: Sequence[Situation]) -> Iterator[Finding]:
    """Refuse replicas that end on all their hosts when they end on one."""
    for one in hosts:
        if one.nodes > 1:
            yield Finding(
                "ROLLOUT-NODES",
                one.host,
                f"its replicas span {one.nodes} hosts, which can only change together",
            )


Document = Mapping[str, Any]

# On the way back from a failed change, that a replica serves again comes first.
BACK = Comparison("should", "this is the release that answered before the change", "back")


def compare_answers(before: Document | None, after: Document, unit: str) -> Comparison:
    """Return what the answers of one unit must be, from the plans before and after."""
    old = _replica(before, unit) if before else None
    new = _replica(after, unit)
    if before is None or old is None or new is None:
        return Comparison("no", "there was no such replica before", "new")
    flags = _different(_flags(old.get("argv", ())), _flags(new.get("argv", ())))
    env = _different(old.get("env", {}), new.get("env", {}))
    rules: Sequence[Document] = knowledge("rollout.yml")["compare"]["rules"]
    for rule in rules[:-1]:
        if (
            any(_at(before, path) != _at(after, path) for path in rule.get("fields", ()))
            or any(old.get(name) != new.get(name) for name in rule.get("replica", ()))
            or _matches(rule.get("flags", ()), flags)
            or _matches(rule.get("env", ()), env)
        ):
            return Comparison(rule["compare"], rule["because"], rule["id"])
    last = rules[-1]
    return Comparison(last["compare"], last["because"], last["id"])


def _replica(plan: Document, unit: str) -> Document | None:
    return next((one for one in plan.get("replicas", ()) if one.get("unit") == unit), None)


def _at(plan: Document, path: str) -> Any:
    """Return what stands at a path like deployment.engine.version, None where nothing does."""
    value: Any = plan
    for name in path.split("."):
        value = value.get(name) if isinstance(value, Mapping) else None
    return value


def _flags(argv: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Return a command's flags with their values."""
    flags: dict[str, list[str]] = {}
    last: list[str] = []
    for word in argv:
        if word.startswith("-") and not re.fullmatch(r"-[\d.]+", word):
            name, equals, value = word.partition("=")
            last = flags.setdefault(name, [])
            if equals:
                last.append(value)
        else:
            last.append(word)
    return {name: tuple(values) for name, values in flags.items()}


def _different(old: Mapping[str, Any], new: Mapping[str, Any]) -> set[str]:
    return {name for name in {*old, *new} if old.get(name) != new.get(name)}


def _matches(patterns: Iterable[str], names: set[str]) -> bool:
    return any(re.fullmatch(pattern, name) for pattern in patterns for name in names)
