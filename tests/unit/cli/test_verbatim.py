# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What is printed is what was meant: `0000:cd:00.0` is an address, no emoji, and `[red]` a text."""

import ast
import io
import sys
from pathlib import Path

import pytest
from ansible_collections.apiary.instinct.plugins.plugin_utils.findings import Finding
from ansible_collections.apiary.instinct.plugins.plugin_utils.fleet.runs import HostRun
from ansible_collections.apiary.instinct.plugins.plugin_utils.topology.types import (
    Gpu,
    Link,
    Nic,
    Topology,
)
from rich.console import Group
from rich.text import Text

from apiary.app import output
from apiary.host.tables import topology_table
from apiary.plan.explain_command import show_problems
from apiary.rollout.progress import failed_table

SOURCES = Path(__file__).parents[3] / "src/apiary"
BUSES = [f"0000:{bus:02x}:00.0" for bus in range(256)]
# Rich's own names of emoji and its markup, as a host's files may have them.
NAMES = (":cd:", ":ab:", ":bug:", ":warning:", "[red]", "[/]", "[link=http://a]b[/link]", r"\[x]")


def gpus(addresses):
    return tuple(Gpu(name, model="MI300X", smi_index=n) for n, name in enumerate(addresses))


def nics():
    return tuple(Nic(f"e{n}", bdf, pci_path=("r",)) for n, bdf in enumerate(BUSES))


def hosts_with_links():
    """Sixteen hosts, so that their matrices together have every bus."""
    for first in range(0, 256, 16):
        mine = BUSES[first : first + 16]
        links = tuple(Link(mine[0], other, "xgmi", 1, 15) for other in mine[1:])
        yield topology_table(Topology("h", gpus(mine), links))


def all_of(text):
    return [Finding("TOPO-NO-GPUS", name, text) for name in (BUSES[0xCD], *NAMES)]


PRINTED = {
    "str": lambda text: output.show(text),
    "Text": lambda text: output.show(Text(text)),
    "stderr": lambda text: output.console(stderr=True).print(text),
    "grid": lambda text: output.show(output.grid(text, [text], [[text, text]])),
    "plain table": lambda text: output.show(output.plain_table(text, title=text)),
    "problems": lambda text: show_problems(all_of(text), text, text),
    "rollout": lambda text: output.show(
        failed_table([HostRun("h", 1, outcome="failed", task=text, reason=text)])
    ),
}
# Tables of a host, which have their addresses from it.
TABLES = {
    "GPUs": lambda: topology_table(Topology("h", gpus(BUSES))),
    "links": lambda: Group(*hosts_with_links()),
    "interfaces": lambda: topology_table(Topology("h", gpus(BUSES[:1]), nics=nics())),
}


@pytest.mark.parametrize("name", [*PRINTED, *TABLES])
def test_every_bus_is_printed_as_it_is(name, monkeypatch):
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stdout", stream)
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setenv("COLUMNS", "30000")
    if name in PRINTED:
        PRINTED[name](" ".join([*BUSES, *NAMES]))
    else:
        output.show(TABLES[name]())
    shown = stream.getvalue()
    expected = [*BUSES, *(NAMES if name in PRINTED else ())]
    assert [text for text in expected if text not in shown] == []


def test_progress_shows_its_words_as_they_are():
    progress = output.progress(quiet=True)
    progress.disable = False
    progress.add_task(BUSES[0xCD] + "[red]")
    assert progress.columns[0].render(progress.tasks[0]).plain == BUSES[0xCD] + "[red]"


def test_nothing_else_turns_text_into_markup():
    """One function makes consoles; what of Rich reads markup by itself is not used or is off."""
    wrong = []
    for path in sorted(SOURCES.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Call):
                continue
            called = ast.unparse(node.func).rpartition(".")[2]
            on = {item.arg for item in node.keywords if ast.unparse(item.value) == "True"}
            off = {item.arg for item in node.keywords if ast.unparse(item.value) == "False"}
            consoles = called in ("Console", "_Shown") and path.name != "output.py"
            marked = called in ("from_markup", "emoji_replace", "get_console") or on & {
                "markup",
                "emoji",
            }
            column = called in ("TextColumn", "SpinnerColumn", "Prompt") and "markup" not in off
            if consoles or marked or column:
                wrong.append(f"{path.relative_to(SOURCES)}:{node.lineno} {called}")
    assert wrong == []
    shown = output.console()
    assert (shown._markup, shown._emoji, shown._highlight) == (False, False, False)
