# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""docs/reference/modules.md: modules, filters and inventory plugins, from their DOCUMENTATION."""

from __future__ import annotations

import ast
import runpy
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from text import ROOT, code, paragraph, table

KINDS = (
    ("modules", "Modules", "module"),
    ("filter", "Filters", "filter"),
    ("inventory", "Inventory plugins", "inventory"),
)
HEAD = """# Modules and plugins

Of the collection `apiary.instinct`, from their own documentation, as `ansible-doc
apiary.instinct.NAME` prints it. Roles and playbooks use them; most are of no use by themselves.
"""


def page() -> str:
    """Return the page."""
    lines = [HEAD]
    for folder, title, _ in KINDS:
        lines.append(f"## {title}\n")
        for path in sorted((ROOT / "plugins" / folder).glob("*.py")):
            sections = _sections(path)
            if sections:
                lines += _plugin(sections)
    return "\n".join(lines)


def _plugin(sections: dict[str, Any]) -> Iterator[str]:
    about = _with_fragments(sections["DOCUMENTATION"])
    yield f"### {about.get('module') or about['name']}\n"
    yield f"{paragraph(about['short_description'])}.\n"
    yield paragraph(about.get("description", "")) + "\n"
    support = [
        f"{name.replace('_', ' ')}: {entry.get('support', '?')}"
        for name, entry in about.get("attributes", {}).items()
    ]
    if support:
        yield f"Support: {'; '.join(support)}.\n"
    rows = list(_options(about.get("options", {}), ""))
    if rows:
        yield from table(("option", "type", "default", "what it is"), rows)
    rows = [
        (
            code(name),
            entry.get("type", ""),
            entry.get("returned", ""),
            paragraph(entry["description"]),
        )
        for name, entry in (sections.get("RETURN") or {}).items()
    ]
    if rows:
        yield from table(("returned", "type", "when", "what it is"), rows)
    if examples := sections.get("EXAMPLES", "").strip():
        yield f"```yaml\n{examples}\n```\n"


def _options(options: dict[str, Any], above: str) -> Iterator[tuple[str, str, str, str]]:
    for name, entry in options.items():
        kind = entry.get("type", "str")
        kind = f"{kind} of {entry['elements']}" if "elements" in entry else kind
        default = "(required)" if entry.get("required") else code(entry.get("default"))
        text = paragraph(entry["description"])
        if "choices" in entry:
            text += f" One of {', '.join(code(one) for one in entry['choices'])}."
        yield code(above + name), kind, default, text
        yield from _options(entry.get("suboptions", {}), f"{above}{name}.")


def _with_fragments(about: dict[str, Any]) -> dict[str, Any]:
    """Return a documentation with what its fragments of this collection add."""
    named = about.get("extends_documentation_fragment", [])
    merged = dict(about)
    for name in [named] if isinstance(named, str) else named:
        if not name.startswith("apiary.instinct."):
            continue
        file, _, section = name.removeprefix("apiary.instinct.").partition(".")
        for key, value in _fragments(file)[(section or "documentation").upper()].items():
            merged[key] = {**value, **merged.get(key, {})} if isinstance(value, dict) else value
    return merged


@cache
def _fragments(name: str) -> dict[str, Any]:
    made = runpy.run_path(str(ROOT / f"plugins/doc_fragments/{name}.py"))["ModuleDocFragment"]
    return {one: yaml.safe_load(text) for one, text in vars(made).items() if one.isupper()}


@cache
def _sections(path: Path) -> dict[str, Any]:
    """Return DOCUMENTATION, EXAMPLES and RETURN of a plugin, or of the page beside an action's."""
    beside = path.with_suffix(".yml")
    if beside.exists():
        return dict(yaml.safe_load(beside.read_text(encoding="utf-8")))
    texts = _assigned(ast.parse(path.read_text(encoding="utf-8")).body)
    if "DOCUMENTATION" not in texts:
        return {}
    read = {name: yaml.safe_load(texts.get(name, "")) for name in ("DOCUMENTATION", "RETURN")}
    return {**read, "EXAMPLES": texts.get("EXAMPLES", "")}


def _assigned(body: list[ast.stmt]) -> dict[str, str]:
    return {
        node.targets[0].id: node.value.value
        for node in body
        if isinstance(node, ast.Assign)
        and isinstance(node.targets[0], ast.Name)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    }
