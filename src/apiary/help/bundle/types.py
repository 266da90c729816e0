# SPDX-License-Identifier: GPL-3.0-or-later

"""What a support bundle is of: its manifest, and what is done to it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ansible_collections.apiary.instinct.plugins.plugin_utils.findings import Finding


@dataclass(frozen=True)
class Options:
    """What the operator requested."""

    sources: tuple[str, ...]
    names: tuple[str, ...]
    artifacts: str | None
    vault: tuple[str, ...]
    offline: bool
    since: str
    lines: int
    max_size: int

    @property
    def most(self) -> int:
        """The most bytes of all files."""
        return self.max_size << 20

    @property
    def host_bytes(self) -> int:
        """The most bytes of one host's answer."""
        return self.most // 8


@dataclass(frozen=True)
class Member:
    """One file of the bundle: its size in bytes, where it came from, what was removed from it."""

    path: str
    size: int
    source: str
    removed: int = 0


@dataclass(frozen=True)
class LeftOut:
    """What is not in the bundle, and why."""

    what: str
    why: str


@dataclass(frozen=True)
class BundleHost:
    """One host: whether it was asked and answered, and why it did not."""

    host: str
    asked: bool
    answered: bool
    why: str = ""


@dataclass(frozen=True)
class SupportBundle:
    """The manifest: what was taken, counts of what was removed, what was left out or failed.

    ``removed`` are counts by kind; ``looked_for`` is how many secrets are masked by their value.
    No secret, and nothing made of one, is in here.
    """

    SCHEMA: ClassVar[str] = "apiary.support-bundle/v1"

    apiary: str
    hosts: tuple[BundleHost, ...]
    members: tuple[Member, ...]
    removed: dict[str, int]
    looked_for: int
    left_out: tuple[LeftOut, ...]
    findings: tuple[Finding, ...] = ()


@dataclass(frozen=True)
class Raw:
    """A file before it is cleaned: where it lies, and where in the bundle it goes."""

    path: str
    target: str
    source: str
