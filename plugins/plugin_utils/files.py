# SPDX-License-Identifier: GPL-3.0-or-later

"""Reading and writing on the controller, for the adapters; nothing that decides imports this."""

from __future__ import annotations

import contextlib
import datetime
import json
import os
import re
import sys
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

import yaml

from .findings import Finding, error

_PLAYBOOK = re.compile(r"playbooks/(\w+)\.yml(?:( or )(\w+)\.yml)?")


def told_here(text: str) -> str:
    """Return a text with its playbooks as they are run from here.

    In a clone that is playbooks/NAME.yml; elsewhere only the installed collection has them, as
    apiary.instinct.NAME.
    """
    if os.path.isfile("playbooks/site.yml"):
        return text

    def named(found: re.Match[str]) -> str:
        first, between, second = found.groups()
        other = f"{between}apiary.instinct.{second}" if second else ""
        return f"apiary.instinct.{first}{other}"

    return _PLAYBOOK.sub(named, text)


def utc_now() -> str:
    """Return the time as the documents have it."""
    return datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def findings_here(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Return findings whose remedies can be run from the directory that one is in."""
    return tuple(one.reworded(remedy=told_here(one.remedy)) for one in findings)


def collection_version(directory: Path) -> str | None:
    """Return the version of a collection, installed by Galaxy or not; None where none is told."""
    wrong = (OSError, ValueError, KeyError, TypeError, AttributeError, yaml.YAMLError)
    for name, load in (("MANIFEST.json", json.loads), ("galaxy.yml", yaml.safe_load)):
        with contextlib.suppress(*wrong):
            read = load((directory / name).read_text(encoding="utf-8"))
            return str(read.get("collection_info", read)["version"])
    return None


def read_text(name: str, origin: str = "`ls -l` shows what is there") -> str:
    """Return the text of a file, or of stdin for "-"; raise FILE-UNREADABLE.

    ``origin`` says what writes such a file.
    """
    return "".join(read_lines(name, origin))


def read_lines(name: str, origin: str = "`ls -l` shows what is there") -> Iterator[str]:
    """Yield the lines of such a file, one of over 1 MiB in parts; for files of any size."""
    try:
        with contextlib.ExitStack() as opened:
            stream = sys.stdin
            if name != "-":
                stream = opened.enter_context(open(name, encoding="utf-8", errors="replace"))
            yield from iter(lambda: stream.readline(2**20), "")
    except OSError as failure:
        raise error(
            "FILE-UNREADABLE", name, f"cannot be read: {failure.strerror or failure}", origin=origin
        ) from failure


def write_text(path: Path, content: str, mode: int = 0o644) -> None:
    """Write a file in one step, so that nobody reads half of it; raise FILE-UNWRITABLE.

    A link is followed, and what is no file (a device, a pipe) is written to, never replaced.
    """
    write_bytes(path, content.encode("utf-8"), mode)


def write_bytes(path: Path, content: bytes, mode: int = 0o644) -> None:
    """Write bytes as write_text does a text."""
    temporary = ""
    try:
        path = Path(os.path.realpath(path))
        if path.exists() and not path.is_file():
            path.write_bytes(content)
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".apiary-")
        with os.fdopen(handle, "wb") as stream:
            stream.write(content)
        os.chmod(temporary, mode)
        os.replace(temporary, path)
    except OSError as failure:
        if temporary:
            Path(temporary).unlink(missing_ok=True)
        raise error(
            "FILE-UNWRITABLE", str(path), f"cannot be written: {failure.strerror or failure}"
        ) from failure
