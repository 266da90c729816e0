# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Secrets that lines show together: values below a name in YAML, keys cut by a log: no I/O."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

# NAME: or NAME =, alone at the beginning of a line; what follows is the value, to the line's end.
_LINE = re.compile(
    r"^(?P<indent>[ \t]*)(?P<item>(?:- )*)(?:export )?(?P<quote>'?)(?P<name>[\w.-]{1,80})"
    r"(?P=quote)(?P<sign>[ \t]*=[ \t]*|:(?=\s)[ \t]*)(?P<rest>[^\n]*)$",
    re.MULTILINE,
)
_BLOCK = re.compile(r"(?:[|>][+-]?[0-9]?[+-]?|!\S+(?:[ \t]+[|>][+-]?[0-9]?)?)?[ \t]*(?:#.*)?")
_WHOLE = re.compile(r"\"(?:[^\"\\]|\\.)*\"|'(?:[^']|'')*'|\S.*?(?=[ \t]+#|[ \t\r]*$)")
_PART = re.compile(
    r"(?:- )*(?:(?P<quote>[\"']?)[\w.-]+(?P=quote):(?:[ \t]+|$))?(?P<value>\S.*?)?[ \t\r]*$"
)
_FLOW = re.compile(r"(?P<value>[^\s,\[\]](?:[^,\[\]]*[^\s,\[\]])?)")
_FLOW_VALUE = re.compile(
    r":\s+(?P<value>\"[^\"]*\"|'[^']*'|[^\s,{}\[\]](?:[^,{}\[\]]*[^\s,{}\[\]])?)"
)
_END = re.compile(r"-----END (?:[A-Z0-9]+ )*PRIVATE KEY")
_BEGIN = re.compile(r"-----BEGIN (?:[A-Z0-9]+ )*PRIVATE KEY")
_KEY_LINE = re.compile(r"(?P<value>[A-Za-z0-9+/=]{16,})[\"',\\nr\s]*$")
_MOST = 400
# NAME=['VALUE', …, as Python and JSON write a list in a log.
_LIST = re.compile(r"\\*[\"']?\s*[:=]\s*\[\s*(?=\\*[\"'])")
_ITEM = re.compile(
    r"(?P<quote>\\*[\"'])(?P<value>(?:(?!(?<!\\)(?P=quote))[^\n]){1,4096})(?<!\\)(?P=quote)"
    r"(?P<more>\s*,\s*)?"
)


def named_lines(text: str, secret: Callable[[str], bool]) -> Iterator[tuple[str, int, int]]:
    """Yield names and where their values stand: beside a line's first word, in lines below it."""
    at = 0
    for match in _LINE.finditer(text):
        if match.start() < at or not secret(match["name"]):
            continue
        rest, begin, yaml = match["rest"], match.start("rest"), ":" in match["sign"]
        if yaml and _BLOCK.fullmatch(rest):
            for one, end in _below(text, match.end(), len(match["indent"] + match["item"])):
                for span in _values(text, one, end):
                    yield match["name"], *span
                at = end
        elif yaml and rest:
            for span in _values(text, begin, match.end()):
                yield match["name"], *span
        elif rest and rest[0] not in "{|>&*!":
            whole = re.match(r"\"[^\"]*\"|'[^']*'|\S+", rest)
            if whole:
                yield match["name"], *_inner(text, begin, begin + whole.end())


def _values(text: str, begin: int, end: int) -> Iterator[tuple[int, int]]:
    """Yield the values of one line of YAML: a scalar to the line's end, or those of a list."""
    part = text[begin:end]
    if part[0] in "[{" and not part.startswith(("{{", "[removed:")):
        for one in (_FLOW_VALUE if part[0] == "{" else _FLOW).finditer(part):
            yield _inner(text, begin + one.start("value"), begin + one.end("value"))
    elif part[0] not in "|>&*!":
        whole = _WHOLE.match(part)
        if whole:
            yield _inner(text, begin, begin + whole.end())


def _inner(text: str, begin: int, end: int) -> tuple[int, int]:
    quoted = end - begin > 1 and text[begin] in "\"'" and text[end - 1] == text[begin]
    return (begin + 1, end - 1) if quoted else (begin, end)


def _below(text: str, start: int, indent: int) -> Iterator[tuple[int, int]]:
    """Yield the values of the lines that belong to a name; a list may stand as far left as it."""
    at = start + 1
    while at < len(text):
        end = text.find("\n", at)
        end = len(text) if end < 0 else end
        line = text[at:end]
        plain = line.lstrip(" ")
        depth = len(line) - len(plain)
        if plain.strip() and (depth < indent or (depth == indent and not plain.startswith("- "))):
            return
        part = _PART.match(plain)
        if part and part["value"] and not part["value"].startswith("#"):
            yield at + depth + part.start("value"), at + depth + part.end("value")
        at = end + 1


def listed(text: str, end: int) -> Iterator[tuple[int, int]]:
    """Yield where the quoted values of a list stand that follows a name, which ends at END."""
    opened = _LIST.match(text, end)
    item = _ITEM.match(text, opened.end()) if opened else None
    while item:
        yield item.span("value")
        item = _ITEM.match(text, item.end()) if item["more"] else None


def cut_keys(text: str) -> Iterator[tuple[int, int]]:
    """Yield the lines of private keys whose beginning is cut off, by their end."""
    for match in _END.finditer(text):
        # Its own beginning is before it, unless another key's end is nearer.
        begun = [one.start() for one in _BEGIN.finditer(text, max(0, match.start() - 65536))]
        if any(one < match.start() for one in begun):
            continue
        found: list[tuple[int, int]] = []
        end = text.rfind("\n", 0, match.start())
        while end > 0 and len(found) < _MOST:
            start = text.rfind("\n", 0, end) + 1
            line = _KEY_LINE.search(text[start:end])
            if line is None:
                break
            found.append((start + line.start("value"), start + line.end("value")))
            end = start - 1
        yield from reversed(found)
