# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Numbers as a person types them for `apiary bench`."""

from __future__ import annotations

import math
from collections.abc import Iterable
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
    known = {
        name: type(number)
        for name, number in vars(rules.rules()).items()
        if isinstance(number, int | float)
    }
    for text in given:
        name, _, value = text.partition("=")
        if name not in known:
            raise click.UsageError(f"--rule {text}: NAME=NUMBER is meant, of {', '.join(known)}")
        try:
            matches[name] = known[name](value)
            problem = not math.isfinite(matches[name])
        except ValueError:
            problem = True
        if problem:
            raise click.UsageError(f"--rule {text}: {value} is no number for it")
    return matches
