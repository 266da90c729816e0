# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What happens to output on its way: lines are cut, lost, repeated, mixed; characters change."""

from __future__ import annotations

import random
import string
from collections.abc import Callable
from dataclasses import dataclass

ALPHABET = string.ascii_letters + string.digits + '    :.,-_/[]{}()=|"#\t'


# Of terminals and of pages that output is pasted into.
WIDTHS = (40, 50, 60, 64, 72, 80, 100, 120, 132)


@dataclass(frozen=True)
class Damaged:
    """A damaged text; ``lines`` are those that changed, before and after, ``characters`` how many.

    What is read of changed lines is theirs to say; nothing else may be read otherwise.
    """

    text: str
    lines: str
    characters: int


Damage = Callable[[random.Random, str, str], Damaged]


def _span(rng: random.Random, count: int) -> tuple[int, int]:
    first = rng.randrange(count)
    return first, min(count, first + 1 + int(rng.expovariate(0.15)))


def cut_end(rng: random.Random, text: str, _other: str) -> Damaged:
    """The end is missing, from anywhere."""
    place = rng.randrange(len(text))
    last = text[:place].rsplit("\n", 1)[-1]
    return Damaged(text[:place], last, len(text) - place)


def cut_start(rng: random.Random, text: str, _other: str) -> Damaged:
    """The beginning is missing, from anywhere."""
    place = rng.randrange(len(text))
    return Damaged(text[place:], text[place:].split("\n", 1)[0], place)


def drop_lines(rng: random.Random, text: str, _other: str) -> Damaged:
    """Lines in the middle are missing."""
    lines = text.split("\n")
    first, end = _span(rng, len(lines))
    gone = "\n".join(lines[first:end])
    return Damaged("\n".join(lines[:first] + lines[end:]), gone, len(gone))


def drop_many(rng: random.Random, text: str, _other: str) -> Damaged:
    """Each line is missing with some chance."""
    share = rng.choice((0.05, 0.2, 0.5))
    lines = text.split("\n")
    kept = [line for line in lines if rng.random() > share]
    return Damaged("\n".join(kept), "", len(text) - sum(map(len, kept)))


def repeat_lines(rng: random.Random, text: str, _other: str) -> Damaged:
    """Some lines come again, elsewhere or behind themselves."""
    lines = text.split("\n")
    first, end = _span(rng, len(lines))
    again = lines[first:end]
    at = rng.choice((end, rng.randrange(len(lines))))
    return Damaged(
        "\n".join(lines[:at] + again + lines[at:]), "\n".join(again), sum(map(len, again))
    )


def swap_lines(rng: random.Random, text: str, _other: str) -> Damaged:
    """Two lines have changed places."""
    lines = text.split("\n")
    a, b = rng.randrange(len(lines)), rng.randrange(len(lines))
    lines[a], lines[b] = lines[b], lines[a]
    return Damaged("\n".join(lines), f"{lines[a]}\n{lines[b]}", len(lines[a]) + len(lines[b]))


def _touched(text: str, new: list[str], places: list[int]) -> str:
    """The lines around places of text, as they were and as they are."""
    joined = "".join(new)
    result = []
    shift = 0
    for place in sorted(places):
        start, end = text.rfind("\n", 0, place) + 1, text.find("\n", place)
        result.append(text[start : end if end >= 0 else len(text)])
        now = sum(map(len, new[:place])) + shift
        start, end = joined.rfind("\n", 0, now) + 1, joined.find("\n", now)
        result.append(joined[start : end if end >= 0 else len(joined)])
    return "\n".join(result)


def flip(rng: random.Random, text: str, _other: str) -> Damaged:
    """One character, or a few, are others."""
    places = [rng.randrange(len(text)) for _time in range(rng.choice((1, 1, 1, 2, 5)))]
    new = list(text)
    for place in places:
        new[place] = rng.choice(ALPHABET)
    return Damaged("".join(new), _touched(text, new, places), len(places))


def lose(rng: random.Random, text: str, _other: str) -> Damaged:
    """One character, or a few, are missing; line ends too."""
    places = [rng.randrange(len(text)) for _time in range(rng.choice((1, 1, 3)))]
    new = list(text)
    for place in places:
        new[place] = ""
    return Damaged("".join(new), _touched(text, new, places), len(places))


