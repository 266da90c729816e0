# SPDX-License-Identifier: GPL-3.0-or-later

"""What lies on a host of deployments: units, launch documents, secrets, and what is left over."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..finding import Finding
from ..resources.file import FileChange, read, read_with_mode, removal
from .smoke import certificate
from .units import Systemctl, unit_states

_DOCUMENT = re.compile(r"replica-[0-9]+\.json")
# What a header or a variable of the environment takes in any locale; no control characters.
_SECRET = re.compile(r"[ -~\u00a0-\u00ff]+")
# vLLM takes several of these keys, so that one can turn without an outage; routers show the first.
_KEYS = "VLLM_API_KEY"
_KEY = re.compile(r"[!-,.-~][!-~]*")


@dataclass(frozen=True)
class Places:
    """Where units are read from: written by hand, and those of Podman's generator (quadlets)."""

    units: str = "/etc/systemd/system"
    quadlets: str = "/etc/containers/systemd"

    def of(self, service: str) -> tuple[str, str]:
        """Return the paths that can define a service."""
        stem = service[: -len(".service")] if service.endswith(".service") else service
        return (os.path.join(self.units, service), os.path.join(self.quadlets, f"{stem}.container"))


@dataclass(frozen=True)
class Document:
    """One launch document on the host: where it lies, whose it is, the GPUs it promises."""

    path: str
    unit: str
    gpus: frozenset[str]


def _entries(directory: str) -> list[str]:
    try:
        return sorted(os.listdir(directory))
    except (FileNotFoundError, NotADirectoryError):
        return []


def services_matching(places: Places, pattern: str) -> list[str]:
    """Return the services that the host has files of and whose whole name matches."""
    names = [name for name in _entries(places.units) if name.endswith(".service")]
    stems = [
        name[: -len(".container")]
        for name in _entries(places.quadlets)
        if name.endswith(".container")
    ]
    matches = {*names, *(f"{stem}.service" for stem in stems)}
    return sorted(name for name in matches if re.fullmatch(pattern, name))


def document(path: str, text: str | None) -> Document | None:
    """Return a launch document, or None where the text is none."""
    try:
        data = json.loads(text or "")
        return Document(path, data["unit"], frozenset(data["gpus"]))
    except (ValueError, KeyError, TypeError):
        return None


def documents(directory: str) -> list[Document]:
    """Return the launch documents of one deployment's directory."""
    paths = [
        os.path.join(directory, name) for name in _entries(directory) if _DOCUMENT.fullmatch(name)
    ]
    parsed = (document(path, read(path)) for path in paths)
    return [item for item in parsed if item is not None]


def shadows(places: Places, files: list[FileChange], services: list[str]) -> list[FileChange]:
    """Return the removal of files that would define a wanted service in another runtime's way.

    A unit in the administrator's directory would win over the one that a generator makes.
    """
    planned = {item.path for item in files}
    return [
        removal(path, service)
        for service in services
        for path in places.of(service)
        if planned.intersection(places.of(service)) and path not in planned and os.path.exists(path)
    ]


def leftovers(
    places: Places, directory: str | None, files: list[FileChange], stale: list[str]
) -> list[FileChange]:
    """Return the removal of what the plan no longer has: stale units, their documents and more."""
    gone = [
        removal(path, name) for name in stale for path in places.of(name) if os.path.exists(path)
    ]
    if directory is None:
        return gone
    planned = {item.path for item in files}
    retained = {unit_file.path for unit_file in documents(directory) if unit_file.unit not in stale}
    for name in _entries(directory):
        path = os.path.join(directory, name)
        stem, extension = os.path.splitext(path)
        if extension not in (".env", ".json") or not re.fullmatch(r".*/replica-[0-9]+", stem):
            continue
        # Another replica's, which stays because nobody said to remove what is stale.
        theirs = f"{stem}.json" in retained and f"{stem}.json" not in planned
        if path not in planned and not theirs:
            gone.append(removal(path))
    return gone


