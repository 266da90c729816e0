# SPDX-License-Identifier: GPL-3.0-or-later

"""Ask ansible-core by a program of its own: its settings are read once a process."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ansible_collections.apiary.instinct.plugins.plugin_utils.findings import error

READER = "apiary.app.ansible_reader"
INVENTORY = "`cp -r inventory/example inventory/mine` begins one; or give hosts with a comma: a,b"
_PARSERS = re.compile(r"(?:Failed to parse inventory(?: with '\w+' plugin)?: )+")
# What follows from the rest, and patterns of hosts, which are told apart.
_NO_NEWS = re.compile(
    r"Unable to parse|No inventory was parsed|provided hosts list is|Could not m|Deprecation warn"
)
_MOST_WARNINGS = 4


def ask_inventory(
    sources: Sequence[str],
    limit: str | None,
    hosts: Mapping[str, Any],
    vault: Sequence[str] = (),
    extra: Sequence[str] = (),
) -> tuple[dict[str, Any], str]:
    """Return what the reader answers to the part ``hosts`` of a request, and what Ansible printed.

    No sources are Ansible's own inventory; ``extra`` are values of -e. Raises FILE-UNREADABLE or
    PROBE-INVENTORY.
    """
    for source in sources:
        if "," not in source and not os.path.exists(source):
            problem = "cannot be read: No such file or directory"
            raise error("FILE-UNREADABLE", source, problem, origin=INVENTORY)
    request = {"sources": list(sources), "limit": limit, "extra": list(extra), "hosts": hosts}
    answer, printed = ask_ansible(request, vault)
    if answer["error"]:
        raise error(
            "PROBE-INVENTORY",
            ", ".join(sources) or "inventory",
            "; ".join([" ".join(answer["error"].split()), *warnings_of(printed)])[:2000],
            command=inventory_command(sources),
        )
    return answer, printed


def inventory_command(sources: Sequence[str]) -> str:
    """Return the command by which Ansible shows the same inventory."""
    return " ".join(["ansible-inventory", *(f"-i {source}" for source in sources)])


def warnings_of(printed: str) -> list[str]:
    """Return why Ansible left out a source or a line of it, as it warned of it on stderr.

    Each of its parsers complains of a file; where the one for YAML says a line, the others' words
    would lead astray.
    """
    reasons: dict[str, None] = {}
    placed: dict[str, None] = {}
    for warning in re.split(r"^\[WARNING\]: ", printed, flags=re.MULTILINE)[1:]:
        first = warning.partition("\n\n")[0]
        reason = _PARSERS.sub("", " ".join(first.split()))
        origin = re.search(r"^Origin: (\S+\.(?:ya?ml|json):\d+:\d+)$", warning, re.MULTILINE)
        if origin:
            placed[f"{reason} ({origin[1]})"] = None
        elif not _NO_NEWS.match(reason):
            reasons[reason] = None
    return list(placed or reasons)[:_MOST_WARNINGS]


def ask_ansible(
    request: Mapping[str, Any], vault: Sequence[str] = (), timeout: float | None = None
) -> tuple[dict[str, Any], str]:
    """Return the answer of the reader, and what Ansible printed; `error` says why there is none.

    ``vault`` are files with vault passwords, beside those that the environment names. Raises
    TimeoutExpired after ``timeout`` seconds.
    """
    environment = {
        "ANSIBLE_NOCOLOR": "1",
        "PYTHONWARNINGS": "ignore",
        # A source that nobody can read is half a fleet.
        "ANSIBLE_INVENTORY_ANY_UNPARSED_IS_FAILED": "1",
    }
    if vault:
        named = os.environ.get("ANSIBLE_VAULT_IDENTITY_LIST")
        environment["ANSIBLE_VAULT_IDENTITY_LIST"] = ",".join((*([named] if named else []), *vault))
    done = run_reader(json.dumps(request), {**os.environ, **environment}, timeout)
    try:
        answer: dict[str, Any] = json.loads(done.stdout)
    except json.JSONDecodeError:
        last = " ".join(done.stderr.split()[-100:])
        answer = {"error": f"ansible-core failed with status {done.returncode}: {last}"}
    return answer, done.stderr


def run_reader(
    text: str, environment: Mapping[str, str], timeout: float | None
) -> subprocess.CompletedProcess[str]:
    """Run the program with a request on standard input."""
    return subprocess.run(
        [sys.executable, "-P", "-m", READER],
        input=text,
        capture_output=True,
        text=True,
        errors="replace",
        env=environment,
        check=False,
        timeout=timeout,
    )


def inventory_files(source: str) -> Iterator[Path]:
    """Yield the files that Ansible reads of a source, with the variables beside a file.

    Hidden ones, as of a clone's .git, are none; a list of hosts has no files.
    """
    top = Path(source)
    if "," in source or not top.exists():
        return
    folders = [top]
    if top.is_file():
        yield top
        folders = [top.parent / "group_vars", top.parent / "host_vars"]
    for folder in folders:
        for path in sorted(folder.rglob("*")):
            hidden = any(part.startswith(".") for part in path.relative_to(folder).parts)
            if path.is_file() and not hidden and path.suffix != ".pyc":
                yield path
