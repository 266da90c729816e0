# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Names in an inventory, read as fast as a key is pressed: files only, no script is run."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import yaml

LARGEST = 1 << 20  # bytes of a file; a larger one is not worth waiting for
MOST = 5000  # names of one range
_FILES = {"", ".yml", ".yaml", ".json", ".ini", ".cfg"}
_RANGE = re.compile(r"\[(\d+):(\d+)\]")
_SECTION = re.compile(r"\[([^\]:]+)(?::(\w+))?\]")


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc] # one or other
    """Takes a tag such as !vault for nothing."""


_Loader.add_multi_constructor("", lambda _loader, _tag, _node: None)


def names_of(sources: Sequence[Path]) -> tuple[list[str], list[str]]:
    """Return groups and hosts of inventories, in their order; what is unreadable has none."""
    groups: dict[str, None] = {}
    hosts: dict[str, None] = {}
    for path in _files(sources):
        try:
            if path.stat().st_size > LARGEST:
                continue
            text = path.read_text(encoding="utf-8")
            data = None if path.suffix in ("", ".ini", ".cfg") else yaml.load(text, _Loader)  # noqa: S506 - a safe loader
        except (OSError, ValueError, yaml.YAMLError):
            continue
        result = _of_yaml(data) if isinstance(data, dict) else _of_ini(text)
        for kind, name in result:
            (groups if kind == "group" else hosts).update(dict.fromkeys(_expanded(name)))
    return list(groups), [name for name in hosts if name not in groups]


def _files(sources: Sequence[Path]) -> Iterator[Path]:
    for source in sources:
        if source.is_dir():
            for path in sorted(source.iterdir()):
                if path.is_file() and path.suffix in _FILES and not os.access(path, os.X_OK):
                    yield path
        elif source.is_file() and not os.access(source, os.X_OK):
            yield source


def _of_yaml(data: Any) -> Iterator[tuple[str, str]]:
    """Yield the names of groups and of their hosts, whatever else the file says."""
    if not isinstance(data, dict):
        return
    for name, group in data.items():
        if not isinstance(group, dict) and group is not None:
            continue
        yield "group", str(name)
        inside = group or {}
        hosts = inside.get("hosts")
        for host in hosts if isinstance(hosts, (dict, list)) else ():
            yield "host", str(host)
        yield from _of_yaml(inside.get("children"))


def _of_ini(text: str) -> Iterator[tuple[str, str]]:
    kind = None
    for raw in text.splitlines():
        line = raw.split("#")[0].split(";")[0].strip()
        section = _SECTION.fullmatch(line)
        if section:
            kind = section[2]
            yield "group", section[1]
        elif line and kind is None:
            yield "host", line.split()[0]
        elif line and kind == "children":
            yield "group", line.split()[0]


def _expanded(name: str) -> Iterator[str]:
    """Yield the names that a range such as gpu-[001:100] stands for."""
    match = _RANGE.search(name)
    if not match:
        yield name
        return
    width = len(match[1]) if match[1].startswith("0") else 0
    for number in range(int(match[1]), min(int(match[2]), int(match[1]) + MOST) + 1):
        yield from _expanded(f"{name[: match.start()]}{number:0{width}d}{name[match.end() :]}")
