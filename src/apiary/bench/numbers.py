# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Numbers as a person types them for `apiary bench`."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import fields
from typing import Any

import click
from ansible_collections.apiary.instinct.plugins.plugin_utils.bench import rules


def numbers(text: str | None, kind: type[int] | type[float], option: str) -> list[float]:
    """Return the numbers of a list as 1,8,64; raises UsageError."""
    try:
        result = [kind(word) for word in text.split(",")] if text else []
    except ValueError:
        result = [0]
    if not all(0 < item < math.inf for item in result):
        raise click.UsageError(f"{option}: {text}: numbers above 0 are meant, as 1,8,64")
    return result


def replaced_rules(given: Iterable[str]) -> dict[str, Any]:
    """Return the protocol's numbers that are replaced, by name; raises UsageError."""
    matches: dict[str, Any] = {}
    known = {field.name: field.type for field in fields(rules.Rules)}
    for text in given:
        name, _, value = text.partition("=")
        if known.get(name) not in ("int", "float"):
            numbers = ", ".join(one for one, kind in known.items() if kind in ("int", "float"))
            raise click.UsageError(f"--rule {text}: NAME=NUMBER is meant, of {numbers}")
        try:
            matches[name] = int(value) if known[name] == "int" else float(value)
            problem = not math.isfinite(matches[name])
        except ValueError:
            problem = True
        if problem:
            raise click.UsageError(f"--rule {text}: {value} is no number for it")
    return matches
