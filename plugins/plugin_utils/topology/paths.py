# SPDX-License-Identifier: GPL-3.0-or-later

"""Make one link of each pair of GPUs from what the sources say in both directions."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..documents import knowledge
from ..findings import Finding
from ..gpus import gpu_facts
from . import problems
from .fabric import Fabric
from .join import Entry
from .observation import Observation, Path
from .types import Link, LinkType

_FIELDS = ("type", "hops", "weight", "bandwidth_mb_s")


@dataclass(frozen=True)
class _Way:
    """Both directions of a pair as one source has them; ``reported`` are all values of a field."""

    type: LinkType | None
    hops: int | None
    weight: int | None
    bandwidth_mb_s: tuple[int, int] | None
    asymmetry: str | None
    reported: Mapping[str, frozenset[object]]


def links(
    entries: Sequence[Entry],
    keys: Sequence[str],
    observations: Sequence[Observation],
    subject: str,
    dead: Collection[tuple[str, str]] = (),
) -> tuple[tuple[Link, ...], list[Finding]]:
    """Return the links of all pairs, sorted, and what sources and directions disagree on.

    The first source that knows a value gives it; a pair of which nobody knows anything has no
    link. Of two directions the worse one counts: PCIe before xGMI, the higher weight. ``dead``
    are pairs whose xGMI links are all down: PCIe is what remains, whatever was known at boot.
    """
    tables = {
        observation.source: {(path.a, path.b): path for path in observation.paths}
        for observation in observations
        if any(replace(path, access=None) != Path(path.a, path.b) for path in observation.paths)
    }
    result: list[Link] = []
    asymmetric: dict[str, dict[tuple[str, str], str]] = {}
    unknown: list[str] = []
    differing: Counter[tuple[str, str, str]] = Counter()
    example: dict[tuple[str, str, str], str] = {}
    for (a, here), (b, there) in itertools.combinations(zip(keys, entries, strict=True), 2):
        ways = [
            (source, way)
            for source, paths in tables.items()
            if source in here.place
            and source in there.place
            and (way := _way(here.place[source], there.place[source], paths))
        ]
        low, high = sorted((a, b))
        for source, way in ways:
            if way.asymmetry:
                asymmetric.setdefault(source, {})[low, high] = way.asymmetry
        for field in ("type", "weight"):
            reported = [(source, way) for source, way in ways if getattr(way, field) is not None]
            for source, way in reported[1:]:
                first, taken = reported[0]
                # A source with one direction only may have the one that the other one takes less.
                if not way.reported[field] & taken.reported[field]:
                    case = field, first, source
                    differing[case] += 1
                    values = getattr(taken, field), getattr(way, field)
                    text = f"{first} says {values[0]}, {source} says {values[1]}"
                    example.setdefault(case, f"{low} – {high}: {text}")
        link = Link(low, high, **{name: _first(ways, name) for name in _FIELDS})
        if (low, high) in dead:
            result.append(Link(low, high, "pcie"))
        elif link == Link(low, high):
            # A GPU that only the bus has is no end of any link.
            if here.place.keys() & tables.keys() and there.place.keys() & tables.keys():
                unknown.append(f"{low} – {high}")
        else:
            result.append(link)
    findings = [
        problems.finding(
            "TOPO-SOURCES-DISAGREE",
            subject,
            f"link {field} of {example[field, first, other]}"
            + (f" (and {count - 1} more pairs)" if count > 1 else "")
            + f"; {first} was taken",
        )
        for (field, first, other), count in differing.items()
    ]
    findings += [
        problems.finding(
            "TOPO-ASYMMETRY",
            subject,
            f"{source}: {' – '.join(next(iter(cases)))}: {next(iter(cases.values()))}"
            + (f" (and {len(cases) - 1} more pairs)" if len(cases) > 1 else ""),
            parts=tuple(cases),
        )
        for source, cases in asymmetric.items()
    ]
    untyped = [f"{link.a} – {link.b}" for link in result if link.type is None]
    if untyped:
        findings.append(
            problems.finding(
                "TOPO-LINK-TYPE-UNKNOWN",
                subject,
                f"no source says whether {untyped[0]}"
                + (f" and {len(untyped) - 1} more pairs are" if len(untyped) > 1 else " is")
                + " linked by xGMI or PCIe",
            )
        )
    if unknown:
        findings.append(
            problems.finding(
                "TOPO-LINK-UNKNOWN",
                subject,
                f"no source says how {unknown[0]}"
                + (f" and {len(unknown) - 1} more pairs" if len(unknown) > 1 else "")
                + " are linked",
            )
        )
    return tuple(sorted(result, key=lambda link: (link.a, link.b))), findings


def corrected(
    pairs: Sequence[Link], physical: Fabric, models: Mapping[str, str | None], subject: str
) -> tuple[tuple[Link, ...], list[Finding]]:
    """Return the links with what the kernel counts of the physical ones, and where that differs.

    Hops that sources print over xGMI are 1 whatever the way is, and weights and bandwidths can
    be missing. ``models`` are by GPU key. Of a weight and a way that contradict each other the
    worse one counts.
    """
    per_hop = knowledge("placement.yml")["fabric"]["weight_per_hop"]["value"]
    result: list[Link] = []
    cases: list[str] = []
    for link in pairs:
        pair = link.a, link.b
        hops = physical.num_hops.get(pair)
        if link.type == "xgmi" and hops is not None:
            weight = per_hop * hops
            if link.weight not in (None, weight):
                way = "1 physical hop" if hops == 1 else f"{hops} physical hops"
                cases.append(
                    f"{link.a} – {link.b}: weight {link.weight}, by {way} {weight}; "
                    f"{max(link.weight, weight)} was taken"
                )
            if (link.weight or 0) < weight:
                link = replace(link, hops=hops, weight=weight)
        count = physical.num_links.get(pair, 0)
        if link.type == "xgmi" and count and link.bandwidth_mb_s is None:
            speed = min(_link_speed(models.get(key)) for key in pair)
            if speed:
                link = replace(link, bandwidth_mb_s=(speed, speed * count))
        result.append(link)
    if not cases:
        return tuple(result), []
    more = f" (and {len(cases) - 1} more pairs)" if len(cases) > 1 else ""
    message = f"xGMI{more}: {cases[0]}"
    return tuple(result), [problems.finding("TOPO-SOURCES-DISAGREE", subject, message)]


def without_access(
    entries: Sequence[Entry], keys: Sequence[str], observations: Sequence[Observation], subject: str
) -> list[Finding]:
    """Return a finding on the pairs that cannot read each other's memory, as the first source says.

    Who is silent of it says nothing.
    """
    findings = []
    for observation in observations:
        source = observation.source
        at = {
            e.place[source]: key for e, key in zip(entries, keys, strict=True) if source in e.place
        }
        closed = {
            (min(ends), max(ends))
            for path in observation.paths
            if path.access is False and path.a in at and path.b in at
            for ends in [(at[path.a], at[path.b])]
        }
        if closed:
            first = " – ".join(min(closed))
            more = f" and {len(closed) - 1} more pairs" if len(closed) > 1 else ""
            message = f"{source}: {first}{more} have no peer-to-peer access to each other's memory"
            parts = tuple(sorted(closed))
            findings.append(problems.finding("TOPO-P2P-DISABLED", subject, message, parts=parts))
    return findings[:1]


def _link_speed(model: str | None) -> int:
    """Return the nominal bandwidth in MB/s of one xGMI link of a model, 0 where it isn't known."""
    return gpu_facts(model).links.xgmi_mb_s


def _first(ways: Sequence[tuple[str, _Way]], name: str) -> Any:
    return next((value for _s, way in ways if (value := getattr(way, name)) is not None), None)


def _way(a: int, b: int, paths: Mapping[tuple[int, int], Path]) -> _Way | None:
    """Return one source's view of a pair; rocm-smi's JSON has only one direction of it."""
    both = [path for pair in ((a, b), (b, a)) if (path := paths.get(pair)) is not None]
    if not both:
        return None
    types = [path.type for path in both if path.type]
    weights = [path.weight for path in both if path.weight]
    hops = [path.hops for path in both if path.hops]
    bandwidths = [path.bandwidth_mb_s for path in both if path.bandwidth_mb_s]
    different = [
        f"{name} {values[0]} one way and {values[1]} the other"
        for name, values in (("type", types), ("weight", weights))
        if len(set(values)) > 1
    ]
    return _Way(
        type="pcie" if "pcie" in types else types[0] if types else None,
        hops=max(hops, default=None),
        weight=max(weights, default=None),
        bandwidth_mb_s=min(bandwidths, default=None),
        asymmetry=", ".join(different) or None,
        reported={"type": frozenset(types), "weight": frozenset(weights)},
    )
