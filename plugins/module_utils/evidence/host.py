# SPDX-License-Identifier: GPL-3.0-or-later

"""Collect what a host itself says, beside its GPUs: system, kernel, packages, mounts, services.

What that is the controller says by scope (plugin_utils/evidence/types.py); the document is
`apiary.evidence/v1`, verbatim as always.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Mapping
from typing import Any

from . import gpu as evidence
from .gpu import Files, Runner
from .sources import listed

# A repository or mirror address may carry a password, which may hold what an address may not.
_CREDENTIALS = re.compile(r"(?<=://)(?:[^\s/@:\"']+:[^\s\"']*|[^\s/\"']+)(?=@)")
# Only there, so that no search for an @ is in vain.
_TO_LAST_AT = re.compile(r"(?<![^\s\"'])[^\s\"']*@")
_PASSWORD = re.compile(r"(?im)^([ \t]*(?:proxy_)?password[ \t]*[=:]).*$")


def masked(text: str) -> str:
    """Return text without the passwords of addresses and of repository files."""
    return _PASSWORD.sub(r"\1 ***", without_credentials(text))


def without_credentials(text: str) -> str:
    """Return text without the users and passwords of addresses."""
    return _TO_LAST_AT.sub(lambda match: _CREDENTIALS.sub("***", match[0]), text)


def collect_host(
    sources: Mapping[str, Any],
    run: Runner = evidence.run_command,
    root: str = "/",
    programs: tuple[str, ...] = (),
) -> dict[str, Any]:
    """Return the evidence of ``sources``, and with ``gpu`` in them all that evidence.collect gives.

    ``sources`` are commands, by name and the forms that are tried, and patterns of files and links.
    Each of ``programs`` is run with --version, a command by the program's path.
    """
    started = datetime.datetime.now(datetime.timezone.utc)
    gpu = sources.get("gpu")
    if gpu and not any(sources.get(name) for name in ("commands", "files", "links")):
        return evidence.collect(gpu, run, root)
    if gpu:
        evidence.raise_file_limit()
    attempts = [*listed(gpu["commands"])] if gpu else []
    names = {name for name, _attempts in attempts}
    attempts += [(path, ((path, "--version"),)) for path in programs]
    attempts += [one for one in listed(sources.get("commands", {})) if one[0] not in names]
    commands = evidence.collect_commands(run, tuple(attempts), gpu["unless"] if gpu else {})
    for label, result in commands.items():
        if not names.intersection((label, label.rpartition("_")[0])):
            result["stdout"] = masked(result["stdout"])

    def read_all(found: Files) -> None:
        for pattern in sources.get("files", ()):
            found.read_all(pattern)
        for pattern in sources.get("links", ()):
            for path in found.paths(pattern):
                found.link(path)

    found = evidence.in_time(root, read_all)
    found.files = {path: masked(text) for path, text in found.files.items()}
    if not gpu:
        return evidence.document(started, commands, found)
    siblings = commands["lscpu"]["exit"] != 0
    # A GPU that hangs has its own time, and leaves the rest theirs.
    more = evidence.in_time(root, lambda found: evidence.collect_files(found, gpu, siblings))
    for target, read in zip(
        (found.files, found.links, found.unreadable), (more.files, more.links, more.unreadable)
    ):
        target.update(read)
    return evidence.document(started, commands, found)
