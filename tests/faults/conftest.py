# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""One simulated host that is broken and mended again, and what `apiary` makes of it each time."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from click.testing import CliRunner

from apiary.app.cli import cli

ROOT = Path(__file__).parents[2]
NAME = "faults"
HOST = "gpu-001"
LAB = ROOT / "tests/lab/lab.py"

ROWS = pytest.StashKey[list[tuple[str, ...]]]()


def lab(*argv):
    """Run lab.py, which says itself what went wrong."""
    command = [sys.executable, str(LAB), argv[0], "--name", NAME, *argv[1:]]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def apiary(*argv):
    """Run the command as an operator does; its exit code, document and findings."""
    done = CliRunner().invoke(cli, [str(word) for word in argv])
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    document = json.loads(done.stdout) if done.stdout.strip() else {}
    said = json.loads(done.stderr)["findings"] if done.stderr.strip() else []
    return done.exit_code, document, said


@dataclass
class Host:
    """The host that is up, and how to reach it."""

    directory: Path
    entry: dict
    now: tuple[str, ...] = field(default=())

    def change(self, *options):
        """Give it other hardware, unless it has that already."""
        if options != self.now:
            lab("hardware", HOST, *options)
            self.now = options

    def probe(self, out):
        """Gather evidence over SSH and return its file."""
        target = "ssh://{user}@{address}:{ssh_port}".format(**self.entry)
        code, document, said = apiary(
            *("probe", target, "--json", "--out", out),
            *("--identity", self.directory / "id_ed25519"),
            *("--known-hosts", self.directory / "known_hosts"),
        )
        assert code == 0, said
        (file,) = document["files"].values()
        return Path(file)


@pytest.fixture(scope="session")
def host():
    """The host, healthy again afterwards if it was up before, else taken down."""
    root = os.environ.get("APIARY_LAB_DIR")
    directory = (Path(root) if root else ROOT / ".lab") / NAME
    was_up = (directory / "hosts.json").exists()
    lab("up", "--hosts", "1")
    found = Host(directory, json.loads((directory / "hosts.json").read_text())["hosts"][HOST])
    # Whatever it was left with.
    lab("hardware", HOST)
    yield found
    if was_up:
        found.change()
    else:
        lab("down")


@pytest.fixture(scope="session")
def rows(request):
    """What the table at the end is made of."""
    return request.config.stash.setdefault(ROWS, [])


def pytest_terminal_summary(terminalreporter, config):
    """Print what each fault was found as."""
    lines = config.stash.get(ROWS, [])
    if lines:
        table = [("fault", "GPUs", "findings", "replicas (GPUs in bus order)"), *lines]
        widths = [max(map(len, column)) for column in zip(*table, strict=True)]
        terminalreporter.section("simulated faults")
        for line in table:
            cells = (cell.ljust(width) for cell, width in zip(line, widths, strict=True))
            terminalreporter.write_line("  ".join(cells).rstrip())
