# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""`apiary schema`: the JSON Schema of each document."""

from __future__ import annotations

import json

import click

from apiary.app.inputs import json_option
from apiary.app.schemas import NAMES, schema


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
