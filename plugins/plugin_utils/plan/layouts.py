# SPDX-License-Identifier: GPL-3.0-or-later

"""`layout: auto`: the layouts a host can hold, each impossible one with its reason, in order."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from ..deployment import AutoLayout
from ..findings import ApiaryError, Finding, error
from ..placement.place import Placed
from ..placement.types import Request
from ..topology.types import Topology
from .engines import Engines
from .preference import Facts, preference
from .types import ConsideredLayout, LayoutChoice, layout_name

T = TypeVar("T")
# Of more GPUs unequal layouts are considered with two sizes only: partitions grow exponentially.
_ALL_PARTITIONS = 16


@dataclass(frozen=True)
class _Cut:
    sizes: tuple[int, ...]
    expert_parallel: bool


def choose_layout(auto: AutoLayout, engines: Engines, topology: Topology) -> LayoutChoice:
    """Return every layout that was considered, the chosen one first.

    Considered are, with and without expert parallelism: as many equal engines of each size as fit,
    one fewer to leave a spare, and all unequal ones that use as many GPUs as can be. Raises
    ApiaryError: LAYOUT-NONE, or the refusals that hold for every engine alike.
    """
    room = sum(gpu.healthy is not False for gpu in topology.gpus)
    search = _Search(auto, engines, topology, room, max(0, room - auto.spare))
    possible, dropped = search.run()
    if not possible:
        raise search.nothing(dropped)
    order = preference(auto, engines.deployment.profile, engines.active_share)
    facts = sorted((search.facts(cut) for cut in possible), key=order.key)
    best, *rest = facts
    chosen = _considered(best, order.why(best, rest), chosen=True)
    others = [_considered(option, order.why_not(option, best), chosen=False) for option in rest]
    return LayoutChoice(order.name, order.because, order.criteria(), (chosen, *others, *dropped))


def not_measured(choice: LayoutChoice, host: str) -> Finding:
    """Return the note that a preference chose, and that measuring decides."""
    possible = [option.name for option in choice.considered if option.verdict == "possible"]
    named = ", ".join(possible[:3]) + (" …" if len(possible) > 3 else "")
    others = (
        f"{len(possible)} others are possible ({named})" if possible else "no other is possible"
    )
    return Finding(
        "LAYOUT-NOT-MEASURED",
        host,
        f"{choice.considered[0].name} was chosen by the preference for {choice.preference}"
        f" ({choice.because}), not by a measurement; {others}",
        source="knowledge/layouts.yml",
    )


def _dropped(
    sizes: tuple[int, ...], expert_parallel: bool, reason: str, codes: tuple[str, ...]
) -> ConsideredLayout:
    name = layout_name(sizes, expert_parallel)
    return ConsideredLayout(name, sizes, expert_parallel, "dropped", reason, codes)


def _considered(facts: Facts, reason: str, chosen: bool) -> ConsideredLayout:
    return ConsideredLayout(
        name=facts.name,
        sizes=facts.sizes,
        expert_parallel=facts.expert_parallel,
        verdict="chosen" if chosen else "possible",
        reason=reason,
        weights_bytes_per_gpu=None if facts.weights is None else max(facts.weights),
        kv_tokens_per_host=facts.kv_tokens,
        max_sequences_per_host=facts.sequences,
        free_gpus=facts.free,
    )


class _Search:
    """Enumerates the layouts of one host; ``budget`` is what is left of ``room`` after spares."""

    def __init__(
        self, auto: AutoLayout, engines: Engines, topology: Topology, room: int, budget: int
    ) -> None:
        self.auto, self.engines, self.topology = auto, engines, topology
        self.room, self.budget = room, budget
        self._spans = functools.cache(self._spanning)

    def run(self) -> tuple[list[_Cut], list[ConsideredLayout]]:
        """Return the possible layouts, and those that are dropped with the reason."""
        possible: list[_Cut] = []
        dropped: list[ConsideredLayout] = []
        for expert_parallel in self._choices():
            sound = []
            for size in self._sizes():
                problem = self._problem(size, expert_parallel)
                if problem is None:
                    sound.append(size)
                if not self._same_without(size, expert_parallel):
                    dropped += filter(None, [problem or self._crowd(size, expert_parallel)])
            alone = [size for size in sound if not self._same_without(size, expert_parallel)]
            cuts = [*self._equal(alone), *self._unequal(sound)]
            possible += [_Cut(sizes, expert_parallel) for sizes in cuts]
        return possible, dropped

    def _choices(self) -> Sequence[bool]:
        """Return whether to look at layouts without and with expert parallelism."""
        if isinstance(self.auto.expert_parallel, bool):
            return (self.auto.expert_parallel,)
        return (False,) if self.engines.dense else (False, True)

    def _same_without(self, size: int, expert_parallel: bool) -> bool:
        """Say whether expert parallelism changes nothing: one GPU has no experts to spread."""
        return size == 1 and expert_parallel and self.auto.expert_parallel == "auto"

    def _sizes(self) -> Sequence[int]:
        if isinstance(self.auto.tensor_parallel_size, int):
            return (self.auto.tensor_parallel_size,)
        return range(1, len(self.topology.gpus) + 1)

    def _problem(self, size: int, expert_parallel: bool) -> ConsideredLayout | None:
        """Return why no engine of a size is possible here, or None."""
        refusals = self.engines.of(size, expert_parallel).refusals
        sizes = (size,) * max(1, self.budget // size)
        if refusals:
            codes = tuple(dict.fromkeys(finding.code for finding in refusals))
            reason = "; ".join(finding.message for finding in refusals)
            return _dropped(sizes, expert_parallel, reason, codes)
        if size > self.budget:
            return _dropped(sizes, expert_parallel, self._too_few(size), ("PLACE-TOO-FEW-GPUS",))
        return None

    def _crowd(self, size: int, expert_parallel: bool) -> ConsideredLayout | None:
        """Return why the wanted number of equal engines does not fit, or None."""
        count = self.auto.replicas
        if not isinstance(count, int) or size * count <= self.budget:
            return None
        reason = self._too_few(size * count)
        return _dropped((size,) * count, expert_parallel, reason, ("PLACE-TOO-FEW-GPUS",))

    def _too_few(self, need: int) -> str:
        text = f"needs {need} GPUs, {self.room} of {len(self.topology.gpus)} are usable"
        return text + (f" and {self.auto.spare} of them stay free" if self.auto.spare else "")

    def _equal(self, sound: Sequence[int]) -> Iterator[tuple[int, ...]]:
        """Yield equal engines: as many as fit, and one fewer to leave a spare."""
        for size in sound:
            most = self.budget // size
            counts = [most, most - 1]
            if isinstance(self.auto.replicas, int):
                counts = [self.auto.replicas]
            yield from ((size,) * count for count in counts if 1 <= count <= most)

    def _unequal(self, sound: Sequence[int]) -> Iterator[tuple[int, ...]]:
        """Yield unequal engines, largest first, that use as many GPUs as can be."""
        if self.auto.tensor_parallel_size != "auto":
            return
        sizes = sorted(sound, reverse=True)
        kinds = len(sizes) if self.room <= _ALL_PARTITIONS else 2
        count = self.auto.replicas if isinstance(self.auto.replicas, int) else None
        for total in range(self.budget, 0, -1):
            partitions = list(_partitions(total, sizes, kinds, count))
            if partitions:
                yield from (partition for partition in partitions if len(set(partition)) > 1)
                return

    def facts(self, cut: _Cut) -> Facts:
        """Return what a possible layout is compared by."""
        parts = [self.engines.of(size, cut.expert_parallel) for size in cut.sizes]
        needs = [part.memory for part in parts]
        weights = _known([need.weights_bytes_per_gpu if need else None for need in needs])
        tokens = _known([need.kv_tokens_per_engine if need else None for need in needs])
        sequences = _known([part.sequences for part in parts])
        share = None
        if weights is not None and self.engines.given:
            used = sum(size * weight for size, weight in zip(cut.sizes, weights, strict=True))
            share = used / (sum(cut.sizes) * self.engines.given)
        return Facts(
            sizes=cut.sizes,
            expert_parallel=cut.expert_parallel,
            weights=weights,
            share=share,
            kv_tokens=None if tokens is None else sum(tokens),
            sequences=None if sequences is None else sum(sequences),
            free=self.room - sum(cut.sizes),
            spanning=self._spans(cut.sizes),
        )

    def _spanning(self, sizes: tuple[int, ...]) -> int:
        placed = Placed(self.topology, Request(sizes), runner_up=False)
        crossing = [
            index
            for index, name in enumerate(placed.prices.fields)
            if name in ("extra_hives", "pcie_pairs")
        ]
        return sum(any(cost[index] for index in crossing) for cost in placed.costs)

    def nothing(self, dropped: Sequence[ConsideredLayout]) -> ApiaryError:
        """Return the refusal: what forbids every engine alike, else each layout's own reason."""
        alike = self.engines.common_refusals()
        if alike:
            return ApiaryError(*alike)
        reasons: dict[str, list[str]] = {}
        for option in dropped:
            reasons.setdefault(option.reason, []).append(option.name)
        refused = "; ".join(f"{', '.join(names)}: {reason}" for reason, names in reasons.items())
        return error(
            "LAYOUT-NONE",
            self.topology.host,
            f"no layout is possible here ({refused or self._too_few(1)})",
            changes=self.engines.remedy() or "no change would do",
        )


def _known(values: Sequence[T | None]) -> tuple[T, ...] | None:
    """Return the values where none of them is unknown."""
    numbers = tuple(value for value in values if value is not None)
    return numbers if len(numbers) == len(values) else None


def _partitions(
    total: int, sizes: Sequence[int], kinds: int, count: int | None
) -> Iterator[tuple[int, ...]]:
    """Yield the ways to write a total as a sum of sizes (falling), of at most so many kinds."""
    if total == 0:
        if not count:
            yield ()
        return
    if not sizes or not kinds or count == 0:
        return
    first, rest = sizes[0], sizes[1:]
    most = total // first if count is None else min(total // first, count)
    for times in range(most, -1, -1):
        left = None if count is None else count - times
        for tail in _partitions(total - times * first, rest, kinds - (times > 0), left):
            yield (first,) * times + tail
