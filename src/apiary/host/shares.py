# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What pictures and tables need to know of a placement; a plan's has it as well."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from ansible_collections.apiary.instinct.plugins.plugin_utils.findings import Finding


class Share(Protocol):
    """One replica's part of a host."""

    @property
    def gpus(self) -> tuple[str, ...]: ...
    @property
    def cpus(self) -> str | None: ...
    @property
    def memory_nodes(self) -> tuple[int, ...]: ...
    @property
    def nics(self) -> tuple[str, ...]: ...


class Shares(Protocol):
    """All replicas of a host."""

    @property
    def replicas(self) -> Sequence[Share]: ...
    @property
    def findings(self) -> tuple[Finding, ...]: ...
