# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The commands about plans: make one, explain it, compare two, render one to files."""

from __future__ import annotations

from pathlib import Path

import click
from ansible_collections.apiary.instinct.plugins.plugin_utils.documents import dumps
from ansible_collections.apiary.instinct.plugins.plugin_utils.files import read_text, write_text
from ansible_collections.apiary.instinct.plugins.plugin_utils.findings import error
from ansible_collections.apiary.instinct.plugins.plugin_utils.model.config import read_config
from ansible_collections.apiary.instinct.plugins.plugin_utils.plan.build import (
    architecture_of,
    build_plan,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.plan.explain import (
    diff_plans,
    elements,
    summary,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.render.systemd import render_systemd

from apiary.inputs import json_option, load_deployment, load_plan, load_topology
from apiary.output import element_name, exit_code, print_document, report, show_elements


@click.command()
@click.argument("deployment_file", metavar="DEPLOYMENT")
@click.argument("evidence_file", metavar="EVIDENCE")
@click.option("--model", "config_json", help="The model's config.json, if Apiary doesn't know it.")
@click.option("--out", help="Write the plan to this file.")
@json_option
def plan(
    deployment_file: str,
    evidence_file: str,
    config_json: str | None,
    out: str | None,
    as_json: bool,
) -> int:
    """Plan a deployment (YAML) on the host that the evidence is of.

    \b
    apiary plan deployment.yml evidence/gpu-001.json --out plan.json
    """
    deployment = load_deployment(deployment_file)
    config = config_json or deployment.model.config
    architecture = (
        read_config(read_text(config), config)
        if config
        else architecture_of(deployment, deployment_file)
    )
    planned = build_plan(deployment, load_topology(evidence_file), architecture)
    if out:
        write_text(Path(out), dumps(planned))
    if as_json:
        print_document(planned)
    else:
        click.echo("\n".join(summary(planned)))
    report(planned.findings, as_json)
    return exit_code(planned.findings)


@click.command()
@click.argument("plan_file", metavar="PLAN")
@click.option("--why", metavar="ELEMENT", help="Only this flag or variable.")
@click.option("--brief", is_flag=True, help="Where the replicas run and why, without the command.")
@json_option
def explain(plan_file: str, why: str | None, brief: bool, as_json: bool) -> int:
    """Say why each flag and variable of a plan is there, with its source.

    \b
    apiary explain plan.json --why --attention-backend
    """
    planned = load_plan(plan_file)
    rows: dict[tuple[str, str, str, str], list[str]] = {}
    for index, replica in enumerate(planned.replicas):
        for row in elements(replica):
            rows.setdefault(row, []).append(str(index))
    if why is not None:
        rows = {
            row: who
            for row, who in rows.items()
            if element_name(row[0]).lstrip("-") == why.lstrip("-")
        }
        if not rows:
            raise error(
                "EXPLAIN-NO-ELEMENT",
                plan_file,
                f"no flag or variable {why!r} in this plan",
                "run `apiary explain` without --why to see them all",
            )
    if as_json:
        names = ("element", "rule", "reason", "source")
        document = [
            {**dict(zip(names, row, strict=True)), "replicas": [int(one) for one in who]}
            for row, who in rows.items()
        ]
        print_document(
            {"schema": "apiary.explanation/v1", "host": planned.host, "elements": document}
        )
        return 0
    click.echo("\n".join(summary(planned)))
    if not brief:
        show_elements(rows, len(planned.replicas))
    return 0


@click.command()
@click.argument("before")
@click.argument("after")
@json_option
def diff(before: str, after: str, as_json: bool) -> int:
    """Show how two plans differ, as a unified diff."""
    lines = diff_plans(load_plan(before), load_plan(after))
    if as_json:
        print_document({"schema": "apiary.diff/v1", "changed": bool(lines), "diff": lines})
    else:
        click.echo("\n".join(lines) or "the plans are the same")
    return 0


@click.command()
@click.argument("plan_file", metavar="PLAN")
@click.option("--out", required=True, help="Directory to write the files below.")
@click.option("--target", type=click.Choice(["systemd"]), default="systemd", show_default=True)
@json_option
def render(plan_file: str, out: str, target: str, as_json: bool) -> int:
    """Write a plan's files below a directory, as they would lie on the host."""
    files = render_systemd(load_plan(plan_file))
    written = []
    for item in files:
        path = Path(out) / item.path.lstrip("/")
        write_text(path, item.content, int(item.mode, 8))
        written.append(str(path))
    if as_json:
        print_document({"schema": "apiary.render/v1", "target": target, "files": written})
    else:
        click.echo("\n".join(written))
    return 0
