# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Cut a whole host into replicas at once, so that the sum of their costs is the least.

Why jointly: asking for one replica after the other leaves the last ones the scraps, which is
where the allocators of the device plugins lose (docs/explanation/placement.md).
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Sequence
from functools import cache

from ansible_collections.apiary.instinct.plugins.plugin_utils.findings import Finding, error
from ansible_collections.apiary.instinct.plugins.plugin_utils.placement.binding import bind
from ansible_collections.apiary.instinct.plugins.plugin_utils.placement.types import (
    Cost,
    Placement,
    ReplicaPlacement,
    RunnerUp,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.topology.types import Topology

# Subsets of 16 GPUs are at most 12,870 a size; beyond that the exact search outgrows a second.
EXACT_UP_TO = 16
# A pair nobody knows a path for: worse than any weight a kernel prints (at most 255).
UNKNOWN_WEIGHT = 255

_Vector = tuple[int, int, int, int]
_Cut = tuple[_Vector, tuple[tuple[int, ...], ...]]
_ZERO: _Vector = (0, 0, 0, 0)


def place(
    topology: Topology,
    tensor_parallel_size: int,
    replicas: int = 1,
    busy: Collection[str] = (),
) -> Placement:
    """Return the cheapest cut of the host's usable GPUs into ``replicas`` equal sets.

    ``busy`` are GPU keys that must stay out. Ties go to the lowest BDFs, so the same host always
    gives the same placement. Raises ApiaryError: PLACE-NO-GPUS, PLACE-BAD-SIZE,
    PLACE-UNKNOWN-GPU, PLACE-TP-DIVIDES, PLACE-TOO-FEW-GPUS.
    """
    usable = _usable(topology, busy)
    _check(topology, usable, tensor_parallel_size, replicas)
    pairs = _pair_costs(topology, usable)
    findings: list[Finding] = []
    exact = len(usable) <= EXACT_UP_TO
    if exact:
        cuts = _two_best(len(usable), tensor_parallel_size, replicas, pairs)
    else:
        cuts = [_greedy(len(usable), tensor_parallel_size, replicas, pairs)]
        findings.append(
            Finding(
                "PLACE-NOT-EXACT",
                "warning",
                topology.host,
                f"{len(usable)} devices are more than the {EXACT_UP_TO} of the exact search; "
                "the cut was grown greedily",
                "check the cut, or exclude devices with --busy",
            )
        )
    vector, sets = cuts[0]
    named = [tuple(usable[index] for index in members) for members in sets]
    bindings, more = bind(topology, named)
    findings += more
    taken = set(itertools.chain(*named))
    return Placement(
        host=topology.host,
        tensor_parallel_size=tensor_parallel_size,
        replicas=tuple(
            ReplicaPlacement(
                gpus=gpus,
                cost=Cost(*_set_cost(members, pairs)),
                cpus=binding.cpus,
                memory_nodes=binding.memory_nodes,
            )
            for gpus, members, binding in zip(named, sets, bindings, strict=True)
        ),
        cost=Cost(*vector),
        exact=exact,
        free=tuple(key for key in usable if key not in taken),
        runner_up=_runner_up(cuts, usable),
        findings=tuple(findings),
    )


def _usable(topology: Topology, busy: Collection[str]) -> list[str]:
    known = topology.by_key
    for key in busy:
        if key not in known:
            raise error(
                "PLACE-UNKNOWN-GPU",
                topology.host,
                f"busy GPU {key} is not on this host, which has {', '.join(known) or 'none'}",
                "give the BDF as `apiary topology` prints it",
            )
    return [key for key, gpu in known.items() if gpu.healthy is not False and key not in busy]


def possible_cuts(usable: int) -> str:
    """Say which equal cuts a number of GPUs does allow, for the remedy of a refusal."""
    sizes = [size for size in (8, 4, 2, 1) if size <= usable]
    cuts = (f"TP{size} × {usable // size} leaves {usable % size} free" for size in sizes)
    return "; ".join(cuts) or "nothing"


def _check(topology: Topology, usable: Sequence[str], size: int, replicas: int) -> None:
    host, installed = topology.host, len(topology.gpus)
    if not installed:
        raise error(
            "PLACE-NO-GPUS",
            host,
            "the topology has no GPUs, expected at least one",
            "see the topology's own findings; check that the amdgpu driver is loaded",
        )
    if size < 1 or replicas < 1:
        raise error(
            "PLACE-BAD-SIZE",
            host,
            f"tensor_parallel_size {size} × {replicas} replicas; both must be at least 1",
            "correct the layout",
        )
    # A host that lost GPUs is still one of 2, 4, 8 or 16: TP4 stays a fair wish with 7 left.
    nominal = 1 << (installed - 1).bit_length()
    if size <= installed and installed % size and nominal % size:
        raise error(
            "PLACE-TP-DIVIDES",
            host,
            f"tensor_parallel_size {size} does not divide the host's {installed} GPUs",
            f"choose a layout that tiles the host: {possible_cuts(len(usable))}",
        )
    if size * replicas > len(usable):
        lost = installed - len(usable)
        raise error(
            "PLACE-TOO-FEW-GPUS",
            host,
            f"TP{size} × {replicas} needs {size * replicas} GPUs, {len(usable)} are usable"
            + (f" ({lost} of {installed} busy or unhealthy)" if lost else ""),
            f"possible here: {possible_cuts(len(usable))}",
        )


def _pair_costs(topology: Topology, keys: Sequence[str]) -> list[list[_Vector]]:
    """Return the cost of each pair; an unreported xGMI weight counts as the worst reported one."""
    gpus, links = topology.by_key, {(link.a, link.b): link for link in topology.links}
    weights = [link.weight for link in topology.links if link.type == "xgmi" and link.weight]
    worst = max(weights, default=0)
    costs: list[list[_Vector]] = [[_ZERO] * len(keys) for _key in keys]
    for (i, a), (j, b) in itertools.combinations(enumerate(keys), 2):
        link = links.get((min(a, b), max(a, b)))
        nodes = (gpus[a].numa_node, gpus[b].numa_node)
        crossing = int(None not in nodes and nodes[0] != nodes[1])
        if link is not None and link.type == "xgmi":
            vector = (0, 0, link.weight or worst, crossing)
        else:
            weight = link.weight if link is not None else None
            vector = (1, UNKNOWN_WEIGHT if weight is None else weight, 0, crossing)
        costs[i][j] = costs[j][i] = vector
    return costs


def _add(left: _Vector, right: _Vector) -> _Vector:
    return (left[0] + right[0], left[1] + right[1], left[2] + right[2], left[3] + right[3])


def _set_cost(members: Sequence[int], pairs: list[list[_Vector]]) -> _Vector:
    total = _ZERO
    for a, b in itertools.combinations(members, 2):
        total = _add(total, pairs[a][b])
    return total


def _two_best(count: int, size: int, replicas: int, pairs: list[list[_Vector]]) -> list[_Cut]:
    """Return the best cut and the second best, exactly.

    The lowest undecided GPU either stays free or leads the next set, so each cut is met once;
    what is left of the host is a bit mask, and equal masks are solved once.
    """
    costs = {
        members: _set_cost(members, pairs) for members in itertools.combinations(range(count), size)
    }

    @cache
    def best(mask: int, wanted: int) -> tuple[_Cut, ...]:
        if wanted == 0:
            return ((_ZERO, ()),)
        left = [index for index in range(count) if mask >> index & 1]
        if len(left) < size * wanted:
            return ()
        lowest, rest = left[0], left[1:]
        found = list(best(mask & ~(1 << lowest), wanted))
        for others in itertools.combinations(rest, size - 1):
            members = (lowest, *others)
            remaining = mask
            for index in members:
                remaining &= ~(1 << index)
            cost = costs[members]
            found += [
                (_add(cost, total), (members, *sets)) for total, sets in best(remaining, wanted - 1)
            ]
        return tuple(sorted(found)[:2])

    return list(best((1 << count) - 1, replicas))


def _greedy(count: int, size: int, replicas: int, pairs: list[list[_Vector]]) -> _Cut:
    """Grow one set after the other from its best seed; for hosts beyond the exact search."""
    free = set(range(count))
    sets: list[tuple[int, ...]] = []
    for _replica in range(replicas):
        candidates = []
        for seed in sorted(free):
            members = [seed]
            while len(members) < size:
                members.append(
                    min(
                        free.difference(members),
                        key=lambda index: (_set_cost([*members, index], pairs), index),
                    )
                )
            candidates.append((_set_cost(members, pairs), tuple(sorted(members))))
        _cost, chosen = min(candidates)
        sets.append(chosen)
        free.difference_update(chosen)
    sets.sort()
    total = _ZERO
    for members_ in sets:
        total = _add(total, _set_cost(members_, pairs))
    return total, tuple(sets)


def _runner_up(cuts: Sequence[_Cut], usable: Sequence[str]) -> RunnerUp | None:
    if len(cuts) < 2:
        return None
    (first, _sets), (second, sets) = cuts
    reason = "equal cost; the cut with the lowest BDFs is taken"
    for name, ours, theirs in zip(Cost.__dataclass_fields__, first, second, strict=True):
        if ours != theirs:
            reason = f"{name} {theirs} against {ours}"
            break
    named = tuple(tuple(usable[index] for index in members) for members in sets)
    return RunnerUp(replicas=named, cost=Cost(*second), reason=reason)
