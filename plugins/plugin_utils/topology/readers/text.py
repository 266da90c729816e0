# SPDX-License-Identifier: GPL-3.0-or-later

"""What every tool's output has in common: JSON in it, ways to say "unknown", identifiers."""

from __future__ import annotations

import json
import re
from typing import Any

_ELISION = re.compile(
    r"^[ \t]*+(?:\.\.\.|…|\[output truncated\]|\[\.\.\.\]"
    r"|[-=<>\[(]{0,80}+[ \t]{0,80}+(?:snip|(?:[\w ]{1,40} )?(?:snipped|omitted|truncated))"
    r"[-=<>\]) \t]{0,80}+)[ \t,]*+$",
    re.MULTILINE | re.IGNORECASE,
)
_BDF = re.compile(
    r"(?<![0-9A-Fa-f:.])(?:([0-9A-Fa-f]{4,8}):)?([0-9A-Fa-f]{2}):([01][0-9A-Fa-f])\.([0-7])(?![0-9])"
)
_INTEGER = re.compile(r"[+-]?\d{1,20}|0[xX][0-9A-Fa-f]{1,16}")
_MISSING = frozenset(
    ("", "n/a", "na", "none", "null", "nan", "xxxx", "unknown", "unsupported", "not supported", "-")
)
_UNIQUE = re.compile(r"GPU-([0-9a-f]{16})|(?:0x)?0{0,4}([1-9a-f][0-9a-f]{11,15})", re.IGNORECASE)
# What the libraries return for "no value" in 16, 32 and 64 unsigned bits.
_SENTINELS = frozenset((2**16 - 1, 2**32 - 1, 2**64 - 1))


def elided(text: str) -> bool:
    """Say whether somebody left lines out and marked it ("...", "[output truncated]")."""
    return bool(_ELISION.search(text))


class DamagedJsonError(ValueError):
    """Text that starts as JSON and does not end as such."""


def json_documents(text: str) -> list[Any]:
    """Return every JSON object and array in text that may have lines of other text around them."""
    return [document for _start, _end, document in json_spans(text)]


def json_spans(text: str) -> list[tuple[int, int, Any]]:
    """Return every JSON object and array with where it begins and ends in the text.

    Raises DamagedJsonError where a document begins and is cut or malformed: half a document is not
    a smaller one.
    """
    decoder = json.JSONDecoder(object_pairs_hook=_distinct)
    documents: list[tuple[int, int, Any]] = []
    position = 0
    while (start := _json_start(text, position)) is not None:
        try:
            document, position = decoder.raw_decode(text, start)
        except (ValueError, RecursionError) as problem:
            raise DamagedJsonError(str(problem)) from problem
        documents.append((start, position, document))
    return documents


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) < len(pairs):
        raise ValueError("a name stands twice in one object")
    return values


# At the start of a line, or where no other text looks like it: `GPU[0]` is not an array.
_START = re.compile(
    r"""^[ \t]*(\{\s*["}]|\[\s*[\[\]{"])|(\{\s*"(?:card\d|system|gpu|schema)|\[\s*\{\s*"gpu")""",
    re.MULTILINE,
)


def _json_start(text: str, position: int) -> int | None:
    match = _START.search(text, position)
    return match.start(match.lastindex or 0) if match else None


def integer(value: object) -> int | None:
    """Return a whole number, or None where the tool says unknown in any of its ways."""
    if isinstance(value, str):
        value = value.strip()
        if not _INTEGER.fullmatch(value):
            return None
        value = int(value, 0 if value[:2] in ("0x", "0X") else 10)
    if isinstance(value, bool) or not isinstance(value, int) or value in _SENTINELS:
        return None
    return value


def known(value: object) -> str | None:
    """Return a value as text, or None where the tool says unknown in any of its ways."""
    if not isinstance(value, (str, int)) or isinstance(value, bool):
        return None
    text = str(value).strip()
    return None if text.lower() in _MISSING else text


def natural(value: object) -> int | None:
    """Return a whole number from 0 up, else None (NUMA -1 is "none", not a node)."""
    number = integer(value)
    return number if number is not None and number >= 0 else None


def bus_address(value: object) -> str | None:
    """Return a PCI address as `dddd:bb:dd.f` in lower case; the domain defaults to 0000."""
    match = _BDF.search(value) if isinstance(value, str) else None
    if match is None:
        return None
    domain, bus, device, function = match.groups()
    return f"{int(domain or '0', 16):04x}:{bus}:{device}.{function}".lower()


def hexadecimal(value: object, digits: int) -> str | None:
    """Return `0x74A5` or `74a5` as lower-case digits of fixed width; None for unknown and 0."""
    text = known(value)
    if text is None or not re.fullmatch(r"(?:0[xX])?[0-9A-Fa-f]{1,16}", text):
        return None
    number = int(text, 16)
    whole = digits > 4 or len(text) in (4, 6)  # an id of PCI is printed with all its digits
    return f"{number:0{digits}x}" if number and whole and len(f"{number:x}") <= digits else None


def unique_id(value: object) -> str | None:
    """Return a GPU's unique id as 16 hexadecimal digits, from `0x…`, `GPU-…` or bare digits.

    They are random 64 bits, and behind `GPU-` padded: of fewer the rest is lost.
    """
    text = known(value)
    match = _UNIQUE.fullmatch(text or "")
    return hexadecimal(match.group(1) or match.group(2), 16) if match else None


def partition_modes(text: object) -> tuple[str | None, str | None]:
    """Return compute and memory mode named anywhere in a text ("NPS1, SPX, 0", "CPX/NPS4")."""
    modes = str(text).upper() if isinstance(text, str) else ""
    compute = re.search(r"\b([SDTQC]PX)\b", modes)
    memory = re.search(r"\b(NPS\d)\b", modes)
    return (compute.group(1) if compute else None, memory.group(1) if memory else None)


def virtual(name: object) -> bool | None:
    """Return True of a product name that says so (`AMD Instinct MI300X VF`); others say nothing."""
    return True if isinstance(name, str) and re.search(r"\bVF\b", name) else None
