# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The engine's command, every element with its reason and source."""

from __future__ import annotations

from dataclasses import dataclass

from ansible_collections.apiary.instinct.plugins.plugin_utils.findings import Finding


@dataclass(frozen=True)
class Reason:
    """Why one element (a flag, or an environment variable) is in the recipe."""

    element: str
    rule: str
    reason: str
    source: str


@dataclass(frozen=True)
class Recipe:
    """``env`` and ``argv`` of one engine (without the executable's own path) and the reasons."""

    engine: str
    version: str
    env: dict[str, str]
    argv: tuple[str, ...]
    reasons: tuple[Reason, ...]
    findings: tuple[Finding, ...] = ()
