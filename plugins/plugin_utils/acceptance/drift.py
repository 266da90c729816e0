# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Checks of what roles bring a host to: converge in check mode reports what a run would change."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from ..findings import from_host, has_errors
from ..host.types import Check, CheckState

_SHORT = 160


def checks(
    host: str, roles: Iterable[str], reports: Sequence[Mapping[str, Any]]
) -> Iterator[Check]:
    """Yield one check a resource that differs, and one a role without any.

    ``reports`` are of resources that differ or can't be inspected, which their own findings say.
    """
    for report in reports:
        if report["changed"]:
            differences = [*report["steps"], *map(_difference, report["diff"])]
            found = f"a run would {'; '.join(differences)}"
            yield _check(f"{host}: {report['resource']}", report["role"], found)
    differing = {report["role"] for report in reports if report["changed"] or _refused(report)}
    for role in roles:
        if role not in differing:
            yield _check(f"{host}: {role}", role, None)


def _refused(report: Mapping[str, Any]) -> bool:
    return has_errors(tuple(map(from_host, report["findings"])))


def _check(subject: str, role: str, found: str | None) -> Check:
    expected = f"what the role {role} decides"
    state: CheckState = "fail" if found else "pass"
    return Check("ACCEPT-DRIFT", subject, state, found or expected, expected, role=role)


def _difference(entry: Mapping[str, str]) -> str:
    """Return a diff in a few words: short values, and of longer texts that they differ."""
    before, after = (
        "; ".join(str(entry.get(side, "")).strip().splitlines()) for side in ("before", "after")
    )
    subject = entry.get("after_header") or entry.get("before_header") or "it"
    if max(len(before), len(after)) <= _SHORT and before and after:
        return f"change {subject} from {before} to {after}"
    return f"{'change' if before and after else 'remove' if before else 'write'} {subject}"
