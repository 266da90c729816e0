# SPDX-License-Identifier: GPL-3.0-or-later

"""The findings of reading: what was wrong with the text or the sources themselves."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from ..findings import Finding
from .types import Parts


@cache
def finding(
    code: str, subject: str, message: str, source: str | None = None, parts: Parts = ()
) -> Finding:
    """Return a finding, the same one for the same facts; ``parts`` are what it is about."""
    return Finding(code, subject, message, source=source, parts=parts)


def unrecognised(subject: str, message: str) -> Finding:
    """Return the finding for text that no tool known here has printed."""
    return finding("TOPO-UNRECOGNISED", subject, message)


def truncated(subject: str, message: str) -> Finding:
    """Return the finding for output that is cut: part of it is not a smaller host."""
    return finding("TOPO-TRUNCATED", subject, message)


def several(subject: str, message: str) -> Finding:
    """Return the finding for a file in which the outputs of several hosts or tasks are."""
    return finding("TOPO-SEVERAL-OUTPUTS", subject, message)


def no_end(subject: str, expected: str) -> Finding:
    """Return the finding for output whose end is not in view, though nothing else is missing."""
    return finding("TOPO-NO-END", subject, f"the output lacks {expected}; it may be cut")


def unreadable_cells(subject: str, where: str, example: str) -> Finding:
    """Return the finding for a table that holds something else than its title says."""
    return finding(
        "TOPO-CELLS", subject, f"{where} holds {example!r} and the like; those cells are unknown"
    )


def tool_failed(subject: str, tool: str, message: str) -> Finding:
    """Return the finding for a tool that printed an error instead of an answer."""
    return finding("TOPO-TOOL-FAILED", subject, f"{tool} failed: {message}")


def stopped(subject: str, tool: str, message: str, devices: int) -> Finding:
    """Return the finding for a tool that ended in an error, before or after printing devices.

    An exception ends a listing: the GPUs after it are missing from it, not from the host.
    """
    if devices:
        return truncated(subject, f"{tool} stopped after {devices} GPUs: {message}")
    return tool_failed(subject, tool, message)


def unread(subject: str, parts: Sequence[str]) -> Finding:
    """Return the finding for tables and columns that are not understood, each named once."""
    return finding("TOPO-UNREAD", subject, f"not understood: {', '.join(dict.fromkeys(parts))}")
