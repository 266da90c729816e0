# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What an inventory says of its hosts, and what is wrong with it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class PlainSecret:
    """A secret that stands in an inventory file as it is; the value itself is not kept."""

    variable: str
    file: str


@dataclass(frozen=True)
class HostVariables:
    """One host as its inventory has it.

    ``names`` are all variables that the inventory gives it, ``values`` those of ours with their
    templates resolved; ``unresolved`` says why others could not be.
    """

    host: str
    groups: frozenset[str] = frozenset()
    names: frozenset[str] = frozenset()
    values: Mapping[str, Any] = field(default_factory=dict)
    unresolved: Mapping[str, str] = field(default_factory=dict)
    secrets: tuple[PlainSecret, ...] = ()


# Options of a role by name, as meta/argument_specs.yml describes each; roles by name.
Options = Mapping[str, Mapping[str, Any]]
Roles = Mapping[str, Options]
