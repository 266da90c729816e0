# SPDX-License-Identifier: GPL-3.0-or-later

"""The order of the layouts that a host can hold: documented preferences, not predictions.

knowledge/layouts.yml has what each preference compares by, the bounds and their sources.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..deployment import AutoLayout
from ..documents import knowledge
from .types import Criterion, layout_name

GIB = 2**30
Key = tuple[float, ...]


@dataclass(frozen=True)
class Facts:
    """What is known of one possible layout; None is unknown.

    ``weights`` are the bytes on each GPU of each engine, in the order of ``sizes``, ``share`` the
    part of the engines' memory that they take. ``spanning`` counts the replicas that have pairs
    without xGMI in the best cut, ``free`` the usable GPUs without a replica.
    """

    sizes: tuple[int, ...]
    expert_parallel: bool
    weights: tuple[int, ...] | None
    share: float | None
    kv_tokens: int | None
    sequences: float | None
    free: int
    spanning: int

    @property
    def name(self) -> str:
        return layout_name(self.sizes, self.expert_parallel)


@dataclass(frozen=True)
class Preference:
    """One order: its name, what brought it, what it compares by, and the bounds of that."""

    name: str
    because: str
    order: tuple[str, ...]
    concurrency: int | None
    weights_limit: float
    thin_bytes: int
    dense: bool | None

    def key(self, layout: Facts) -> tuple[Key, ...]:
        """Return what layouts are sorted by; the least is preferred, ties by size."""
        keys = [_CRITERIA[name][0](layout, self) for name in self.order]
        sizes = tuple(float(-size) for size in layout.sizes)
        return (*keys, sizes, (float(layout.expert_parallel),))

    def why_not(self, layout: Facts, best: Facts) -> str:
        """Say what decides against a layout, compared with the one preferred to it."""
        return self._differ(layout, best) or f"equal to {best.name} in all that counts"

    def why(self, best: Facts, others: Sequence[Facts]) -> str:
        """Say what decides for the chosen layout: against other sizes, and against its twin."""
        other_sizes = next((other for other in others if other.sizes != best.sizes), None)
        twin = next((other for other in others if other.sizes == best.sizes), None)
        reasons = [self._differ(best, other) for other in (other_sizes, twin) if other is not None]
        if not reasons:
            return "the only one that is possible"
        return "; ".join(filter(None, reasons)) or "equal to the others in all that counts"

    def _differ(self, layout: Facts, other: Facts) -> str | None:
        for name in self.order:
            key, say = _CRITERIA[name]
            if key(layout, self) != key(other, self):
                return f"{say(layout)}, against {say(other)} in {other.name}"
        return None

    def criteria(self) -> tuple[Criterion, ...]:
        data = knowledge("layouts.yml")
        return tuple(
            Criterion(name, data["criteria"][name]["is"], _source(data["criteria"][name]["source"]))
            for name in self.order
        )


def preference(auto: AutoLayout, profile: str | None, active_share: float | None) -> Preference:
    """Return the preference of a profile, else of the stated concurrency, else the balanced one.

    ``active_share`` is the part of a layer's experts that one token activates.
    """
    data = knowledge("layouts.yml")
    preferences: Mapping[str, Mapping[str, Any]] = data["preferences"]
    name, because = "balanced", "neither a profile nor a concurrency is stated"
    if profile is not None:
        matches = [key for key, entry in preferences.items() if profile in entry["profiles"]]
        name, because = (matches or [name])[0], f"profile {profile}"
    elif auto.concurrency is not None:
        because = f"{auto.concurrency} requests at once"
        name = next(
            key
            for key, entry in preferences.items()
            if auto.concurrency <= (entry["concurrency_until"] or auto.concurrency)
        )
    chosen = preferences[name]
    least = data["criteria"]["experts"]["dense_share"]
    return Preference(
        name=name,
        because=because,
        order=tuple(chosen["order"]),
        concurrency=auto.concurrency,
        weights_limit=chosen.get("weights_limit", 1.0),
        thin_bytes=data["criteria"]["latency"]["thin_bytes"],
        dense=None if active_share is None else active_share >= least,
    )


def _source(text: str) -> str:
    """Return a source with the names of `sources` spelled out."""
    for name, source in knowledge("layouts.yml")["sources"].items():
        text = text.replace(f"sources.{name}", source)
    return text


def _latency(layout: Facts, preference: Preference) -> Key:
    """Order large engines first, but small ones first where their GPUs have little to read."""
    smallest = min(layout.sizes)
    least = min(layout.weights) if layout.weights is not None else None
    if least is not None and least < preference.thin_bytes and smallest > 1:
        return (1, smallest)
    return (0, -smallest)


def _say_latency(layout: Facts) -> str:
    size = min(layout.sizes)
    if layout.weights is None:
        return f"a smallest engine of {size} GPUs"
    return f"a smallest engine of {size} with {min(layout.weights) / GIB:.1f} GiB of weights a GPU"


def _load(layout: Facts, preference: Preference) -> Key:
    if preference.concurrency is None or layout.sequences is None:
        return (0,)
    return (max(0.0, preference.concurrency - layout.sequences),)


def _weights(layout: Facts, preference: Preference) -> Key:
    if layout.share is None:  # nothing is known: as much memory for one engine as there is
        return (1, -min(layout.sizes))
    return (0, 0) if layout.share <= preference.weights_limit else (1, layout.share)


def _experts(layout: Facts, preference: Preference) -> Key:
    return (0 if preference.dense is None else int(layout.expert_parallel != preference.dense),)


def _count(number: int, what: str) -> str:
    return f"{number or 'no'} {what}{'s' * (number != 1)}"


# By criterion: what layouts are sorted by, the least first, and how that reads.
_CRITERIA: Mapping[str, tuple[Callable[[Facts, Preference], Key], Callable[[Facts], str]]] = {
    "links": (
        lambda layout, _preference: (int(layout.spanning > 0),),
        lambda layout: (
            f"{layout.spanning} of {len(layout.sizes)} replicas with pairs without xGMI"
            if layout.spanning
            else "xGMI within every replica"
        ),
    ),
    "load": (_load, lambda layout: f"room for {layout.sequences or 0:,.0f} requests"),
    "latency": (_latency, _say_latency),
    "served": (
        lambda layout, _preference: (layout.free,),
        lambda layout: f"{_count(layout.free, 'GPU')} without a replica",
    ),
    "weights": (
        _weights,
        lambda layout: (
            "weights of unknown size"
            if layout.share is None
            else f"{layout.share:.0%} of the memory taken by weights"
        ),
    ),
    "equal": (
        lambda layout, _preference: (len(set(layout.sizes)),),
        lambda layout: f"{'unequal' if len(set(layout.sizes)) > 1 else 'equal'} replicas",
    ),
    "replicas": (
        lambda layout, _preference: (-len(layout.sizes),),
        lambda layout: _count(len(layout.sizes), "replica"),
    ),
    "experts": (
        _experts,
        lambda layout: f"{'with' if layout.expert_parallel else 'without'} expert parallelism",
    ),
    "kv": (
        lambda layout, _preference: (-(layout.kv_tokens or 0),),
        lambda layout: f"{layout.kv_tokens or 0:,} KV tokens",
    ),
}
