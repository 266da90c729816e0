# SPDX-License-Identifier: GPL-3.0-or-later

"""What a support bundle is made of: files of this machine and of hosts, secrets and all."""

from __future__ import annotations

import fnmatch
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from ansible_collections.apiary.instinct.plugins.plugin_utils.documents import knowledge
from ansible_collections.apiary.instinct.plugins.plugin_utils.findings import Finding
from ansible_collections.apiary.instinct.plugins.plugin_utils.fleet.saved import FLEET

from apiary.app.runner import run_playbook


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


# Runs and waves that are told of; older ones are the ledger's.
NEWEST_RUNS = 3
DEEPEST = 5
NOT_LISTED = "is not on the list of documents that have no secrets"


def kind_of(target: str) -> str | None:
    """Return how a document is cleaned, by its path in the bundle; None for one that stays out."""
    table = knowledge("secrets.yml")
    if any(fnmatch.fnmatchcase(target.lower(), pattern) for pattern in table["never"]):
        return None
    for entry in table["documents"]:
        if fnmatch.fnmatchcase(target, entry["path"]):
            return str(entry["kind"])
    return None


def walk(base: Path, target: str, source: str) -> Iterator[Raw]:
    """Yield the files below a directory; links that lead out of it are not followed."""
    root = base.resolve()
    for directory, folders, files in os.walk(base):
        here = Path(directory)
        depth = len(here.relative_to(base).parts)
        folders[:] = sorted(folders) if depth < DEEPEST else []
        for name in sorted(files):
            path = here / name
            if path.is_file() and path.resolve().is_relative_to(root):
                yield Raw(str(path), f"{target}/{path.relative_to(base).as_posix()}", source)


def saved_hosts(directory: Path) -> list[str]:
    """Return the hosts that have documents in a directory of artifacts."""
    if not directory.is_dir():
        return []
    matches = (path for path in directory.iterdir() if path.name != FLEET and path.is_dir())
    return sorted(item.name for item in matches if any(item.glob("*.json")))


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


def of_inventory(sources: Sequence[str]) -> Iterator[Raw]:
    """Yield the inventory's files."""
    for source in sources:
        path = Path(source)
        if path.is_dir():
            yield from walk(path, f"inventory/{path.name}", "inventory")
        elif path.is_file():
            for name in ("group_vars", "host_vars"):
                yield from walk(path.parent / name, f"inventory/{name}", "inventory")
            yield Raw(str(path), f"inventory/{path.name}", "inventory")


def put(work: Path, target: str, text: str, source: str) -> Raw:
    """Write a text that has no file of its own below WORK."""
    path = work / target
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as stream:
        stream.write(text.encode("utf-8", "replace"))
    return Raw(str(path), target, source)


def of_host(answer: Mapping[str, Any], work: Path) -> Iterator[Raw | LeftOut]:
    """Yield what a host showed; a name that would lead elsewhere is made plain."""
    host = safe(str(answer["host"]))
    for name, text in answer["items"].items():
        inside = "/".join(safe(part) for part in name.split("/") if part not in ("", ".."))
        yield put(work, f"hosts/{host}/live/{inside}", str(text), "host")
    for name, why in answer["problems"].items():
        yield LeftOut(f"hosts/{host}/live/{name}", str(why))


def safe(name: str) -> str:
    """Return a name that is no path and no more than itself."""
    plain = name.replace("/", "_")
    return plain if plain.strip(".") else f"_{plain}"


TOGETHER = 16
_LAST = "Save them for the command"


def ask_hosts(
    options: Options,
    names: Sequence[str],
    work: Path,
    step: Callable[[], None],
    know: Callable[[Sequence[str]], None],
) -> Iterator[BundleHost | Raw | LeftOut]:
    """Yield each host with how it answered, and the files of those that did; raise FLEET-PROMPT.

    ``know`` is told the secrets that lie on the hosts.
    """
    for at in range(0, len(names), TOGETHER):
        some = list(names[at : at + TOGETHER])
        directory = work / f"answers-{at}"
        directory.mkdir(mode=0o700)
        ended = run_playbook(
            "bundle",
            inventory=options.sources,
            extra_vars={
                "bundle_hosts": some,
                "bundle_dest": str(directory),
                "bundle_since": options.since,
                "bundle_lines": options.lines,
                "bundle_total_bytes": options.host_bytes,
            },
            artifacts=work / f"run-{at}",
            vault_password_files=options.vault,
            on_event=_counter(step),
        )
        answered = set()
        for path in sorted(directory.iterdir()):
            answer: dict[str, Any] = json.loads(path.read_bytes())
            path.unlink()
            answered.add(answer["host"])
            know(answer["secrets"])
            yield from of_host(answer, work)
        for name in some:
            failed = ended.failed.get(name)
            why = failed.message if failed else ended.output or "the run ended before"
            why = "" if name in answered else " ".join(why.split())[-300:]
            yield BundleHost(name, asked=True, answered=name in answered, why=why)


def _counter(step: Callable[[], None]) -> Callable[[Any], None]:
    def count(event: Any) -> None:
        kind, data = event.get("event"), event.get("event_data") or {}
        failed = kind in ("runner_on_failed", "runner_on_unreachable")
        if failed or (kind == "runner_on_ok" and data.get("task") == _LAST):
            step()

    return count
