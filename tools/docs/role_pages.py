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
    return "\n".join(lines) + "\n"
