# SPDX-License-Identifier: GPL-3.0-or-later

"""`apiary schema`: JSON Schemas of the documents, derived from the dataclasses of them."""

from __future__ import annotations

import importlib
import json
from typing import Any

import click
from ansible_collections.apiary.instinct.plugins import plugin_utils
from ansible_collections.apiary.instinct.plugins.plugin_utils.documents import (
    dataclasses_of,
    knowledge,
)
from pydantic import TypeAdapter

from apiary.app.inputs import json_option

DOCUMENTS: dict[str, str] = knowledge("documents.yml")
NAMES = tuple(sorted(DOCUMENTS))


def document(name: str) -> Any:
    """Return the class of one document; ``name`` is one of NAMES."""
    module, _colon, title = DOCUMENTS[name].partition(":")
    ours = module if module.startswith("apiary.") else f"{plugin_utils.__name__}.{module}"
    return getattr(importlib.import_module(ours), title)


def schema(name: str) -> dict[str, Any]:
    """Return the JSON Schema of one document; ``name`` is one of NAMES."""
    cls = document(name)
    derived = TypeAdapter(cls).json_schema()
    nested = derived.get("$defs", {})
    for title, part in dataclasses_of(cls).items():
        _close(nested.get(title, derived if title == cls.__name__ else {}), part)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **derived}


def _close(part: dict[str, Any], cls: type) -> None:
    """Name the schema where the dataclass is a document, and allow no unknown field."""
    if not part:
        return
    part["additionalProperties"] = False
    const = getattr(cls, "SCHEMA", None)
    if const:
        part["properties"] = {"schema": {"const": const}, **part["properties"]}


@click.command(name="schema")
@click.argument("name", type=click.Choice(NAMES), metavar="NAME")
@json_option
def schema_command(name: str, as_json: bool) -> int:
    """Print the JSON Schema of a document.

    \b
    apiary schema plan > plan.schema.json
    apiary schema evidence | jq .properties
    """
    del as_json  # a schema is JSON either way
    click.echo(json.dumps(schema(name), indent=2))
    return 0
