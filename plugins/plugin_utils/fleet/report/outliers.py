# SPDX-License-Identifier: GPL-3.0-or-later

"""What hosts of one kind share, driver, firmware and topology, and who is not as his peers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...documents import knowledge
from ..types import HostFacts, Outlier
from .types import Odd, Shared, Value

FIRMWARE = "firmware "
HEALTH = "health"
_SILENT = "not told"


@dataclass(frozen=True)
class Peer:
    """One host: what it says of itself, and the inventory's groups that it is in."""

    host: str
    facts: HostFacts
    groups: tuple[str, ...] = ()


def facts_text(facts: HostFacts) -> dict[str, str]:
    """Return what a host says of itself, by the fact's name, in the order of people's interest.

    A component of the firmware is a fact of its own ("firmware MEC"); where the host's own GPUs
    differ in it, the value has all versions.
    """
    told: dict[str, str] = {}
    for entry in knowledge("fleet_plan.yml")["facts"]:
        value = getattr(facts, entry["field"])
        if value is None or value in ((), 0):
            continue
        told[entry["fact"]] = _text(entry["field"], value)
    versions: dict[str, set[str]] = {}
    for component, version in facts.firmware:
        versions.setdefault(component, set()).add(version)
    for component in sorted(versions):
        told[f"{FIRMWARE}{component}"] = " and ".join(sorted(versions[component]))
    return told


def _text(field: str, value: Any) -> str:
    if field == "vram_bytes":
        return f"{value / 2**30:.0f} GiB"
    return "+".join(map(str, value)) if isinstance(value, tuple) else str(value)


def outliers(peers: Iterable[Peer]) -> tuple[Outlier, ...]:
    """Return who stands out among hosts of the same GPU model.

    The model itself is judged within each group of the inventory. A fact in which a model has no
    clear majority is judged within the groups. Health is not put to the vote: a sick host always
    stands out.
    """
    listed = [(one, facts_text(one.facts)) for one in peers]
    found: dict[Outlier, None] = dict.fromkeys(_unwell(listed))
    model = knowledge("fleet_plan.yml")["model"]
    for group, members in _groups(listed).items():
        values = {one.host: told.get(model) for one, told in members}
        found |= dict.fromkeys(_judged(model, group, values) or ())
    models: dict[str, list[tuple[Peer, dict[str, str]]]] = {}
    for one, told in listed:
        if model in told:
            models.setdefault(told[model], []).append((one, told))
    for name, members in models.items():
        for fact in _ordered(members):
            if fact in (model, HEALTH):
                continue
            values = {one.host: told.get(fact) for one, told in members}
            odd = _judged(fact, name, values)
            if odd is not None:
                found |= dict.fromkeys(odd)
                continue
            for group, part in _groups(members).items():
                if len(part) < len(members):
                    inner = {one.host: values[one.host] for one, _told in part}
                    found |= dict.fromkeys(_judged(fact, f"{name} in {group}", inner) or ())
    return _once(found)


def _unwell(members: Sequence[tuple[Peer, Mapping[str, str]]]) -> Iterator[Outlier]:
    """Yield the sick hosts, and those whose health is unknown among hosts that tell theirs."""
    states: dict[str, list[str]] = {}
    for one, told in members:
        states.setdefault(told[HEALTH], []).append(one.host)
    healthy = len(states.get("healthy", ()))
    for state in ("sick", "unknown"):
        hosts = tuple(states.get(state, ()))
        if hosts and (state == "sick" or _clear(healthy, len(members))):
            value = None if state == "unknown" else state
            yield Outlier(HEALTH, "the fleet", value, "healthy", hosts, healthy, len(members))


def _ordered(members: Sequence[tuple[Peer, Mapping[str, str]]]) -> Iterator[str]:
    """Yield every fact that a member tells, firmware last and sorted."""
    names = dict.fromkeys(name for _peer, told in members for name in told)
    yield from (name for name in names if not name.startswith(FIRMWARE))
    yield from sorted(name for name in names if name.startswith(FIRMWARE))


def _groups(
    members: Sequence[tuple[Peer, dict[str, str]]],
) -> dict[str, list[tuple[Peer, dict[str, str]]]]:
    """Return members by group of the inventory; hosts without any are one group."""
    found: dict[str, list[tuple[Peer, dict[str, str]]]] = {}
    for one, told in members:
        for group in one.groups or ("the fleet",):
            found.setdefault(group, []).append((one, told))
    return found


def _judged(fact: str, peers: str, values: Mapping[str, str | None]) -> list[Outlier] | None:
    """Return the hosts that differ from a clear majority; None where there is none."""
    owners: dict[str | None, list[str]] = {}
    for host, value in values.items():
        owners.setdefault(value, []).append(host)
    if len(owners) < 2:
        return []
    order = sorted(owners.items(), key=lambda item: -len(item[1]))
    usual, agreeing = order[0]
    if usual is None or not _clear(len(agreeing), len(values)):
        return None
    return [
        Outlier(fact, peers, value, usual, tuple(hosts), len(agreeing), len(values))
        for value, hosts in order[1:]
    ]


def _clear(agree: int, count: int) -> bool:
    """Say whether those who agree are enough to call the others odd."""
    rule = knowledge("fleet_plan.yml")["majority"]
    alone = count - agree == 1 and agree >= int(rule["against_one"])
    return alone or agree >= float(rule["share"]) * count


def _once(found: Iterable[Outlier]) -> tuple[Outlier, ...]:
    """Return each host's oddity once, as seen among the most peers."""
    seen: set[tuple[str, str]] = set()
    kept = []
    for one in sorted(found, key=lambda each: -each.of):
        hosts = tuple(host for host in one.hosts if (one.fact, host) not in seen)
        seen |= {(one.fact, host) for host in hosts}
        if hosts:
            kept.append(
                Outlier(one.fact, one.peers, one.value, one.expected, hosts, one.agree, one.of)
            )
    return tuple(sorted(kept, key=lambda each: len(each.hosts)))


def shared_of(peers: Iterable[Peer]) -> tuple[Shared, ...]:
    """Return every fact that hosts of one GPU model have, those in which they differ first."""
    kinds: dict[str, dict[str, dict[str, list[str]]]] = {}
    for one in peers:
        if one.facts.gpu_model is None:
            continue
        kind = kinds.setdefault(one.facts.gpu_model, {})
        for name, value in facts_text(one.facts).items():
            if name != HEALTH and value != one.facts.gpu_model:
                kind.setdefault(name, {}).setdefault(value, []).append(one.host)
    found = [
        Shared(kind, name, _shared_values(values))
        for kind, facts in sorted(kinds.items())
        for name, values in facts.items()
    ]
    return tuple(sorted(found, key=lambda one: len(one.values) == 1))


def _shared_values(values: Mapping[str, list[str]]) -> tuple[Value, ...]:
    ordered = sorted(values.items(), key=lambda one: (-len(one[1]), one[0]))
    return tuple(Value(value, tuple(hosts)) for value, hosts in ordered)


def odd_of(peers: Sequence[Peer]) -> dict[str, tuple[Odd, ...]]:
    """Return, by host, what it does not share with its peers; what its state says is left out."""
    found: dict[str, list[Odd]] = {}
    for one in outliers(peers):
        if one.fact == HEALTH:
            continue
        for host in one.hosts:
            told = Odd(one.fact, one.value or _SILENT, one.expected, one.agree)
            found.setdefault(host, []).append(told)
    return {host: tuple(each) for host, each in found.items()}
