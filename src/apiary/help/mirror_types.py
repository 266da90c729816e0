# SPDX-License-Identifier: GPL-3.0-or-later

"""What hosts fetch from elsewhere, together: `apiary.mirror/v1`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ansible_collections.apiary.instinct.plugins.plugin_utils.findings import Finding
from ansible_collections.apiary.instinct.plugins.plugin_utils.fleet.fetches import Fetch


@dataclass(frozen=True)
class Needed:
    """One thing to mirror, and the hosts that fetch it, folded."""

    fetch: Fetch
    hosts: str


@dataclass(frozen=True)
class MirrorList:
    """All that hosts fetch. ``known_bytes`` is the sum of what has a known size."""

    SCHEMA: ClassVar[str] = "apiary.mirror/v1"

    hosts: int
    known_bytes: int
    needed: tuple[Needed, ...] = ()
    findings: tuple[Finding, ...] = ()
