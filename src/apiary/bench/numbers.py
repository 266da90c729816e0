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
        found = [kind(one) for one in text.split(",")] if text else []
    except ValueError:
        found = [0]
    if not all(0 < one < math.inf for one in found):
        raise click.UsageError(f"{option}: {text}: numbers above 0 are meant, as 1,8,64")
    return found


def replaced_rules(given: Iterable[str]) -> dict[str, Any]:
    """Return the protocol's numbers that are replaced, by name; raises UsageError."""
    found: dict[str, Any] = {}
    known = {one.name: one.type for one in fields(rules.Rules)}
    for text in given:
        name, _, value = text.partition("=")
        if known.get(name) not in ("int", "float"):
            numbers = ", ".join(one for one, kind in known.items() if kind in ("int", "float"))
            raise click.UsageError(f"--rule {text}: NAME=NUMBER is meant, of {numbers}")
        try:
            found[name] = int(value) if known[name] == "int" else float(value)
            problem = not math.isfinite(found[name])
        except ValueError:
            problem = True
        if problem:
            raise click.UsageError(f"--rule {text}: {value} is no number for it")
    return found
