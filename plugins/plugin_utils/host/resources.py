# SPDX-License-Identifier: GPL-3.0-or-later

"""A role's resources as they are passed to converge: what it decided, and what operators change.

A role and a survey of it both take them from here. The words for a resource are those of the kinds
in module_utils/resources.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ...module_utils.resources.converge import items, name_of
from ..documents import to_document
from ..evidence.types import Evidence
from .types import MANAGED, HostFile, LiveSetting

Resource = Mapping[str, Any]


def files(requested: Iterable[HostFile], **more: Any) -> list[Resource]:
    """Return host files as resources."""
    return [{"kind": "file", **to_document(item), **more} for item in requested]


def services(names: Iterable[str], **more: Any) -> list[Resource]:
    """Return units as resources."""
    return [{"kind": "service", "name": name, **more} for name in names]


def live(role: str, settings: Iterable[LiveSetting], state: str) -> Resource:
    """Return values of the running kernel as one resource, remembered for the role."""
    return {
        "kind": "live",
        "settings": [to_document(item) for item in settings],
        "remember": f"/var/lib/apiary/{role}.json",
        "state": state,
    }


def at_least(
    path: str, least: Mapping[str, int], evidence: Evidence, state: str
) -> tuple[HostFile, tuple[LiveSetting, ...]]:
    """Return the sysctl file ``path`` and the live values that raise limits; higher ones stay.

    ``least`` has the smallest value by the limit's file below /proc/sys.
    """
    if state == "absent":
        return HostFile(path, None), ()
    lines, live = [], []
    for name, value in least.items():
        found = evidence.files.get(name, "").strip()
        if found.isdigit() and int(found) > value:
            continue
        lines.append(f"{name.removeprefix('/proc/sys/').replace('/', '.')} = {value}\n")
        live.append(LiveSetting(name, str(value)))
    return HostFile(path, MANAGED + "".join(lines)), tuple(live)


def with_overrides(
    role: str, resources: Iterable[Resource], options: Mapping[str, Any]
) -> list[dict[str, Any]]:
    """Return a role's resources without ``<role>_omit``, then ``<role>_extra_resources``.

    Extra resources come last. Raises ApiaryError for one that is wrong or there twice.
    """
    omit = set(options.get(f"{role}_omit") or ())
    extra = options.get(f"{role}_extra_resources") or []
    left = [dict(item) for item in resources if not (omit and name_of(item) in omit)]
    result = [{**item, "role": role} for item in (*left, *extra)]
    if extra:
        items(result)
    return result
