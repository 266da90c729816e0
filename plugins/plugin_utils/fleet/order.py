# SPDX-License-Identifier: GPL-3.0-or-later

"""The order of hosts: a canary, then growing waves, none with two of one failure domain."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction

from ..findings import Finding, error

_SHARE = re.compile(r"(\d+(?:\.\d+)?)%|(\d+)")


@dataclass(frozen=True)
class Member:
    """One host: what fails together with it, and where it stands; None: nobody said."""

    name: str
    domain: str | None = None
    rack: str | None = None


@dataclass(frozen=True)
class Wave:
    """Hosts that change together. ``why`` says how the wave came about, in words."""

    hosts: tuple[str, ...]
    canary: bool
    why: str


@dataclass(frozen=True)
class Order:
    """The waves, one after the other, and what a person should know of them."""

    waves: tuple[Wave, ...]
    findings: tuple[Finding, ...] = ()


def order_hosts(
    members: Sequence[Member], batches: Sequence[str], canary: Sequence[str] = (), together: int = 1
) -> Order:
    """Return the waves of hosts, which come in the inventory's order where nothing else decides.

    ``batches`` are sizes as the operator gave them ("1", "10%"), the last one repeating.
    ``canary`` names the hosts of the first wave, or is one number or percentage of them.
    ``together`` is how many hosts of one failure domain may be in a wave; what does not fit is
    a wave of its own, before any larger one. Among those that fit, racks take turns, and the
    fullest domains go first, so that no other order needs fewer waves of the last size.
    Raises FLEET-BATCHES for sizes that are none, FLEET-CANARY for a canary that is no host here.
    """
    if together < 1:
        raise _bad("--domains-together", str(together), "a number of at least 1")
    if not members:
        return Order(())
    sizes = [max(1, _share(size, len(members), "--batches")) for size in batches]
    if not sizes:
        raise _bad("--batches", "", "at least one size")
    left = list(members)
    waves: list[Wave] = []
    findings = list(_without_domain(members))
    first = _canaries(canary, members)
    if first is not None:
        asked, chosen = first
        waves += _cut(chosen if chosen is not None else left, asked, together, left, True)
    place = 0
    while left:
        asked, place = sizes[min(place, len(sizes) - 1)], place + 1
        waves += _cut(left, asked, together, left, False)
    findings += _cut_smaller(waves, together)
    return Order(tuple(waves), tuple(findings))


def spread(members: Sequence[Member], count: int, together: int) -> list[Member]:
    """Return at most ``count`` of the members, no more of a domain than may go together."""
    waiting: dict[str, list[Member]] = {}
    for one in members:
        waiting.setdefault(_domain(one), []).append(one)
    place = {one.name: number for number, one in enumerate(members)}
    used: Counter[str] = Counter()
    racks: Counter[str] = Counter()
    chosen: list[Member] = []
    while len(chosen) < count:
        open_ = [domain for domain, rest in waiting.items() if rest and used[domain] < together]
        if not open_:
            break
        domain = min(
            open_,
            key=lambda name: (
                racks[_rack(waiting[name][0])],
                -len(waiting[name]),
                place[waiting[name][0].name],
            ),
        )
        one = waiting[domain].pop(0)
        used[domain] += 1
        racks[_rack(one)] += 1
        chosen.append(one)
    return sorted(chosen, key=lambda one: place[one.name])


def _cut(
    pool: Sequence[Member], asked: int, together: int, left: list[Member], canary: bool
) -> Iterator[Wave]:
    """Take ``asked`` hosts of a pool out of ``left``, in as many waves as their domains ask for."""
    rest = min(asked, len(pool))
    part, pool = 0, list(pool)
    while rest:
        chosen = spread(pool, rest, together)
        rest, part = rest - len(chosen), part + 1
        names = {one.name for one in chosen}
        pool = [one for one in pool if one.name not in names]
        left[:] = [one for one in left if one.name not in names]
        what = "the canary" if canary else f"a batch of {asked}"
        why = what if not rest and part == 1 else f"{what}, part {part}: one failure domain at once"
        yield Wave(tuple(one.name for one in chosen), canary, why)


def _canaries(
    canary: Sequence[str], members: Sequence[Member]
) -> tuple[int, list[Member] | None] | None:
    """Return how many canaries there are and, where they have names, who; None without any."""
    if not canary:
        return None
    if len(canary) == 1 and _SHARE.fullmatch(canary[0]):
        names = {one.name for one in members}
        if canary[0] not in names:
            return max(1, _share(canary[0], len(members), "--canary")), None
    by_name = {one.name: one for one in members}
    unknown = [name for name in canary if name not in by_name]
    if unknown:
        raise error(
            "FLEET-CANARY",
            ", ".join(unknown),
            f"is to be the canary, but is none of the {len(members)} hosts of this run",
        )
    chosen = [by_name[name] for name in dict.fromkeys(canary)]
    return len(chosen), chosen


def _share(text: str, whole: int, subject: str) -> int:
    """Return what a number or a percentage of ``whole`` is, rounded down; raise FLEET-BATCHES."""
    found = _SHARE.fullmatch(text.strip())
    if not found or (found[1] and Fraction(found[1]) > 100) or found[2] == "0":
        raise _bad(subject, text, "numbers like 2 or percentages like 25%, with commas between")
    return int(found[2]) if found[2] else int(Fraction(found[1]) / 100 * whole)


def _bad(subject: str, found: str, expected: str) -> Exception:
    return error("FLEET-BATCHES", subject, f"is {found!r}, expected {expected}")


def _domain(one: Member) -> str:
    return f"domain {one.domain}" if one.domain is not None else f"host {one.name}"


def _rack(one: Member) -> str:
    return f"rack {one.rack}" if one.rack is not None else _domain(one)


def _without_domain(members: Sequence[Member]) -> Iterator[Finding]:
    alone = [one.name for one in members if one.domain is None]
    if alone:
        yield Finding(
            "FLEET-NO-DOMAIN",
            alone[0] if len(alone) == 1 else f"{len(alone)} hosts, {alone[0]} first",
            "has no failure domain, so it may change together with any other host",
        )


def _cut_smaller(waves: Sequence[Wave], together: int) -> Iterator[Finding]:
    cut = [wave for wave in waves if ", part " in wave.why]
    if cut:
        yield Finding(
            "FLEET-BATCH-CUT",
            f"{len(cut)} of {len(waves)} waves",
            f"are parts of a batch that would have more than {together} "
            f"{'host' if together == 1 else 'hosts'} of one failure domain",
        )
