# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""JSON Schemas: one table of all documents for the repository; a page and the file for the site."""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterator
from typing import Any

from text import code, table

from apiary.app.schemas import NAMES, document, schema

HEAD = """# Documents and their schemas

Between the parts of Apiary travel JSON documents: to read, keep, compare and mail. Each says what
it is in `"schema": "apiary.NAME/v1"`, is written with sorted keys, and has a JSON Schema, made from
the classes that read it: `apiary schema NAME`. Unknown is `null`, never a guess. A change that
would break a reader is v2.
"""


def whole() -> str:
    """Return the table of all documents."""
    rows = ((code(name), _about(name), ", ".join(map(code, _fields(name)))) for name in NAMES)
    return "\n".join([HEAD, *table(("document", "what it is", "fields"), rows)])


def pages() -> dict[str, str]:
    """Return the pages below reference/schemas/, and the schemas as files."""
    made = {"index.md": _index()}
    for name in NAMES:
        found = schema(name)
        made[f"{name}.schema.json"] = json.dumps(found, indent=2) + "\n"
        made[f"{name}.md"] = "\n".join(_page(name, found))
    return made


def _index() -> str:
    rows = ((f"[`{name}`]({name}.md)", _about(name)) for name in NAMES)
    return "\n".join([HEAD, *table(("document", "what it is"), rows)])


def _about(name: str) -> str:
    """Return the first sentence of the class's own words."""
    text = " ".join((inspect.getdoc(document(name)) or "").split("\n\n")[0].split())
    return text if text.endswith(".") else f"{text}."


def _fields(name: str) -> list[str]:
    return [field for field in schema(name).get("properties", {}) if field != "schema"]


def _page(name: str, found: dict[str, Any]) -> Iterator[str]:
    yield f"# {name}\n"
    yield f"{_about(name)}\n"
    yield f"The schema: [{name}.schema.json]({name}.schema.json), or `apiary schema {name}`.\n"
    yield from _object(found, found)
    for title, part in sorted(found.get("$defs", {}).items()):
        yield f"## {title}\n"
        if "properties" in part:
            yield from _object(part, found)
        else:
            yield f"{_type(part)}\n"


def _object(part: dict[str, Any], root: dict[str, Any]) -> Iterator[str]:
    if "description" in part and part is not root:
        yield " ".join(part["description"].split("\n\n")[0].split()) + "\n"
    required = set(part.get("required", ()))
    rows = []
    for field, entry in part.get("properties", {}).items():
        default = "" if "default" not in entry else code(json.dumps(entry["default"]))
        needed = "yes" if field in required or "const" in entry else ""
        rows.append((code(field), _type(entry), needed, default))
    yield from table(("field", "type", "required", "default"), rows)


def _type(entry: dict[str, Any]) -> str:
    """Return a type in words, with a link to what it is made of."""
    if "$ref" in entry:
        title = entry["$ref"].rsplit("/", 1)[-1]
        return f"[{title}](#{title.lower()})"
    if "const" in entry:
        return code(json.dumps(entry["const"]))
    if "enum" in entry:
        return "one of " + ", ".join(code(json.dumps(one)) for one in entry["enum"])
    if "anyOf" in entry:
        return " or ".join(_type(one) for one in entry["anyOf"])
    kind = str(entry.get("type", "anything"))
    if kind == "array":
        if "prefixItems" in entry:
            return f"list: {', '.join(_type(one) for one in entry['prefixItems'])}"
        return f"list of {_type(entry['items'])}" if entry.get("items") else "list"
    if kind == "object" and isinstance(entry.get("additionalProperties"), dict):
        return f"mapping to {_type(entry['additionalProperties'])}"
    return {"null": "`null`", "object": "mapping"}.get(kind, kind)
