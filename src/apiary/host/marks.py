# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which GPUs and links each finding is about, for pictures and tables to mark them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ansible_collections.apiary.instinct.plugins.plugin_utils.findings import Finding
from ansible_collections.apiary.instinct.plugins.plugin_utils.topology.types import Topology

from apiary.host.pairs import Pair, board_of, boards, ordered

SEVERITIES = ("error", "warning", "info")
# Findings that name pairs whose xGMI link is not what it should be.
BROKEN = ("TOPO-XGMI-ABSENT", "TOPO-XGMI-DOWN", "TOPO-XGMI-INDIRECT")
_MANY = re.compile(r"\band \d+ more\b|…")


@dataclass(frozen=True)
class Note:
    """A finding with its number, and the boards and pairs of boards that it names.

    Both are empty for what concerns the host, or more GPUs than the message lists.
    """

    number: int
    finding: Finding
    boards: tuple[str, ...]
    pairs: tuple[tuple[str, str], ...]


def notes(topology: Topology, more: Iterable[Finding] = ()) -> list[Note]:
    """Return the findings of a topology, and more that concern it, each once, the worst first."""
    outcome = list(dict.fromkeys((*topology.findings, *more)))
    outcome.sort(key=lambda item: SEVERITIES.index(item.severity))
    every = set(boards(topology))
    names = {*every, *topology.by_key}
    longest = "|".join(re.escape(name) for name in sorted(names, key=len, reverse=True))
    pattern = rf"(?<![\w:.])(?:{longest})(?![\w#]|:\w)"
    result = []
    for number, finding in enumerate(outcome, 1):
        text = finding.message if names else ""
        ends = [
            ordered(*map(board_of, pair))
            for pair in re.findall(rf"({pattern}) – ({pattern})", text)
        ]
        rest = re.sub(rf"{pattern} – {pattern}", "", text)
        alone = [board_of(name) for name in re.findall(pattern, rest)] if names else []
        alone += [a for a, b in ends if a == b]  # partitions of one GPU
        # What names all GPUs, or more than it lists, is about the host.
        if _MANY.search(text) or (len(every) > 2 and set(alone) == every):
            ends, alone = [], []
        pairs = dict.fromkeys(pair for pair in ends if pair[0] != pair[1])
        result.append(Note(number, finding, tuple(dict.fromkeys(alone)), tuple(pairs)))
    return result


def broken_pairs(found: Iterable[Note]) -> list[tuple[str, str]]:
    """Return the pairs whose xGMI link a finding calls gone or down."""
    return [pair for note in found if note.finding.code in BROKEN for pair in note.pairs]


def marks(
    found: Sequence[Note], pairs: Sequence[Pair]
) -> tuple[dict[str, list[Note]], dict[tuple[str, str], list[Note]]]:
    """Return the findings to mark on each board and on each pair, every one where it belongs.

    A pair that is not drawn is marked on its boards; a finding about more lost links than its
    message lists is marked on those that nobody else names.
    """
    of_board: dict[str, list[Note]] = {}
    of_pair: dict[tuple[str, str], list[Note]] = {}
    drawn = {(pair.a, pair.b) for pair in pairs}
    lost = {(pair.a, pair.b) for pair in pairs if pair.kind == "broken"}
    lost -= {pair for note in found for pair in note.pairs}
    for note in found:
        alone = list(note.boards)
        here = note.pairs or (sorted(lost) if note.finding.code == "TOPO-XGMI-ABSENT" else ())
        for pair in here:
            if pair in drawn:
                of_pair.setdefault(pair, []).append(note)
            else:
                alone += pair
        for board in dict.fromkeys(alone):
            of_board.setdefault(board, []).append(note)
    return of_board, of_pair
