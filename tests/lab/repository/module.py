# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A kernel module that holds nothing but what it says of itself, for the real modinfo to read."""

from __future__ import annotations

import struct

HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
SECTION = struct.Struct("<IIQQQQIIQQ")
RELOCATABLE, X86_64 = 1, 62
PROGBITS, STRTAB = 1, 3


def module(version: str) -> bytes:
    """Return amdgpu.ko: ELF64 with the one section .modinfo (and the names of sections)."""
    said = f"version={version}\0license=GPL and additional rights\0name=amdgpu\0".encode()
    names = b"\0.modinfo\0.shstrtab\0"
    start = HEADER.size
    table = start + len(said) + len(names)
    header = HEADER.pack(
        b"\x7fELF\x02\x01\x01" + bytes(9),
        *(RELOCATABLE, X86_64, 1, 0, 0, table, 0, HEADER.size, 0, 0, SECTION.size, 3, 2),
    )
    sections = [
        SECTION.pack(*(0,) * 10),
        SECTION.pack(1, PROGBITS, 2, 0, start, len(said), 0, 0, 1, 0),
        SECTION.pack(10, STRTAB, 0, 0, start + len(said), len(names), 0, 0, 1, 0),
    ]
    return header + said + names + b"".join(sections)
