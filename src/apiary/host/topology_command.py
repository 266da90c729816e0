# SPDX-License-Identifier: GPL-3.0-or-later

"""The command `apiary topology`: captures in, tables, pictures and documents out."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import click
from ansible_collections.apiary.instinct.plugins.plugin_utils.files import write_text
from ansible_collections.apiary.instinct.plugins.plugin_utils.findings import (
    ApiaryError,
    Finding,
    has_errors,
    visible,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.placement.types import Placement
from ansible_collections.apiary.instinct.plugins.plugin_utils.topology.explain import explain
from ansible_collections.apiary.instinct.plugins.plugin_utils.topology.types import Topology

from apiary.app import output
from apiary.app.inputs import json_option, load_capture, load_placement, load_plan, load_topology
from apiary.app.output import echo, exit_code, file_name, plain_table, print_document, report, show
from apiary.host.pictures import topology_svg
from apiary.host.tables import topology_table
from apiary.host.view import board_of


@click.command()
@click.argument("captures", nargs=-1, required=True, type=click.Path())
@click.option(
    "--svg", help="Write the host's picture to this file; of several, one each beside it."
)
@click.option("--plan", "plan_file", type=click.Path(), help="Colour by the replicas of this plan.")
@click.option(
    "--placement",
    "placement_file",
    type=click.Path(),
    help="Colour by the replicas of this placement.",
)
@click.option(
    "--explain", "explained", is_flag=True, help="Say which lines of one capture gave which fact."
)
@json_option
def topology(
    captures: tuple[str, ...],
    svg: str | None,
    plan_file: str | None,
    placement_file: str | None,
    explained: bool,
    as_json: bool,
) -> int:
    """Read evidence, or raw rocm-smi/amd-smi output, into a topology.

    \b
    apiary topology evidence/gpu-001.json --svg host.svg
    apiary topology evidence/*.json --json > fleet.json
    apiary topology rocm-smi.txt --explain
    rocm-smi --showtopo | apiary topology -
    """
    if explained:
        if len(captures) > 1 or svg or plan_file or placement_file:
            raise click.UsageError("--explain takes one capture and no picture")
        return _explain(captures[0], as_json)
    if plan_file and placement_file:
        raise click.UsageError("give --plan or --placement: a plan has its placement")
    placement: Placement | None = None
    if plan_file:
        placement = load_plan(plan_file).placement
    elif placement_file:
        placement = load_placement(placement_file)
    alone = len(captures) == 1
    topologies: list[Topology] = []
    findings: list[Finding] = []
    refused = 0
    names: set[str] = set()
    # Tables go by as they are read; only where they go elsewhere is there something to wait for.
    with output.progress(quiet=alone or (sys.stdout.isatty() and not as_json)) as progress:
        for name in progress.track(captures, description="reading"):
            try:
                host = load_topology(name)
            except ApiaryError as refusal:
                if alone:
                    raise
                refused += 1
                findings += refusal.findings
                if not as_json:
                    report(refusal.findings, as_json)
                continue
            # A placement is one host's; the others of a fleet are shown without it.
            strangers = _strangers(host, placement) if placement else []
            own = placement if alone or not strangers else None
            notes = [*host.findings, *([_other(host, strangers)] if alone and strangers else [])]
            topologies.append(host)
            findings += notes
            if svg:
                path = Path(svg) if alone else _beside(Path(svg), host, names)
                write_text(path, topology_svg(host, own))
            if not as_json:
                show(topology_table(host, own))
                echo(nl=not alone)
                report(notes, as_json)
    if as_json:
        print_document(topologies[0] if alone else topologies)
        report(findings, as_json)
    elif not alone:
        faulty = sum(has_errors(host.findings) for host in topologies)
        echo(_summary(len(captures), len(topologies), faulty, refused))
    return exit_code(findings)


def _explain(name: str, as_json: bool) -> int:
    """Print which lines of a capture gave what."""
    reading = explain(load_capture(name), name)
    if reading is None:
        raise click.UsageError(f"{name} is a document of Apiary's; --explain is for tools' outputs")
    if as_json:
        print_document(reading)
    else:
        table = plain_table("lines", "", "gave", "text")
        for item in reading.lines:
            lines = str(item.first) if item.first == item.last else f"{item.first}-{item.last}"
            table.add_row(lines, item.role, "\n".join(item.facts), visible(item.text))
        show(table)
    report(reading.topology.findings, as_json)
    return exit_code(reading.topology.findings)


def _beside(svg: Path, host: Topology, taken: set[str]) -> Path:
    """Return where the picture of one host of several goes."""
    return svg.with_name(file_name(f"{svg.with_suffix('').name}-{host.host}", ".svg", taken))


def _summary(captures: int, read: int, faulty: int, refused: int) -> str:
    errors = f", {faulty} of them with errors" if faulty else ""
    topologies = "topology" if read == 1 else "topologies"
    return f"{captures} captures: {read} {topologies}{errors}; {refused} refused"


def _strangers(host: Topology, placement: Placement) -> list[str]:
    """Return the GPUs of a placement that a topology does not have."""
    present = {*host.by_key, *map(board_of, host.by_key)}
    return [key for share in placement.replicas for key in share.gpus if key not in present]


def _other(host: Topology, strangers: Sequence[str]) -> Finding:
    """Return the finding that a placement is another host's, which the picture cannot show."""
    return Finding(
        "TOPO-OTHER-PLACEMENT",
        host.host,
        f"{len(strangers)} GPUs of the placement, {strangers[0]} first, are not in this topology",
    )