def noise(rng: random.Random, text: str, _other: str) -> Damaged:
    """Many characters are others."""
    share = rng.choice((0.02, 0.1, 0.4))
    new = [rng.choice(ALPHABET) if rng.random() < share else one for one in text]
    changed = sum(a != b for a, b in zip(new, text, strict=True))
    return Damaged("".join(new), text + "\n" + "".join(new), changed)


def narrow(rng: random.Random, text: str, _other: str) -> Damaged:
    """Every line ends at the terminal's width."""
    width = rng.choice(WIDTHS)
    kept = [line[:width] for line in text.split("\n")]
    return Damaged("\n".join(kept), "", len(text) - len("\n".join(kept)))


def wrap(rng: random.Random, text: str, _other: str) -> Damaged:
    """Every line goes on in the next one at the terminal's width."""
    width = rng.choice(WIDTHS)
    parts = [
        line[start : start + width]
        for line in text.split("\n")
        for start in range(0, max(len(line), 1), width)
    ]
    longer = sum(len(line) for line in text.split("\n") if len(line) > width)
    return Damaged("\n".join(parts), "", longer)


def lose_columns(rng: random.Random, text: str, _other: str) -> Damaged:
    """Every line lacks the same columns."""
    start = rng.randrange(4, 60)
    end = start + rng.randrange(1, 30)
    kept = [line[:start] + line[end:] for line in text.split("\n")]
    new = "\n".join(kept)
    return Damaged(new, f"{text}\n{new}", len(text) - len(new))


def interleave(rng: random.Random, text: str, other: str) -> Damaged:
    """Lines of two hosts that were written to one file at once."""
    mine, theirs = text.split("\n"), other.split("\n")
    mixed = []
    while mine or theirs:
        source = mine if mine and (not theirs or rng.random() < 0.5) else theirs
        mixed += [source.pop(0) for _line in range(min(len(source), rng.choice((1, 3, 10))))]
    return Damaged("\n".join(mixed), "", len(other))


def append(_rng: random.Random, text: str, other: str) -> Damaged:
    """The output of another host is in the same file."""
    return Damaged(text + other, "", len(other))


WORDS = ("", "N/A", "-1", "XXXX", "None", "9" * 30, "0", "...", "\ufffd", "unknown")


def word(rng: random.Random, text: str, _other: str) -> Damaged:
    """A word is another."""
    lines = text.split("\n")
    place = rng.randrange(len(lines))
    old = lines[place]
    chosen = rng.choice(old.split() or [""])
    lines[place] = old.replace(chosen, rng.choice(WORDS))
    return Damaged("\n".join(lines), f"{old}\n{lines[place]}", max(len(chosen), 1))


STRAY = (
    "[ 1234.567890] amdgpu 0000:05:00.0: amdgpu: ring gfx timeout",
    "WARNING: AMD GPU device(s) is/are in a low-power state. Check power control/runtime_status",
    "get_link_weight_topology, Not supported on the given system",
    "ERROR: GPU[0]\t: Cannot read Link Weight: Not supported on this machine",
    "root@gpu-001:~# ",
    "srun: error: nid200001: task 0: Exited with exit code 2",
    "\x1b[3m\x1b[0m",
    "{",
    "[]",
    "...",
    "Legend:",
    "====",
)


def stray(rng: random.Random, text: str, _other: str) -> Damaged:
    """A line of something else stands between."""
    lines = text.split("\n")
    line = rng.choice(STRAY)
    lines.insert(rng.randrange(len(lines)), line)
    return Damaged("\n".join(lines), line, len(line))


DAMAGES: tuple[Damage, ...] = (
    cut_end,
    cut_start,
    drop_lines,
    drop_many,
    repeat_lines,
    swap_lines,
    flip,
    lose,
    noise,
    narrow,
    wrap,
    lose_columns,
    interleave,
    append,
    word,
    stray,
)
# What launchers and people put before every line; nothing of the output is lost.
PREFIXES: tuple[tuple[str, Callable[[int], str]], ...] = (
    ("srun --label", lambda number: "0: "),
    ("srun --label, two digits", lambda number: "00: "),
    ("pdsh", lambda number: "gpu-001: "),
    ("kubectl logs --timestamps", lambda number: f"2026-11-21T10:00:{number % 60:02d}.123456789Z "),
    ("grep -n", lambda number: f"{number + 1}:"),
    ("nl", lambda number: f"{number + 1:>6}\t"),
    ("indented", lambda number: "    "),
    ("quoted", lambda number: "> "),
    ("ansible-like", lambda number: "    | "),
)
