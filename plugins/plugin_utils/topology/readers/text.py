# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What every tool's output has in common: damage in transit, ways to say "unknown", identifiers."""

from __future__ import annotations

import json
import re
import textwrap
from typing import Any

_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b[@-Z\\-_]")
_LABEL = re.compile(r"^ *(\d{1,6}):(?: (.*)|)$")  # not the domain of 0000:05:00.0
# pdsh, clush and dsh write the host's name; words in capitals are levels of messages.
_HOST_LABEL = re.compile(r"^(?![A-Z_]+:|\w*(?:Error|Exception|_smi\.py):)([\w.-]+):(?: (.*)|)$")
_QUOTED = re.compile(r"^> ?", re.MULTILINE)
# What `srun --label` leaves without a label: its own complaints and the shell's prompt.
_UNLABELLED = re.compile(r"^(?:srun|slurmstepd|clush|pdsh@\S+): |^\S*[$#%>] ")
_ELISION = re.compile(r"^[ \t]*(?:\.\.\.|…|\[output truncated\]|\[\.\.\.\])[ \t,]*$", re.MULTILINE)
_BDF = re.compile(
    r"(?<![0-9A-Fa-f:.])(?:([0-9A-Fa-f]{4,8}):)?([0-9A-Fa-f]{2}):([01][0-9A-Fa-f])\.([0-7])(?![0-9])"
)
_INTEGER = re.compile(r"[+-]?\d{1,20}|0[xX][0-9A-Fa-f]{1,16}")
_MISSING = frozenset(
    ("", "n/a", "na", "none", "null", "nan", "xxxx", "unknown", "unsupported", "not supported", "-")
)
# What the libraries return for "no value" in 16, 32 and 64 unsigned bits.
_SENTINELS = frozenset((2**16 - 1, 2**32 - 1, 2**64 - 1))


def clean(text: str) -> str:
    """Return text without what terminals, schedulers and web pages did to it.

    Removes the byte order mark, ANSI escapes, quoting, common indentation and the label of one
    `srun --label` task, and turns CRLF and no-break spaces into LF and spaces.
    """
    text = _ESCAPES.sub("", text.lstrip("\ufeff"))
    text = text.replace("\r\n", "\n").replace("\r", "\n").replace("\x00", "")
    # "Â " is a no-break space that was decoded as Latin-1.
    text = text.replace("Â\u00a0", " ").replace("\u00a0", " ").replace("\u202f", " ")
    lines = [line for line in text.splitlines() if line.strip()]
    if lines and all(line.startswith(">") for line in lines):
        text = _QUOTED.sub("", text)
    tasks = labelled(text)
    # Hosts that print the same are several hosts still; tasks are often on one.
    if len(tasks) == 1 or (all(map(str.isdecimal, tasks)) and len(set(tasks.values())) == 1):
        text = next(iter(tasks.values()))
    return textwrap.dedent(text)


def labelled(text: str) -> dict[str, str]:
    """Return the output of each task or host where a launcher wrote its label before all lines.

    That is `srun --label` (a number) or pdsh and the like (a name); else nothing is returned.
    Each task may see other GPUs, so what several of them printed is no one output.
    """
    lines = text.splitlines()
    for pattern in (_LABEL, _HOST_LABEL):
        tasks: dict[str, list[str]] = {}
        for line in lines:
            # A name matches like `srun:` itself, a number never does.
            spoken = bool(_UNLABELLED.match(line)) or not line.strip()
            match = None if spoken else pattern.match(line)
            if match:
                label = match.group(1)
                label = str(int(label)) if label.isdecimal() else label
                tasks.setdefault(label, []).append(match.group(2) or "")
            elif not spoken:
                break
        else:
            # One or two lines with a name before them are a message, not an output.
            if pattern is _LABEL or sum(map(len, tasks.values())) > 2 * len(tasks):
                return {label: "\n".join(part) + "\n" for label, part in tasks.items()}
    return {}


def elided(text: str) -> bool:
    """Say whether somebody left lines out and marked it ("...", "[output truncated]")."""
    return bool(_ELISION.search(text))


class DamagedJsonError(ValueError):
    """Text that starts as JSON and does not end as such."""


def json_documents(text: str) -> list[Any]:
    """Return every JSON object and array in text that may have lines of other text around them.

    Raises DamagedJsonError where a document begins and is cut or malformed: half a document is not
    a smaller one.
    """
    decoder = json.JSONDecoder()
    documents: list[Any] = []
    position = 0
    while (start := _json_start(text, position)) is not None:
        try:
            document, position = decoder.raw_decode(text, start)
        except (ValueError, RecursionError) as problem:
            raise DamagedJsonError(str(problem)) from problem
        documents.append(document)
    return documents


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
    return f"{number:0{digits}x}" if number and len(f"{number:x}") <= digits else None


def unique_id(value: object) -> str | None:
    """Return a GPU's unique id as 16 hexadecimal digits, from `0x…`, `GPU-…` or bare digits."""
    text = known(value)
    return None if text is None else hexadecimal(re.sub(r"^GPU-", "", text, flags=re.I), 16)


def partition_modes(text: object) -> tuple[str | None, str | None]:
    """Return compute and memory mode named anywhere in a text ("NPS1, SPX, 0", "CPX/NPS4")."""
    modes = str(text).upper() if isinstance(text, str) else ""
    compute = re.search(r"\b([SDTQC]PX)\b", modes)
    memory = re.search(r"\b(NPS\d)\b", modes)
    return (compute.group(1) if compute else None, memory.group(1) if memory else None)


def virtual(name: object) -> bool | None:
    """Return True of a product name that says so (`AMD Instinct MI300X VF`); others say nothing."""
    return True if isinstance(name, str) and re.search(r"\bVF\b", name) else None