def taken_gpus(
    root: str, files: list[FileChange], services: list[str], stale: list[str], systemctl: Systemctl
) -> dict[str, str]:
    """Return {GPU: unit} for GPUs of the plan that a running unit of others was given.

    ``root`` holds a directory for each deployment; ``services`` are those that may have theirs,
    and ``stale`` those that go.
    """
    read = [document(item.path, item.after) for item in files if item.unit in services]
    planned = frozenset(gpu for holder in read if holder is not None for gpu in holder.gpus)
    holders = [
        holder
        for name in _entries(root)
        for holder in documents(os.path.join(root, name))
        if holder.unit not in services and holder.unit not in stale and holder.gpus & planned
    ]
    states = unit_states(systemctl, sorted(holder.unit for holder in holders))
    return {
        gpu: holder.unit
        for holder in holders
        if states[holder.unit].get("ActiveState") not in ("inactive", "failed")
        for gpu in sorted(holder.gpus & planned)
    }


def handed_over(files: list[FileChange], states: dict[str, dict[str, str]]) -> bool:
    """Say whether a replica that is up has other GPUs from now on."""
    for item in files:
        before, after = document(item.path, item.before), document(item.path, item.after)
        up = states.get(item.unit or "", {}).get("ActiveState") not in (None, "inactive", "failed")
        if up and before is not None and after is not None and before.gpus != after.gpus:
            return True
    return False


def _unfit(value: Any) -> str | None:
    """Return why a secret would not reach the engine, in words that do not show it."""
    if not isinstance(value, str):
        return "is not a text"
    if not value:
        return "is empty"
    if not _SECRET.fullmatch(value):
        return "has control characters or letters beyond Latin-1, which no HTTP header takes"
    return None


def _unfit_keys(keys: list[Any]) -> str | None:
    """Return why several keys would not reach the engine."""
    if not keys or not all(isinstance(key, str) and _KEY.fullmatch(key) for key in keys):
        return "is a list of other than keys: ASCII without spaces, and no dash at the beginning"
    return None


def turn_of(change: FileChange) -> str:
    """Return what becomes of the first key: `same`, `accepted` before the change, or `other`."""
    before, after = ((text or "").split("\n") for text in (change.before, change.after))
    if before[0] == after[0]:
        return "same"
    return "accepted" if after[0] in before else "other"


def secret_changes(
    directory: str, deployment: str, names: list[str], values: Mapping[str, Any]
) -> tuple[list[FileChange], list[Finding]]:
    """Return a change for each secret file, and what is wrong.

    A secret without a value keeps the file that the host has; files of no name go.
    """
    changes, wrong = [], []
    for name in names:
        path = os.path.join(directory, name)
        before, mode = read_with_mode(path)
        value = values.get(name)
        if isinstance(value, str):
            # A file's last line end; within a value it would end a header.
            value = re.sub(r"\r?\n\Z", "", value)
        pem = name == certificate(deployment)
        problem = _unfit(value) if name in values and not pem else None
        if name == _KEYS and isinstance(value, list):
            problem = _unfit_keys(value)
            value = "\n".join(map(str, value))
        if problem:
            message = f"the value of {name} {problem}"
            wrong.append(Finding("REPLICA-SECRET-VALUE", deployment, message))
        elif value is None and before is None:
            message = f"{name}, which the deployment names, has no value and no file on the host"
            wrong.append(Finding("REPLICA-SECRET-MISSING", deployment, message, path=path))
        else:
            after = before if value is None else value
            changes.append(FileChange(path, before, after, mode, "0600", None, True))
    # A way back from a change that ends TLS needs what was before.
    names = [*names, certificate(deployment)]
    extra = [name for name in _entries(directory) if name not in names]
    changes += [removal(os.path.join(directory, name), None, True) for name in extra]
    return changes, wrong
