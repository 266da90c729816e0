# SPDX-License-Identifier: GPL-3.0-or-later

"""How a deployment's units, files and secrets on this host differ from what is requested."""

from __future__ import annotations

import dataclasses
import os
from dataclasses import dataclass

from ..finding import ApiaryError, Finding, error
from ..resources.file import FileChange
from ..resources.types import Difference, Host, Resource
from . import unit_files, units
from .apply import UNREAD, due_units, serving, systemctl_of
from .units import DirectoryChange, UnitChanges


@dataclass(frozen=True)
class Changes:
    """What it takes to apply a difference: directories, files and secrets, then units."""

    directories: list[DirectoryChange]
    files: list[FileChange]
    secrets: list[FileChange]
    outdated: list[str]
    units: UnitChanges
    states: dict[str, dict[str, str]]


def inspect(host: Host, resource: Resource) -> Difference:
    """Return the difference; raise ApiaryError for what must not be."""
    services, target = resource["services"], resource["target"]
    only = resource["only"]
    if only is not None:
        unknown = sorted(set(only) - set(services))
        if unknown:
            message = f"{', '.join(unknown)} is none of its services"
            raise error("HOST-RESOURCES", resource["deployment"], message)
    every_file = units.compare_files(resource["files"])
    states = units.unit_states(systemctl_of(host), _watched(every_file, services, target))
    secrets, outdated = _secrets(host, resource, states)
    if only is None:
        changes = _whole(host, resource, every_file, secrets, outdated, states)
    else:
        services = [name for name in services if name in only]
        files = in_turn(every_file, target, services)
        changes = _part(host, resource, files, services, secrets, outdated, states)
    if not resource["start"]:
        changes = dataclasses.replace(changes, units=dataclasses.replace(changes.units, start=[]))
    if host.is_due(UNREAD):
        changes = dataclasses.replace(
            changes, units=dataclasses.replace(changes.units, reload=True)
        )
    for item in changes.files:
        if item.changed:
            host.note(item.path, item.after)
    spared = _spared(host, resource, changes)
    difference = _difference(changes)
    if host.module.check_mode:
        return dataclasses.replace(difference, warnings=spared)
    return dataclasses.replace(difference, refusals=spared)


def _whole(
    host: Host,
    resource: Resource,
    files: list[FileChange],
    secrets: list[FileChange],
    outdated: list[str],
    states: dict[str, dict[str, str]],
) -> Changes:
    """Return the changes of a whole deployment, with what its plan no longer has."""
    services, target = resource["services"], resource["target"]
    places = _places(resource)
    matching = unit_files.services_matching(places, resource["stale_pattern"])
    stale = [name for name in matching if name not in services]
    directory = _directory(files)
    _refuse_taken(host, directory, files, services, stale)
    shadows = unit_files.shadows(places, files, services)
    left = unit_files.leftovers(places, directory, files, stale)
    return _changes(
        files, [*shadows, *left], secrets, outdated, services, target, stale, states, shadows
    )


def _part(
    host: Host,
    resource: Resource,
    files: list[FileChange],
    services: list[str],
    secrets: list[FileChange],
    outdated: list[str],
    states: dict[str, dict[str, str]],
) -> Changes:
    """Return the changes of some replicas."""
    _refuse_taken(host, _directory(units.compare_files(resource["files"])), files, services, [])
    shadows = unit_files.shadows(_places(resource), files, services)
    return _changes(files, shadows, secrets, outdated, services, None, [], states, shadows)


def _changes(
    files: list[FileChange],
    removed: list[FileChange],
    secrets: list[FileChange],
    outdated: list[str],
    services: list[str],
    target: str | None,
    stale: list[str],
    states: dict[str, dict[str, str]],
    shadows: list[FileChange],
) -> Changes:
    due = frozenset(due_units(states)) | frozenset(outdated)
    moved = bool(shadows) or unit_files.handed_over(files, states)
    return Changes(
        directories=units.compare_directories(
            [*files, *(secret for secret in secrets if secret.after is not None)]
        ),
        files=[*files, *removed],
        secrets=secrets,
        outdated=outdated,
        units=units.plan_units(
            [*files, *shadows], services, target, states, stale, due & set(services), moved
        ),
        states=states,
    )


