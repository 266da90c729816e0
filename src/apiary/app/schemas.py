# SPDX-License-Identifier: GPL-3.0-or-later

"""`apiary schema`: JSON Schemas of the documents, derived from the dataclasses of them."""

from __future__ import annotations

import json
from typing import Any

import click
from ansible_collections.apiary.instinct.plugins.plugin_utils.acceptance.types import Acceptance
from ansible_collections.apiary.instinct.plugins.plugin_utils.bench.comparison.compare import (
    Comparison,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.bench.types import Bench, Raw
from ansible_collections.apiary.instinct.plugins.plugin_utils.deployment import Deployment
from ansible_collections.apiary.instinct.plugins.plugin_utils.documents import dataclasses_of
from ansible_collections.apiary.instinct.plugins.plugin_utils.evidence.types import Evidence
from ansible_collections.apiary.instinct.plugins.plugin_utils.fleet.ledger import Ledger
from ansible_collections.apiary.instinct.plugins.plugin_utils.fleet.plan_types import FleetPlan
from ansible_collections.apiary.instinct.plugins.plugin_utils.fleet.report.types import FleetReport
from ansible_collections.apiary.instinct.plugins.plugin_utils.fleet.runs import FleetRollout
from ansible_collections.apiary.instinct.plugins.plugin_utils.model.types import Architecture
from ansible_collections.apiary.instinct.plugins.plugin_utils.placement.types import Placement
from ansible_collections.apiary.instinct.plugins.plugin_utils.plan.types import Plan
from ansible_collections.apiary.instinct.plugins.plugin_utils.render.host.context import LaunchSpec
from ansible_collections.apiary.instinct.plugins.plugin_utils.report.data import Report
from ansible_collections.apiary.instinct.plugins.plugin_utils.rollout.types import Rollout
from ansible_collections.apiary.instinct.plugins.plugin_utils.router.types import Router
from ansible_collections.apiary.instinct.plugins.plugin_utils.telemetry.types import TelemetryPlan
from ansible_collections.apiary.instinct.plugins.plugin_utils.topology.types import Topology
from ansible_collections.apiary.instinct.plugins.plugin_utils.tune.types import Tune
from pydantic import TypeAdapter

from apiary.app.inputs import json_option
from apiary.help.bundle.types import SupportBundle
from apiary.help.doctor.types import Doctor
from apiary.help.mirror_command import MirrorList

DOCUMENTS: dict[str, type] = {
    "acceptance": Acceptance,
    "bench": Bench,
    "bench-raw": Raw,
    "comparison": Comparison,
    "deployment": Deployment,
    "doctor": Doctor,
    "evidence": Evidence,
    "fleet-plan": FleetPlan,
    "fleet-report": FleetReport,
    "fleet-rollout": FleetRollout,
    "launch": LaunchSpec,
    "ledger": Ledger,
    "mirror": MirrorList,
    "model": Architecture,
    "placement": Placement,
    "plan": Plan,
    "report": Report,
    "rollout": Rollout,
    "router": Router,
    "support-bundle": SupportBundle,
    "telemetry": TelemetryPlan,
    "topology": Topology,
    "tune": Tune,
}
NAMES = tuple(sorted(DOCUMENTS))


def schema(name: str) -> dict[str, Any]:
    """Return the JSON Schema of one document; ``name`` is one of NAMES."""
    derived = TypeAdapter(DOCUMENTS[name]).json_schema()
    nested = derived.get("$defs", {})
    for title, cls in dataclasses_of(DOCUMENTS[name]).items():
        _close(nested.get(title, derived if title == DOCUMENTS[name].__name__ else {}), cls)
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
