# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The command `apiary topology`: captures in, tables, pictures and documents out."""

from __future__ import annotations

import sys
from pathlib import Path

import click
from ansible_collections.apiary.instinct.plugins.plugin_utils.files import write_text
from ansible_collections.apiary.instinct.plugins.plugin_utils.findings import (
    ApiaryError,
    Finding,
    has_errors,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.placement.types import Placement
from ansible_collections.apiary.instinct.plugins.plugin_utils.topology.types import Topology

from apiary.app import output
from apiary.app.inputs import json_option, load_placement, load_plan, load_topology
from apiary.app.output import exit_code, file_name, print_document, report, show
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
@json_option
def topology(
    captures: tuple[str, ...],
    svg: str | None,
    plan_file: str | None,
    placement_file: str | None,
    as_json: bool,
) -> int:
    """Read evidence, or raw rocm-smi/amd-smi output, into a topology.

    \b
    apiary topology evidence/gpu-001.json --svg host.svg
    apiary topology evidence/*.json --json > fleet.json
    rocm-smi --showtopo | apiary topology -
    """
    if plan_file and placement_file:
        raise click.UsageError("give --plan or --placement: a plan has its placement")
    placement: Placement | None = None
    if plan_file:
        placement = load_plan(plan_file).placement
    elif placement_file:
        placement = load_placement(placement_file)
    if len(captures) == 1:
        result = load_topology(captures[0])
        seen = [_of_this_host(result, placement)]
        if not as_json:
            show(topology_table(result, placement))
        if svg:
            write_text(Path(svg), topology_svg(result, placement))
        if as_json:
            print_document(result)
        findings = [*result.findings, *(item for item in seen if item)]
        report(findings, as_json)
        return exit_code(findings)
    return _several(captures, svg, placement, as_json)


def _several(
    captures: tuple[str, ...], svg: str | None, placement: Placement | None, as_json: bool
) -> int:
    """Read many captures; one that cannot be read never keeps the others from being shown."""
    topologies: list[Topology] = []
    findings: list[Finding] = []
    refused = faulty = 0
    names: set[str] = set()
    # Tables go by as they are read; only where they go elsewhere is there something to wait for.
    with output.progress(quiet=sys.stdout.isatty() and not as_json) as progress:
        for name in progress.track(captures, description="reading"):
            try:
                result = load_topology(name)
            except ApiaryError as refusal:
                refused += 1
                findings += refusal.findings
                if not as_json:
                    report(refusal.findings, as_json)
                continue
            # A placement is one host's; the others of a fleet are shown without it.
            mine = placement if placement and _fits(result, placement) else None
            topologies.append(result)
            faulty += has_errors(result.findings)
            findings += result.findings
            if svg:
                stem = f"{Path(svg).with_suffix('').name}-{result.host}"
                path = Path(svg).with_name(file_name(stem, ".svg", names))
                write_text(path, topology_svg(result, mine))
            if not as_json:
                show(topology_table(result, mine))
                click.echo()
                report(result.findings, as_json)
    if as_json:
        print_document(topologies)
        report(findings, as_json)
    else:
        click.echo(_summary(len(captures), len(topologies), faulty, refused))
    return exit_code(findings)


def _summary(captures: int, read: int, faulty: int, refused: int) -> str:
    errors = f", {faulty} of them with errors" if faulty else ""
    topologies = "topology" if read == 1 else "topologies"
    return f"{captures} captures: {read} {topologies}{errors}; {refused} refused"


def _fits(of_host: Topology, placement: Placement) -> bool:
    return not _strangers(of_host, placement)


def _strangers(of_host: Topology, placement: Placement) -> list[str]:
    """Return the GPUs of a placement that a topology does not have."""
    present = {*of_host.by_key, *map(board_of, of_host.by_key)}
    return [key for share in placement.replicas for key in share.gpus if key not in present]


def _of_this_host(of_host: Topology, placement: Placement | None) -> Finding | None:
    """Return the finding that a placement is another host's, which the picture cannot show."""
    strangers = _strangers(of_host, placement) if placement else []
    if not strangers:
        return None
    return Finding(
        "TOPO-OTHER-PLACEMENT",
        of_host.host,
        f"{len(strangers)} GPUs of the placement, {strangers[0]} first, are not in this topology",
    )
