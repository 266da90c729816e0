#!/usr/bin/python
# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Collect what a support bundle shows of a host: units, journals, states, versions."""

from __future__ import annotations

import fnmatch
import glob
import os
import shlex
from collections.abc import Iterable, Mapping
from typing import Any, Callable

from ansible.module_utils.basic import AnsibleModule

from ..module_utils.router.haproxy import ask

# Runs a command; returns its exit code, stdout and stderr.
Run = Callable[[list[str]], tuple[int, str, str]]

# Several of one kind would be most of the bundle; the first of them tell as much.
MOST_UNITS = 64
# Secrets that lie on a host: the command masks their values wherever they stand.
CREDENTIALS = ("/etc/apiary/*/credentials/*",)
# Whatever a pattern above finds, these are never read.
NEVER = ("*/credentials/*", "*.pem", "*.key", "*password*", "*secret*", "*/.*")


class Look:
    """Collects texts by name; each is cut to so many bytes, all of them to so many."""

    def __init__(
        self,
        run: Run,
        sources: Mapping[str, Any],
        since: str,
        lines: int,
        item_bytes: int,
        total_bytes: int,
    ) -> None:
        self.run, self.sources, self.since, self.lines = run, sources, since, lines
        self.item_bytes, self.left = item_bytes, total_bytes
        self.items: dict[str, str] = {}
        self.problems: dict[str, str] = {}

    def everything(self) -> None:
        """Look at all there is, the small things first."""
        for path in _found(self.sources["files"]):
            self.file(path)
        for name, words in self.sources["commands"].items():
            self.command(f"commands/{name}.txt", shlex.split(words))
        units = self.units()
        for unit in units:
            properties = f"--property={','.join(self.sources['properties'].split())}"
            self.command(
                f"units/{unit}.show", ["systemctl", "--no-pager", "show", properties, unit]
            )
        patterns = self.sources["ours"]
        ours = [unit for unit in units if any(fnmatch.fnmatch(unit, name) for name in patterns)]
        for unit in ours:
            self.command(f"units/{unit}.cat", ["systemctl", "--no-pager", "cat", unit])
        if os.path.exists("/run/haproxy/admin.sock"):
            for command in self.sources["haproxy"]:
                self.haproxy(command)
        bounded = ["--no-pager", "--output=short-iso", f"--since={self.since}"]
        bounded += [f"--lines={self.lines}"]
        self.command("journals/kernel.log", ["journalctl", "--dmesg", *bounded], keep_end=True)
        for unit in ours:
            argv = ["journalctl", f"--unit={unit}", *bounded]
            self.command(f"journals/{unit}.log", argv, keep_end=True)

    def secrets(self) -> list[str]:
        """Return the values of the host's credentials."""
        paths = sorted(path for pattern in CREDENTIALS for path in glob.glob(pattern))
        values = []
        for path in paths:
            try:
                with open(path, encoding="utf-8", errors="replace") as stream:
                    values += stream.read(self.item_bytes).splitlines()
            except OSError as failure:
                self.problems[path] = failure.strerror or str(failure)
        return values

    def units(self) -> list[str]:
        """Return the units that there are of those that matter here."""
        argv = ["systemctl", "--no-pager", "--plain", "--no-legend", "list-units", "--all"]
        status, out, err = self.run([*argv, *self.sources["units"]])
        if status:
            self.problems["units"] = err.strip()[:500] or f"status {status}"
            return []
        self.put("units/list.txt", out)
        matches = sorted({line.split()[0] for line in out.splitlines() if line.split()})
        if len(matches) > MOST_UNITS:
            self.problems["units"] = f"only the first {MOST_UNITS} of {len(matches)} were looked at"
        return matches[:MOST_UNITS]

    def file(self, path: str) -> None:
        """Take a file's text."""
        try:
            with open(path, "rb") as stream:
                content = stream.read(self.item_bytes + 1)
        except OSError as failure:
            self.problems[path] = failure.strerror or str(failure)
            return
        self.put(f"files{path}", content.decode("utf-8", "replace"))

    def command(self, name: str, argv: list[str], keep_end: bool = False) -> None:
        """Take what a command prints; one that is not there is no problem."""
        status, out, err = self.run(argv)
        if status and not out.strip():
            missing = "No such file" in err or "not found" in err
            if not missing:
                self.problems[name] = (err.strip() or f"status {status}").splitlines()[0][:300]
            return
        self.put(name, out + (f"\n# stderr\n{err}" if err.strip() else ""), keep_end)

    def haproxy(self, command: str) -> None:
        """Take HAProxy's answer at its runtime socket."""
        name = f"haproxy/{command.replace(' ', '-')}.txt"
        try:
            self.put(name, ask(command))
        except ConnectionError as failure:
            self.problems[name] = str(failure)

    def put(self, name: str, text: str, keep_end: bool = False) -> None:
        """Keep a text, cut to what is left; of a log the end is what matters."""
        room = min(self.item_bytes, self.left)
        if room <= 0:
            self.problems[name] = "left out: the host's texts are as large as they may be"
            return
        if len(text) > room:
            text = text[-room:] if keep_end else text[:room]
            self.problems[name] = f"cut to {room} characters"
        self.left -= len(text)
        self.items[name] = text


def _found(patterns: Iterable[str]) -> list[str]:
    paths = dict.fromkeys(path for pattern in patterns for path in sorted(glob.glob(pattern)))
    return [
        path
        for path in paths
        if os.path.isfile(path) and not any(fnmatch.fnmatch(path, forbidden) for forbidden in NEVER)
    ]


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "sources": {"type": "dict"},
            "since": {"type": "str", "default": "24 hours ago"},
            "lines": {"type": "int", "default": 5000},
            "item_bytes": {"type": "int", "default": 1048576},
            "total_bytes": {"type": "int", "default": 16777216},
        },
        supports_check_mode=True,
    )

    def run(argv: list[str]) -> tuple[int, str, str]:
        try:
            return module.run_command(argv, handle_exceptions=False)
        except OSError as failure:
            return 127, "", f"{argv[0]}: {failure.strerror}"

    look = Look(run, **module.params)
    look.everything()
    module.exit_json(
        changed=False, items=look.items, problems=look.problems, secrets=look.secrets()
    )


if __name__ == "__main__":
    main()
