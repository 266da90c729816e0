# SPDX-License-Identifier: GPL-3.0-or-later

"""What a run would take over on a host that was set up by other means, and what it leaves alone."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...module_utils.finding import visible
from ..evidence.types import Evidence
from ..host.facts import serving_replicas
from ..host.rocm.host import read
from .survey import Concern, changes_of

# Values of the running kernel, and files whose path or first line names Apiary; what of converge's
# steps takes away.
_OURS = re.compile("^/(?:proc|sys)/|[Aa]piary")
_TAKES = re.compile("(?:remove|take|unmount|remount|disable|stop|restart|mask) ")


@dataclass(frozen=True)
class Entry:
    """One line: ``action`` is replace, remove, change (a step of converge) or keep."""

    action: str
    subject: str
    role: str
    detail: str = ""


def takeover(
    concerns: Sequence[Concern], reports: Sequence[Mapping[str, Any]], evidence: Evidence
) -> tuple[Entry, ...]:
    """Return what of others would change, by converge's reports in check mode, and what stays."""
    found = [entry for report in reports for entry in _changed(report)]
    packages = read(evidence).packages
    for concern in concerns:
        for resource in concern.resources:
            found += _packages(concern.name, resource, packages)
        found += [Entry("keep", one.name, concern.name, one.reason) for one in concern.kept]
    serving = "no driver changes and no reboot while it runs"
    busy = [each for each in serving_replicas(evidence) if not each.startswith("apiary-")]
    found += [Entry("keep", each, "reboot", serving) for each in busy]
    return tuple(dict.fromkeys(found))


def _changed(report: Mapping[str, Any]) -> Iterator[Entry]:
    for change in changes_of(report):
        if _OURS.search(f"{change.subject}\n{change.before.partition(chr(10))[0]}"):
            continue
        if change.before:
            action = "replace" if change.after else "remove"
            yield Entry(action, change.subject, report["role"])
        elif not change.after and _TAKES.match(change.subject):
            yield Entry("change", change.subject, report["role"])


def _packages(
    role: str, resource: Mapping[str, Any], packages: Mapping[str, tuple[str, ...]]
) -> Iterator[Entry]:
    """Yield packages that go, or are there in another version, whether or not the role may run."""
    if resource["kind"] != "transaction":
        return
    for name in resource["remove"]:
        yield Entry("remove", f"package {name}", role, ", ".join(packages.get(name, ())))
    coming = {spec for stage in resource["install"] for spec in stage}
    for one in resource["packages"]:
        if one["spec"] in coming and one["name"] in packages:
            detail = f"{', '.join(packages[one['name']])} becomes {one['version']}"
            yield Entry("replace", f"package {one['name']}", role, detail)


def lines(entries: Sequence[Entry]) -> list[str]:
    """Return the table as text; nothing where nothing would be taken over."""
    if all(entry.action == "keep" for entry in entries):
        return []
    rows = []
    for one in entries:
        text = ": ".join(filter(None, (one.subject, one.detail))).replace("\n", "\\n")
        rows.append(visible(f"{one.action:<8} {one.role:<18} {text}"))
    return [*rows, "What is not listed is left alone."]
