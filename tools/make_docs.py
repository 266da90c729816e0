#!/usr/bin/env python3
# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Write docs/reference/ from the code, so that no page can disagree with it.

make_docs.py [--check]      with --check only say which pages are stale
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import memory_page
import rules_page
import tuning_page
import yaml

from apiary.cli import cli

ROOT = Path(__file__).parents[1]
REFERENCE = ROOT / "docs/reference"
NOTE = "<!-- Written by tools/make_docs.py; change the code, then run `make docs`. -->\n\n"


def findings() -> str:
    """Return the page of finding codes."""
    entries: dict[str, dict[str, str]] = {}
    for path in sorted((ROOT / "plugins/plugin_utils/knowledge/findings").glob("*.yml")):
        entries |= yaml.safe_load(path.read_text(encoding="utf-8"))
    lines = [
        "# Findings\n",
        "Every warning and refusal has a stable code. An error stops the host's plan; warnings and",
        "notes stay with it.\n",
        "| code | severity | meaning | what to do |",
        "|---|---|---|---|",
    ]
    lines += [
        f"| `{code}` | {entry['severity']} | {cell(entry['meaning'])} | {cell(entry['remedy'])} |"
        for code, entry in sorted(entries.items())
    ]
    return "\n".join(lines) + "\n"


def cell(text: str) -> str:
    """Return text that stays within a table's cell."""
    return " ".join(text.split()).replace("|", "\\|")


def commands() -> str:
    """Return the page of the command line."""
    parts = ["# The `apiary` command\n"]
    root = click.Context(cli, info_name="apiary")
    for context in [root, *children(root)]:
        title = context.command_path
        parts.append(f"## `{title}`\n\n```text\n{context.get_help()}\n```\n")
    return "\n".join(parts)


def children(root: click.Context) -> Iterator[click.Context]:
    """Yield a context for each subcommand, in alphabetical order."""
    for name in sorted(cli.commands):
        yield click.Context(cli.commands[name], info_name=name, parent=root)


def role(path: Path) -> str:
    """Return a role's README from its argument spec."""
    spec = yaml.safe_load((path / "meta/argument_specs.yml").read_text(encoding="utf-8"))
    main: dict[str, Any] = spec["argument_specs"]["main"]
    lines = [
        f"# Role `apiary.instinct.{path.name}`\n",
        f"{main['short_description']}.\n",
        *(f"{sentence}" for sentence in main.get("description", [])),
        "\n| variable | type | default | what it is |",
        "|---|---|---|---|",
    ]
    for name, option in main["options"].items():
        default = "(required)" if option.get("required") else f"`{option.get('default')}`"
        lines.append(f"| `{name}` | {option['type']} | {default} | {cell(option['description'])} |")
    return "\n".join(lines) + "\n"


def pages() -> dict[Path, str]:
    """Return every generated page."""
    made = {REFERENCE / "findings.md": findings(), REFERENCE / "commands.md": commands()}
    made[REFERENCE / "memory.md"] = memory_page.page()
    made[REFERENCE / "rules.md"] = rules_page.page()
    made[REFERENCE / "tuning.md"] = tuning_page.page()
    for path in sorted((ROOT / "roles").iterdir()):
        if path.is_dir():
            made[path / "README.md"] = role(path)
    return {path: NOTE + text for path, text in made.items()}


def main() -> int:
    """Write the pages, or say which are stale."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--check", action="store_true")
    check = parser.parse_args().check
    stale = [
        path
        for path, text in pages().items()
        if not path.is_file() or path.read_text(encoding="utf-8") != text
    ]
    for path in stale:
        print(f"{'stale' if check else 'written'}: {path.relative_to(ROOT)}")
        if not check:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(pages()[path], encoding="utf-8")
    return int(check and bool(stale))


if __name__ == "__main__":
    sys.exit(main())
