# SPDX-License-Identifier: GPL-3.0-or-later

"""What is wrong or remarkable with a host once it is understood, one module a topic."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from ...findings import Finding
from ..fabric import Fabric
from ..readers.pci import Slot
from ..types import Topology
from . import boards, links, partitions
from .view import View, listed

__all__ = ["check", "listed"]

_ALWAYS = (
    boards.nameless,
    boards.unusable,
    links.ports,
    links.groups,
    links.routes,
    partitions.node_unknown,
    partitions.node_stray,
    partitions.node_cores,
    partitions.modes,
    partitions.memory_mode,
    boards.slots,
    partitions.node_sizes,
    partitions.node_errors,
    boards.guest,
    boards.models,
    boards.order,
)
# A container or a cut capture shows part of a host: nothing is missed there.
_WHOLE = (boards.missing, partitions.missing, partitions.node_spread)


def check(
    topology: Topology, slots: Sequence[Slot] = (), whole: bool = True, fabric: Fabric | None = None
) -> list[Finding]:
    """Return the findings of one host; ``whole`` is False where only part of it is in view."""
    view = View(topology, tuple(slots), fabric or Fabric())
    checks = _ALWAYS + _WHOLE if whole else _ALWAYS
    return list(itertools.chain.from_iterable(evaluate(view) for evaluate in checks))
