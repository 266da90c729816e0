# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What hosts of one kind share: drivers, kernels, firmware; and who does not share it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from .outliers import HEALTH, Peer, facts_text, outliers
from .types import Odd, Shared, Value

_SILENT = "not told"


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
        Shared(kind, name, _values(values))
        for kind, facts in sorted(kinds.items())
        for name, values in facts.items()
    ]
    return tuple(sorted(found, key=lambda one: len(one.values) == 1))


def _values(values: Mapping[str, list[str]]) -> tuple[Value, ...]:
    ordered = sorted(values.items(), key=lambda one: (-len(one[1]), one[0]))
    return tuple(Value(value, tuple(hosts)) for value, hosts in ordered)


def odd_of(peers: Sequence[Peer]) -> dict[str, tuple[Odd, ...]]:
    """Return, by host, what it does not share with its peers; what its state says is left out."""
    found: dict[str, list[Odd]] = {}
    for one in outliers(peers)[0]:
        if one.fact == HEALTH:
            continue
        for host in one.hosts:
            told = Odd(one.fact, one.value or _SILENT, one.expected, one.agree)
            found.setdefault(host, []).append(told)
    return {host: tuple(each) for host, each in found.items()}