def in_turn(files: list[FileChange], target: str | None, only: list[str]) -> list[FileChange]:
    """Return the files that a run of some replicas writes: theirs, and what they need of others."""
    return [
        item
        for item in files
        if item.unit in only
        or (item.unit is None and os.path.basename(item.path) not in (target, "plan.json"))
    ]


def _secrets(
    host: Host, resource: Resource, states: dict[str, dict[str, str]]
) -> tuple[list[FileChange], list[str]]:
    """Return the changes of secret files, and the services that run with what was before."""
    names = resource["secrets"]
    if names is None:
        return [], []
    root = resource["root"].rstrip("/")
    directory = f"{root}/etc/apiary/{resource['deployment']}/credentials"
    changes, wrong = unit_files.secret_changes(
        directory, resource["deployment"], names, host.secrets
    )
    if wrong:
        raise ApiaryError(*wrong)
    changes = [item for item in changes if item.changed]
    if not any(item.before != item.after for item in changes):
        return changes, []
    down = ("inactive", "failed", "")
    up = [
        name
        for name in resource["services"]
        if states.get(name, {}).get("ActiveState", "") not in down
    ]
    return changes, up


def _spared(host: Host, resource: Resource, changes: Changes) -> tuple[Finding, ...]:
    """Return the refusal to interrupt replicas that serve; in check mode a warning."""
    if resource["restart"]:
        return ()
    ended = units.unit_states(systemctl_of(host), changes.units.remove)
    names = [*changes.units.remove, *changes.units.move, *changes.units.restart]
    up = serving({**changes.states, **ended}, [*names, *changes.outdated])
    if not up:
        return ()
    message = "this run would restart or remove them, which would interrupt what they serve"
    subject = ", ".join(dict.fromkeys(up))
    return (Finding("REPLICA-SERVES", subject, message, minor=host.module.check_mode),)


def _difference(changes: Changes) -> Difference:
    diff = [item.diff() for item in changes.directories if item.changed]
    diff += [item.diff() for item in (*changes.secrets, *changes.files) if item.changed]
    steps = changes.units.steps()
    secrets = [item.path for item in changes.secrets]
    return Difference(
        diff=tuple(diff),
        steps=steps,
        actual=changes,
        result={
            "restarted": [*changes.units.move, *changes.units.restart],
            "started": changes.units.start,
            "removed": changes.units.remove,
            "secrets": secrets,
            "turns": {item.path: unit_files.turn_of(item) for item in changes.secrets},
            "outdated": changes.outdated,
        },
    )


def _places(resource: Resource) -> unit_files.Places:
    root = resource["root"].rstrip("/")
    return unit_files.Places(f"{root}/etc/systemd/system", f"{root}/etc/containers/systemd")


def _directory(files: list[FileChange]) -> str | None:
    """Return the directory of the deployment's own files."""
    plans = [item.path for item in files if os.path.basename(item.path) == "plan.json"]
    return os.path.dirname(plans[0]) if plans else None


def _watched(files: list[FileChange], services: list[str], target: str | None) -> list[str]:
    """Return the units whose states count: also those beside the services, as a slice."""
    names = [os.path.basename(item.path) for item in files if units.is_unit(item.path)]
    more = [name for name in names if not name.endswith(".container")]
    return list(dict.fromkeys([*services, *([target] if target else []), *more]))


def _refuse_taken(
    host: Host,
    directory: str | None,
    files: list[FileChange],
    services: list[str],
    stale: list[str],
) -> None:
    if directory is None:
        return
    root = os.path.dirname(directory)
    taken = unit_files.taken_gpus(root, files, services, stale, systemctl_of(host))
    if taken:
        raise ApiaryError(
            *(
                Finding(
                    "REPLICA-GPU-TAKEN",
                    f"GPU {gpu}",
                    f"belongs to {holder}, which is running ({len(taken)} GPUs in all)",
                    holder=holder,
                )
                for gpu, holder in taken.items()
            )
        )
