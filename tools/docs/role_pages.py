# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A role's README, from its argument spec: every variable with its type and default."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml
from text import ROOT, cell


def roles() -> list[Path]:
    """Return the directories of all roles that have an argument spec."""
    found = (ROOT / "roles").iterdir()
    return sorted(path for path in found if (path / "meta/argument_specs.yml").is_file())


def role(path: Path) -> str:
    """Return a role's README."""
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
    return "\n".join([*lines, *_changes(path.name), *_example(path.name), *_tags(path)]) + "\n"


def _changes(name: str) -> list[str]:
    """Return the section on what the role changes."""
    text = (ROOT / "tools/docs/role_changes.yml").read_text(encoding="utf-8")
    return ["\n## What it changes\n", *(f"- {line}" for line in yaml.safe_load(text)[name])]


def _example(name: str) -> list[str]:
    """Return the section with the play that the role's Molecule scenario converges."""
    place = ROOT / f"extensions/molecule/{name}/example.yml"
    if not place.is_file():
        return []
    play = place.read_text(encoding="utf-8")
    return [
        "\n## Example\n",
        f"The Molecule scenario `{name}` runs this play on a simulated host.\n",
        "```yaml",
        play.removeprefix("---\n").rstrip("\n"),
        "```",
    ]


def _tags(path: Path) -> list[str]:
    """Return the section on tags: those of the role's tasks, and the playbooks'."""
    tags = {path.name}
    for file in sorted((path / "tasks").glob("*.yml")):
        for task in yaml.safe_load(file.read_text(encoding="utf-8")) or []:
            tags |= {tag for tag in task.get("tags", []) if tag not in ("always", "never")}
    return ["\n## Tags\n", ", ".join(f"`{tag}`" for tag in sorted(tags)) + "."]
