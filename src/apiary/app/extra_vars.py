# SPDX-License-Identifier: GPL-3.0-or-later

"""Variables that are given with -e: files, and values that go nowhere but to Ansible."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click
import yaml


def split_extra(
    values: Sequence[str], refused: Mapping[str, str] | None = None
) -> tuple[list[str], dict[str, Any]]:
    """Return the files among values of -e as "@/PATH", and the variables of the others.

    ``refused`` says of names that may not be given what to do instead. Raises UsageError for
    them, and for what ansible-playbook would not take.
    """
    files: list[str] = []
    inline: dict[str, Any] = {}
    for item in values:
        if item.startswith("@"):
            path = Path(item[1:]).expanduser().absolute()
            if not path.is_file():
                raise click.UsageError(f"-e {item}: there is no such file")
            files.append(f"@{path}")
        else:
            inline |= _inline(item)
    for name, instead in (refused or {}).items():
        if name in inline:
            raise click.UsageError(f"-e {name}: {instead}")
    return files, inline


def _inline(text: str) -> dict[str, Any]:
    """Return the variables of a mapping or of NAME=VALUE; a refusal does not repeat the values."""
    if text[:1] in "[{":
        try:
            read = yaml.safe_load(text)
        except yaml.YAMLError:
            read = None
        if not isinstance(read, dict):
            raise click.UsageError("-e: what begins with { or [ is no mapping of variables")
        return read
    from ansible.errors import AnsibleError  # slow to import, and mostly not needed
    from ansible.parsing.splitter import parse_kv

    try:
        read = {str(name): str(value) for name, value in parse_kv(text).items()}
    except AnsibleError:
        read = {}
    if not read or "_raw_params" in read:
        raise click.UsageError("-e: expected NAME=VALUE, a mapping, or @FILE")
    return read
