# SPDX-License-Identifier: GPL-3.0-or-later

"""Host names: many of them in a few words, and texts without their own host's."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

Kind = Literal["name", "address", "PCI address", "UUID", "release"]
KINDS: tuple[Kind, ...] = ("name", "address", "PCI address", "UUID", "release")

_NUMBERED = re.compile(r"(.*?)([0-9]+)([^0-9]*)", re.DOTALL)
_HEX = "[0-9a-fA-F]"
# By kind, what a host has of its own wherever it stands: its mark, and what it looks like in two
# parts. The second begins with a letter that is rare, so that long texts are searched fast.
_LOOKS: Mapping[Kind, tuple[str, re.Pattern[str], re.Pattern[str]]] = {
    "PCI address": (
        "pci",
        re.compile(rf"(?<![0-9a-fA-F.:]){_HEX}{{4,8}}:{_HEX}{{2}}\Z"),
        re.compile(rf":{_HEX}{{2}}\.[0-7](?!\w)"),
    ),
    "UUID": (
        "uuid",
        re.compile(rf"(?<![\w-]){_HEX}{{8}}\Z"),
        re.compile(rf"-{_HEX}{{4}}-{_HEX}{{4}}-{_HEX}{{4}}-{_HEX}{{12}}(?![\w-])"),
    ),
    "release": (
        "release",
        re.compile(r"(?<![\w-])[0-9]{8}\Z"),
        re.compile(r"T[0-9]{6}Z-[0-9a-f]{8}(?![\w-])"),
    ),
}
_LONGEST = 12  # characters before the second part
_MARKS: Mapping[Kind, str] = {"name": "{host}", "address": "{address}"}


def address_of(name: str, variables: Mapping[str, Any]) -> str:
    """Return the address that other hosts reach a host at."""
    return str(variables.get("apiary_address") or variables.get("ansible_host") or name)


def fold(names: Iterable[str]) -> str:
    """Return names as an inventory's ranges, sorted: "gpu-[001:004], gpu-007".

    The last number of a name counts; expanded as Ansible does, the ranges are the names again.
    """
    runs: list[list[tuple[str, str, str]]] = []
    for name in sorted(set(names), key=_order):
        found = _NUMBERED.fullmatch(name)
        part = (found[1], found[2], found[3]) if found else (name, "", "")
        if runs and _follows(runs[-1], part):
            runs[-1].append(part)
        else:
            runs.append([part])
    return ", ".join(map(_range, runs))


def _order(name: str) -> tuple[str, str, int, str]:
    """Return what sorts names by what stands around the last number, then by it."""
    found = _NUMBERED.fullmatch(name)
    return (found[1], found[3], int(found[2]), name) if found else (name, "", 0, name)


def _follows(run: Sequence[tuple[str, str, str]], part: tuple[str, str, str]) -> bool:
    (before, first, after), last = run[0], run[-1][1]
    if not first or (before, after) != (part[0], part[2]):
        return False
    # Ansible wants both ends of a range with zeros in front to be as long.
    padded = first[0] == "0" and len(first) > 1
    following = str(int(last) + 1).zfill(len(first) if padded else 0)
    return part[1] == following and not (padded and len(following) > len(first))


def _range(run: Sequence[tuple[str, str, str]]) -> str:
    before, first, after = run[0]
    if len(run) == 1:
        return before + first + after
    return f"{before}[{first}:{run[-1][1]}]{after}"


@dataclass(frozen=True)
class Own:
    """What a host is called, wherever its texts may say so."""

    name: str
    addresses: tuple[str, ...] = ()


@dataclass(frozen=True)
class Neutral:
    """Texts without what is their host's own, and what that was, by kind."""

    texts: tuple[str, ...]
    values: tuple[tuple[Kind, tuple[str, ...]], ...]


@dataclass(frozen=True)
class _Span:
    """A part of a text that is its host's own."""

    start: int
    end: int
    kind: Kind
    value: str


def neutral(texts: Sequence[str], own: Own, kinds: Sequence[Kind] = KINDS) -> Neutral:
    """Return texts with {host}, {address}, {pci1}, {uuid1}, {release1} for what is the host's own.

    Only whole names are meant: gpu-1 is not in gpu-12. PCI addresses are numbered in ascending
    order over all of ``texts``, so that other GPUs in the same places stay other GPUs; the rest in
    the order of their first appearance.
    """
    called = _called(own, kinds)
    found = [_apart((*_named(text, called), *_looking(text, kinds))) for text in texts]
    seen: dict[Kind, dict[str, None]] = {kind: {} for kind in kinds}
    for spans in found:
        for one in spans:
            seen[one.kind][one.value] = None
    values = {
        kind: tuple(sorted(each)) if kind == "PCI address" else tuple(each)
        for kind, each in seen.items()
    }
    marks = {
        (kind, value): _MARKS.get(kind) or f"{{{_LOOKS[kind][0]}{number}}}"
        for kind, each in values.items()
        for number, value in enumerate(each, 1)
    }
    made = [_marked(text, spans, marks) for text, spans in zip(texts, found, strict=True)]
    return Neutral(tuple(made), tuple(values.items()))


def _called(own: Own, kinds: Sequence[Kind]) -> dict[str, Kind]:
    """Return what a host is called, each with its kind."""
    called: dict[str, Kind] = {}
    if "address" in kinds:
        called |= dict.fromkeys(own.addresses, "address")
    if "name" in kinds:
        short = own.name.partition(".")[0]
        # The short form of 10.0.0.1 is no name.
        names = (own.name,) if re.fullmatch(r"[0-9.]+", own.name) else (own.name, short)
        called |= dict.fromkeys(names, "name")
    called.pop("", None)
    return called


def _named(text: str, called: Mapping[str, Kind]) -> Iterator[_Span]:
    """Yield where a text calls its host by a whole word."""
    for word, kind in called.items():
        start = text.find(word)
        while start >= 0:
            end = start + len(word)
            before, after = text[max(0, start - 2) : start], text[end : end + 1]
            part_of_more = _inside(before[-1:]) or _inside(after)
            if not part_of_more and not (before[:1].isdigit() and before[1:] == "."):
                yield _Span(start, end, kind, word)
            start = text.find(word, end)


def _inside(letter: str) -> bool:
    return letter.isalnum() or (letter != "" and letter in "_-")


def _looking(text: str, kinds: Sequence[Kind]) -> Iterator[_Span]:
    return (one for one in _looks(text) if one.kind in kinds)


@functools.lru_cache(maxsize=2048)
def _looks(text: str) -> tuple[_Span, ...]:
    """Return what looks like a kind; most texts are the same on all hosts."""
    spans = []
    for kind, (_mark, first, second) in _LOOKS.items():
        for match in second.finditer(text):
            head = first.search(text, max(0, match.start() - _LONGEST), match.start())
            if head:
                value = text[head.start() : match.end()].lower()
                spans.append(_Span(head.start(), match.end(), kind, value))
    return tuple(spans)


def _apart(spans: Sequence[_Span]) -> list[_Span]:
    """Return spans in order; of those that overlap the first, and of those the longest."""
    kept: list[_Span] = []
    for one in sorted(spans, key=lambda span: (span.start, -span.end)):
        if not kept or one.start >= kept[-1].end:
            kept.append(one)
    return kept


def _marked(text: str, spans: Sequence[_Span], marks: Mapping[tuple[Kind, str], str]) -> str:
    """Return a text with a mark in place of each span."""
    if not spans:
        return text
    parts, end = [], 0
    for one in spans:
        parts += [text[end : one.start], marks[one.kind, one.value]]
        end = one.end
    return "".join((*parts, text[end:]))
