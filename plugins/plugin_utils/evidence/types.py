# SPDX-License-Identifier: GPL-3.0-or-later

"""What a host's tools and kernel printed, verbatim. The contract `apiary.evidence/v1`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar


@dataclass(frozen=True)
class CommandOutput:
    """One command; ``exit`` is None and ``error`` says why where it did not end by itself."""

    argv: tuple[str, ...]
    exit: int | None
    stdout: str
    stderr: str
    seconds: float
    error: str | None = None


@dataclass(frozen=True)
class Evidence:
    """One host at one time, as module_utils/evidence/gpu.py collected it; nothing is interpreted.

    ``files`` and ``links`` map absolute paths to contents and targets; ``unreadable`` maps those
    that were there and could not be read to the errno's name.
    """

    SCHEMA: ClassVar[str] = "apiary.evidence/v1"

    host: str
    collected_at: str
    collector: str
    commands: dict[str, CommandOutput] = field(default_factory=dict)
    files: dict[str, str] = field(default_factory=dict)
    links: dict[str, str] = field(default_factory=dict)
    unreadable: dict[str, str] = field(default_factory=dict)
