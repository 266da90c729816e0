# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A terminal obeys nothing that a host says."""

import ast
import contextlib
import json
import re
import sys
from pathlib import Path

import pytest
from ansible_collections.apiary.instinct.plugins.plugin_utils.adapters import refused
from ansible_collections.apiary.instinct.plugins.plugin_utils.findings import (
    Finding,
    error,
    visible,
)
from rich.console import Console
from rich.text import Text

from apiary.app import output

ROOT = Path(__file__).parents[3]
# A title, the clipboard, a cleared screen, a colour, C1, a turned line, one that is written over.
OBEYED = "a\x1b]0;PWNED\x07b\x1b]52;c;cHduZWQ=\x07c\x1b[2J\x1b[31md\x9b2Je\u202ef\rg\x08h\x7fi"
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
# What these print is their own.
OWN = {"ansible_config.py", "cli.py", "output.py", "schemas.py"}


class Terminal:
    """Standard output or error, which says that it is a terminal."""

    def __init__(self):
        self.text = ""

    def write(self, text):
        self.text += text

    def flush(self):
        pass

    def isatty(self):
        return True


@contextlib.contextmanager
def terminal(colour=False):
    """Have everything printed to a terminal; pytest's own capture begins after fixtures."""
    stream = Terminal()
    with pytest.MonkeyPatch.context() as patch:
        for name in ("stdout", "stderr"):
            patch.setattr(sys, name, stream)
        patch.setenv("TERM", "xterm")
        patch.setenv("COLUMNS", "300")
        patch.delenv("NO_COLOR", raising=False)
        if not colour:
            patch.setenv("NO_COLOR", "1")
        yield stream


def test_control_characters_are_shown_and_text_stays():
    assert visible("gpu-001\tü 漢\n") == "gpu-001\tü 漢\n"
    shown = visible(OBEYED)
    assert not CONTROL.search(shown)
    assert r"a\u001b]0;PWNED\u0007b" in shown
    assert visible(shown) == shown
    # What was a JSON text is one still, and the same.
    assert json.loads(visible(json.dumps(OBEYED, ensure_ascii=False))) == OBEYED


def test_nothing_that_is_printed_is_obeyed():
    table = output.plain_table("host", "why")
    table.add_row(OBEYED, Text(OBEYED, style="red"))
    with terminal() as stream:
        output.show(output.grid(OBEYED, ("host",), [[OBEYED]]))
        output.show(table)
        output.show(Text(OBEYED))
        output.console(stderr=True).print(OBEYED)
        output.echo(OBEYED)
        output.echo(OBEYED, err=True, fg="red")
        output.print_document({"host": OBEYED})
        for as_json in (False, True):
            output.report([Finding("TOPO-NO-GPUS", OBEYED, OBEYED)], as_json)
    assert stream.text.count("PWNED") >= 9
    assert CONTROL.findall(re.sub(r"\x1b\[[0-9;]*m", "", stream.text)) == []


def test_colours_are_still_the_commands_own():
    with terminal(colour=True) as stream:
        output.report([Finding("TOPO-NO-GPUS", OBEYED, "m")], False)
        output.show(Text("x", style="red"))
    assert set(CONTROL.findall(stream.text)) == {"\x1b"}
    assert re.sub(r"\x1b\[[0-9;]*m", "", stream.text).count("\x1b") == 0


def test_what_ansible_shows_of_a_finding_is_not_obeyed():
    refusal = error("TOPO-NO-GPUS", OBEYED, OBEYED)
    for text in (str(refusal), str(refused(refusal)), str(refusal.findings[0])):
        assert "PWNED" in text
        assert not CONTROL.search(text)


def test_every_command_prints_by_one_function():
    direct = []
    for path in sorted((ROOT / "src").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            called = ast.unparse(node.func) if isinstance(node, ast.Call) else ""
            if called in ("click.echo", "click.secho", "Console") and path.name not in OWN:
                direct.append(f"{path}:{node.lineno} {called}")
    assert direct == []
    assert issubclass(type(output.console()), Console)
