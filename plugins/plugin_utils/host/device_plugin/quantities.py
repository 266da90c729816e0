# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Amounts of memory as Kubernetes writes them, and versions as numbers."""

from __future__ import annotations

import re

MIB = 2**20
_UNITS = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
_UNITS |= {"Ki": 2**10, "Mi": MIB, "Gi": 2**30, "Ti": 2**40}
_QUANTITY = re.compile(r"(\d+)(k|M|G|T|Ki|Mi|Gi|Ti|)")


def parse_memory(text: str) -> int | None:
    """Return the bytes of a whole quantity such as 4Gi; None for what is none, 5% among it."""
    found = _QUANTITY.fullmatch(text)
    return int(found[1]) * _UNITS[found[2]] if found else None


def format_memory(size: int) -> str:
    """Return bytes as a quantity that reads back as exactly the same."""
    return f"{size // MIB}Mi" if size and size % MIB == 0 else str(size)


def shares(total: int, parts: int) -> list[int]:
    """Return ``total`` bytes in ``parts`` equal shares of whole MiB; the first has the rest."""
    each = total // parts // MIB * MIB
    return [total - each * (parts - 1), *[each] * (parts - 1)]


def version(text: str) -> tuple[int, ...]:
    """Return the numbers that a version begins with; () where it begins with none."""
    found = re.match(r"v?(\d+(?:\.\d+)*)", text.strip())
    return tuple(int(part) for part in found[1].split(".")) if found else ()
