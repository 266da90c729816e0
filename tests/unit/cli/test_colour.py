# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Colour on a terminal only, and never where somebody asked for none."""

import contextlib
import io
import os
import pty
import re
from pathlib import Path

import pytest
from ansible_collections.apiary.instinct.plugins.plugin_utils.documents import dumps

from apiary.app import output
from support.programs import run_program
from support.topology.topologies import mi325x

SOURCES = Path(__file__).parents[3] / "src/apiary"
ASKED = ("NO_COLOR", "FORCE_COLOR", "CLICOLOR", "CLICOLOR_FORCE", "TERM", "COLORTERM")
PLACE = ["place", "seven.json", "--tp", "8"]  # a finding on stderr
TOPOLOGY = ["topology", "seven.json"]  # a table with bold and dim on stdout


class _Stream(io.StringIO):
    def __init__(self, terminal):
        super().__init__()
        self.terminal = terminal

    def isatty(self):
        return self.terminal


@pytest.mark.parametrize(
    ("terminal", "environment", "expected"),
    [
        (True, {"TERM": "xterm"}, True),
        (False, {"TERM": "xterm"}, False),
        (True, {"TERM": "dumb"}, False),
        (True, {}, False),
        (True, {"TERM": "xterm", "NO_COLOR": "1"}, False),
        (True, {"TERM": "xterm", "NO_COLOR": ""}, True),
        (True, {"TERM": "xterm", "NO_COLOR": "1", "FORCE_COLOR": "1"}, False),
        (True, {"TERM": "xterm", "CLICOLOR": "0"}, False),
        (True, {"TERM": "xterm", "CLICOLOR": "1"}, True),
        (False, {"TERM": "xterm", "CLICOLOR": "1"}, False),
        (False, {"FORCE_COLOR": "1"}, True),
        (False, {"FORCE_COLOR": "0"}, False),
        (True, {"TERM": "xterm", "FORCE_COLOR": "0"}, False),
        (False, {"CLICOLOR_FORCE": "1"}, True),
        (False, {"CLICOLOR_FORCE": "0"}, False),
        (False, {"CLICOLOR_FORCE": "1", "CLICOLOR": "0"}, True),
    ],
)
def test_who_decides(monkeypatch, terminal, environment, expected):
    for name in ASKED:
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert output.coloured(_Stream(terminal)) is expected


@pytest.fixture
def here(tmp_path):
    (tmp_path / "seven.json").write_text(dumps(mi325x(missing=[3])))
    return tmp_path


def environment(**changes):
    kept = {name: value for name, value in os.environ.items() if name not in ASKED}
    return {**kept, **changes}


def piped(here, words, **changes):
    """What a command prints into files, both together."""
    done = run_program("apiary", words, cwd=here, environment=environment(**changes))
    return done.stdout + done.stderr


def on_terminal(here, words, **changes):
    """What a command prints on a terminal of its own."""
    ours, theirs = pty.openpty()
    both = dict.fromkeys(("stdout", "stderr"), os.ttyname(theirs))
    run_program("apiary", words, cwd=here, environment=environment(**changes), **both)
    os.close(theirs)
    parts = []
    with contextlib.suppress(OSError):  # Linux's word for the end of a terminal
        while part := os.read(ours, 65536):
            parts.append(part)
    os.close(ours)
    return b"".join(parts)


def test_a_terminal_gets_colour(here):
    assert b"\x1b[31merror: PLACE-TOO-FEW-GPUS" in on_terminal(here, PLACE, TERM="xterm-256color")
    assert b"\x1b[1m" in on_terminal(here, TOPOLOGY, TERM="xterm-256color")


@pytest.mark.parametrize("words", [PLACE, TOPOLOGY, ["--help"], ["finding", "PLACE-TOO-FEW-GPUS"]])
@pytest.mark.parametrize(
    "asked", [{"TERM": "xterm", "NO_COLOR": "1"}, {"TERM": "dumb"}], ids=["NO_COLOR", "dumb"]
)
def test_a_terminal_without_colour_gets_no_escape_code(here, words, asked):
    said = on_terminal(here, words, **asked)
    assert said
    assert b"\x1b" not in said


@pytest.mark.parametrize("words", [PLACE, TOPOLOGY])
def test_a_pipe_gets_no_escape_code_unless_it_is_forced(here, words):
    assert "\x1b" not in piped(here, words, TERM="xterm-256color")
    assert "\x1b[" in piped(here, words, TERM="xterm-256color", FORCE_COLOR="1")


def test_the_console_is_made_in_one_place():
    """Rich's own console knows neither CLICOLOR nor that bold is an escape code, too."""
    made = re.compile(r"\bConsole\(|\bsecho\(|click\.style\(")
    named = {path.name for path in SOURCES.rglob("*.py") if made.search(path.read_text())}
    assert named <= {"output.py", "finding_command.py"}
