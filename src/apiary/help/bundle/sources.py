# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The files that a support bundle is made of, as they lie on this machine, secrets and all."""

from __future__ import annotations

import fnmatch
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ansible_collections.apiary.instinct.plugins.plugin_utils.documents import (
    from_document,
    knowledge,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.findings import ApiaryError
from ansible_collections.apiary.instinct.plugins.plugin_utils.plan.types import Plan
from ansible_collections.apiary.instinct.plugins.plugin_utils.render.systemd import render_systemd

from apiary.fleet.report.inputs import FLEET
from apiary.help.bundle.types import LeftOut, Raw

# Runs and waves that are told of; older ones are the ledger's.
NEWEST_RUNS = 3
DEEPEST = 5
_SUFFIXES = {
    ".json",
    ".yml",
    ".yaml",
    ".ini",
    ".cfg",
    ".txt",
    ".log",
    ".conf",
    ".service",
    ".target",
}
_SUFFIXES |= {".socket", ".slice", ".mount", ".container", ".timer", ".xml", ".csv", ".md"}
_LOGS = {".log", ".txt"}
_PROGRAM = "/usr/libexec/"
_NAMES = {"stdout", "stderr", "hosts", "rc", "status"}


def never_named(path: Path, below: Path) -> str | None:
    """Return why a file is never taken, by its name and the directories between."""
    table = knowledge("secrets.yml")["never"]
    if any(fnmatch.fnmatch(path.name.lower(), pattern) for pattern in table["names"]):
        return "never taken: its name is that of a secret"
    parents = {part.lower() for part in path.relative_to(below).parts[:-1]}
    if parents & set(table["directories"]):
        return "never taken: its directory holds secrets"
    return None


def never_taken(path: Path, below: Path) -> str | None:
    """Return why a file is never taken, by its name or what it begins with."""
    why = never_named(path, below)
    if why:
        return why
    try:
        with path.open("rb") as stream:
            begin = stream.read(64)
    except OSError as failure:
        return f"cannot be read: {failure.strerror}"
    if begin.startswith(b"$ANSIBLE_VAULT"):
        return "never taken: a vault"
    return "not a text" if b"\0" in begin else None


def walk(base: Path, target: str, source: str) -> Iterator[Raw | LeftOut]:
    """Yield the texts below a directory; links that lead out of it are not followed."""
    if not base.is_dir():
        return
    root = base.resolve()
    for directory, folders, files in os.walk(base):
        here = Path(directory)
        depth = len(here.relative_to(base).parts)
        folders[:] = sorted(folders) if depth < DEEPEST else []
        for name in sorted(files):
            path = here / name
            inside = path.relative_to(base).as_posix()
            if not path.is_file() or not path.resolve().is_relative_to(root):
                continue
            why = never_named(path, base)
            if why is None and path.suffix not in _SUFFIXES and name not in _NAMES:
                continue
            why = why or never_taken(path, base)
            if why:
                yield LeftOut(f"{target}/{inside}", why)
            else:
                log = path.suffix in _LOGS or name in ("stdout", "stderr")
                yield Raw(str(path), f"{target}/{inside}", source, log)


def saved_hosts(directory: Path) -> list[str]:
    """Return the hosts that have documents in a directory of artifacts."""
    if not directory.is_dir():
        return []
    found = (one for one in directory.iterdir() if one.name != FLEET and one.is_dir())
    return sorted(one.name for one in found if any(one.glob("*.json")))


def of_artifacts(directory: Path, folders: Mapping[str, Path]) -> Iterator[Raw | LeftOut]:
    """Yield the saved documents of hosts, by name with their folder, and the fleet's."""
    for host, folder in folders.items():
        yield from walk(folder, f"hosts/{host}/artifacts", "artifacts")
        ledger = directory / FLEET / "ledger" / f"{folder.name}.json"
        if ledger.is_file():
            yield Raw(str(ledger), f"fleet/ledger/{folder.name}.json", "artifacts")
    runs = sorted(path.parent for path in (directory / FLEET / "runs").glob("*/run.json"))
    for run in runs[-NEWEST_RUNS:]:
        yield from walk(run, f"fleet/runs/{run.name}", "artifacts")
    for run in runs[:-NEWEST_RUNS]:
        yield LeftOut(f"fleet/runs/{run.name}", f"only the last {NEWEST_RUNS} runs are taken")


def of_inventory(sources: Sequence[str]) -> Iterator[Raw | LeftOut]:
    """Yield the inventory's files; encrypted ones are never among them."""
    for source in sources:
        path = Path(source)
        if path.is_dir():
            yield from walk(path, f"inventory/{path.name}", "inventory")
        elif path.is_file():
            for name in ("group_vars", "host_vars"):
                yield from walk(path.parent / name, f"inventory/{name}", "inventory")
            why = never_taken(path, path.parent)
            target = f"inventory/{path.name}"
            yield LeftOut(target, why) if why else Raw(str(path), target, "inventory")


def rendered(folders: Mapping[str, Path], work: Path) -> Iterator[Raw | LeftOut]:
    """Yield the units that each kept plan gives, to be held against those of the host."""
    for host, folder in folders.items():
        told: set[str] = set()  # plan.json beside the deployments' directories is one of theirs
        for path in sorted((*folder.glob("*/plan.json"), *folder.glob("plan.json"))):
            target = f"hosts/{host}/rendered"
            try:
                plan = from_document(Plan, json.loads(path.read_bytes()), str(path))
                files = render_systemd(plan)
            except (ApiaryError, ValueError, OSError) as failure:
                said = str(failure).splitlines()[0]
                yield LeftOut(f"{target} of {path.name}", f"cannot be rendered: {said}")
                continue
            if plan.deployment.name in told:
                continue
            told.add(plan.deployment.name)
            for item in files:
                if item.path.startswith(_PROGRAM):
                    continue  # the supervisor's own code: the version says it
                inside = f"{plan.deployment.name}/{item.path.lstrip('/')}"
                yield put(work, f"{target}/{inside}", item.content, "rendered")


def put(work: Path, target: str, text: str, source: str, log: bool = False) -> Raw:
    """Write a text that has no file of its own below WORK."""
    path = work / target
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as stream:
        stream.write(text.encode("utf-8", "replace"))
    return Raw(str(path), target, source, log)


def of_host(answer: Mapping[str, Any], work: Path) -> Iterator[Raw | LeftOut]:
    """Yield what a host showed; a name that would lead elsewhere is made plain."""
    host = safe(str(answer["host"]))
    for name, text in answer["items"].items():
        inside = "/".join(safe(part) for part in name.split("/") if part not in ("", ".."))
        log = name.startswith("journals/")
        yield put(work, f"hosts/{host}/live/{inside}", str(text), "host", log)
    for name, why in answer["problems"].items():
        yield LeftOut(f"hosts/{host}/live/{name}", str(why))


def safe(name: str) -> str:
    """Return a name that is no path and no more than itself."""
    plain = name.replace("/", "_")
    return plain if plain.strip(".") else f"_{plain}"
