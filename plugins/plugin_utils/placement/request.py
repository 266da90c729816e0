# SPDX-License-Identifier: GPL-3.0-or-later

"""What a host can be asked for: the request checked against it, and what would be possible."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from ..findings import ApiaryError, error
from ..topology.types import Topology
from .costs import COSTS
from .types import Request


@dataclass(frozen=True)
class Wanted:
    """A request in the host's own terms: usable GPU keys in BDF order, and positions in them.

    ``kept`` says of each replica whether it keeps all of the GPUs it has now.
    """

    usable: tuple[str, ...]
    required: tuple[tuple[int, ...], ...]
    kept: tuple[bool, ...]


def wanted(topology: Topology, request: Request) -> Wanted:
    """Return what the host must give.

    Raises ApiaryError: PLACE-NO-GPUS, PLACE-BAD-SIZE, PLACE-UNKNOWN-COST, PLACE-UNKNOWN-GPU,
    PLACE-REQUIRED, PLACE-TOO-FEW-GPUS.
    """
    host = topology.host
    if not topology.gpus:
        raise error("PLACE-NO-GPUS", host, "the topology has no GPUs, expected at least one")
    if request.cost not in COSTS:
        raise error(
            "PLACE-UNKNOWN-COST",
            host,
            f"there is no cost function {request.cost!r}",
            costs=", ".join(COSTS),
        )
    if not request.sizes or min(request.sizes) < 1:
        sizes = ", ".join(map(str, request.sizes)) or "none"
        raise error(
            "PLACE-BAD-SIZE",
            host,
            f"the wanted sizes are {sizes}; at least one replica, each of at least one GPU",
        )
    names = _Names(topology)
    busy = {key for name in request.busy for key in names.keys(name, "busy")}
    gpus = topology.by_key
    usable = tuple(
        key for key in sorted(gpus) if gpus[key].healthy is not False and key not in busy
    )
    required = _required(topology, request, names, busy)
    _check_room(topology, request, len(usable))
    retained, members = _kept(request, names, set(usable), required)
    position = {key: place for place, key in enumerate(usable)}
    return Wanted(
        usable=usable,
        required=tuple(tuple(sorted(position[key] for key in keys)) for keys in members),
        kept=retained,
    )


class _Names:
    """Finds the keys that an operator's spelling of a GPU means."""

    def __init__(self, topology: Topology) -> None:
        self.host = topology.host
        self.known = {key.lower(): [key] for key in topology.by_key}
        for key, gpu in topology.by_key.items():
            if gpu.bdf is not None and gpu.bdf != key:  # a BDF stands for all of its partitions
                self.known.setdefault(gpu.bdf.lower(), []).append(key)

    def keys(self, name: str, what: str) -> list[str]:
        matches = self.known.get(name.lower()) or self.known.get(f"0000:{name}".lower())
        if matches is None:
            names = ", ".join(key for keys in self.known.values() for key in keys)
            raise error(
                "PLACE-UNKNOWN-GPU",
                self.host,
                f"{what} GPU {name} is not on this host, which has {names or 'none'}",
            )
        return matches


def _required(
    topology: Topology, request: Request, names: _Names, busy: Collection[str]
) -> list[list[str]]:
    """Return the keys that each replica must have; refuse what contradicts itself."""
    sizes = request.sizes

    def refuse(message: str) -> ApiaryError:

        return error("PLACE-REQUIRED", topology.host, message)

    if len(request.require) > len(sizes):
        raise refuse(f"GPUs are required for {len(request.require)} replicas of {len(sizes)}")
    required = [
        list(dict.fromkeys(key for name in requested for key in names.keys(name, "required")))
        for requested in request.require
    ]
    required += [[] for _replica in range(len(sizes) - len(required))]
    gpus = topology.by_key
    owners = Counter(key for keys in required for key in keys)
    for replica, keys in enumerate(required):
        for key in keys:
            if key in busy or gpus[key].healthy is False:
                state = "busy" if key in busy else "unusable"
                raise refuse(f"replica {replica} requires {key}, which is {state}")
            if owners[key] > 1:
                raise refuse(f"{key} is required by {owners[key]} replicas")
        if len(keys) > sizes[replica]:
            raise refuse(f"replica {replica} of {sizes[replica]} GPUs requires {len(keys)}")
    return required


def _kept(
    request: Request, names: _Names, usable: Collection[str], required: Sequence[Sequence[str]]
) -> tuple[tuple[bool, ...], list[list[str]]]:
    """Return which replicas keep what they have, and the GPUs that each must have for it.

    A replica stays where all of its GPUs are usable, nobody requires one of them for another
    and its size is the same; one that can't stay is placed anew.
    """
    retained = [False] * len(request.sizes)
    members = [list(keys) for keys in required]
    taken = {key: replica for replica, keys in enumerate(required) for key in keys}
    for replica, held in enumerate(request.keep[: len(retained)]):
        keys = [key for name in held for key in names.known.get(name.lower(), [])]
        free = all(key in usable and taken.get(key, replica) == replica for key in keys)
        if (
            len(held) == len(set(keys)) == request.sizes[replica]
            and free
            and set(required[replica]) <= set(keys)
        ):
            retained[replica] = True
            members[replica] = keys
            taken.update(dict.fromkeys(keys, replica))
    return tuple(retained), members


def possible_cuts(usable: int, sizes: Sequence[int]) -> str:
    """Say which cuts a number of GPUs does allow, near what was wanted."""
    options: list[str] = []
    size = max(sizes, default=1)
    while size:
        count = usable // size
        if count:
            options.append(f"TP{size} × {count} leaves {usable - size * count or 'none'} free")
        size = (1 << (size - 1).bit_length()) // 2  # the next power of two below
    return "; ".join(options) or "nothing"


def spelled(sizes: Sequence[int]) -> str:
    """Return sizes as people write them: `TP4 × 2 + TP2 × 1`."""
    counts = Counter(sizes)
    if len(counts) == 1:
        return f"TP{sizes[0]} × {len(sizes)}"
    return " + ".join(f"TP{size} × {count}" for size, count in counts.items())


def _check_room(topology: Topology, request: Request, usable: int) -> None:
    need = sum(request.sizes)
    if need <= usable:
        return
    installed = len(topology.gpus)
    healthy = sum(gpu.healthy is not False for gpu in topology.gpus)
    state = f"{healthy} GPUs healthy"
    if healthy < installed:
        state = f"{healthy} of {installed} GPUs healthy"
    if usable < healthy:
        state += f", {usable} of them not busy"
    raise error(
        "PLACE-TOO-FEW-GPUS",
        topology.host,
        f"{spelled(request.sizes)} impossible: it needs {need}, {state}",
        cuts=possible_cuts(usable, request.sizes),
    )
