# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The commands about plans: make one, compare two, render one to files."""

from __future__ import annotations

from pathlib import Path

import click
from ansible_collections.apiary.instinct.plugins.plugin_utils.documents import (
    dumps,
    from_document,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.files import write_text
from ansible_collections.apiary.instinct.plugins.plugin_utils.findings import Finding
from ansible_collections.apiary.instinct.plugins.plugin_utils.plan.build import build_plan
from ansible_collections.apiary.instinct.plugins.plugin_utils.plan.explain import (
    diff_plans,
    summary,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.render.kubernetes import (
    render_kubernetes,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.render.kubernetes_types import (
    KubernetesOptions,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.render.systemd import render_systemd

from apiary.inputs import (
    json_option,
    load_architecture,
    load_deployment,
    load_plan,
    load_topology,
)
from apiary.layout_table import layout_table
from apiary.output import exit_code, print_document, report, show


@click.command()
@click.argument("deployment_file", metavar="DEPLOYMENT")
@click.argument("evidence_file", metavar="EVIDENCE")
@click.option("--model", "config_json", help="The model's config.json, if Apiary doesn't know it.")
@click.option("--keep", metavar="PLAN", help="Replicas of this plan that can stay keep their GPUs.")
@click.option("--out", help="Write the plan to this file.")
@json_option
def plan(
    deployment_file: str,
    evidence_file: str,
    config_json: str | None,
    keep: str | None,
    out: str | None,
    as_json: bool,
) -> int:
    """Plan a deployment (YAML) on the host that the evidence is of.

    \b
    apiary plan deployment.yml evidence/gpu-001.json --out plan.json
    """
    deployment = load_deployment(deployment_file)
    architecture = load_architecture(deployment, config_json, deployment_file)
    before = load_plan(keep) if keep else None
    planned = build_plan(deployment, load_topology(evidence_file), architecture, before)
    if out:
        write_text(Path(out), dumps(planned))
    if as_json:
        print_document(planned)
    else:
        click.echo("\n".join(summary(planned)))
        if planned.layouts is not None:
            show(layout_table(planned.layouts))
    report(planned.findings, as_json)
    return exit_code(planned.findings)


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
@click.option(
    "--target",
    type=click.Choice(["systemd", "kubernetes"]),
    default="systemd",
    show_default=True,
)
@click.option("--namespace", default="apiary", show_default=True, help="Kubernetes: where it runs.")
@click.option(
    "--render-gid", type=click.IntRange(0), help="Kubernetes: number of the node's group render."
)
@click.option(
    "--user",
    type=click.IntRange(1),
    help="Kubernetes: uid of the engine; the image's own if left out.",
)
@click.option("--cpus", type=int, help="Kubernetes: CPUs of a replica; the plan's share, nearly.")
@click.option("--memory", help="Kubernetes: memory of a replica (400Gi); weights and workers'.")
@click.option("--resource", default="amd.com/gpu", show_default=True, help="Kubernetes: a GPU.")
@click.option("--weights-claim", help="Kubernetes: the volume claim that has the weights.")
@click.option("--secret", help="Kubernetes: a Secret whose entries become environment variables.")
@json_option
def render(
    plan_file: str, out: str, target: str, as_json: bool, **options: int | str | None
) -> int:
    """Write a plan's files below a directory: a host's, or the objects of a cluster.

    \b
    apiary render plan.json --out rendered
    apiary render plan.json --out rendered --target kubernetes --render-gid 109
    """
    planned = load_plan(plan_file)
    findings: tuple[Finding, ...] = ()
    if target == "kubernetes":
        cluster = render_kubernetes(planned, from_document(KubernetesOptions, options, "options"))
        files, findings = cluster.files, cluster.findings
    else:
        files = render_systemd(planned)
    written = []
    for item in files:
        path = Path(out) / item.path.lstrip("/")
        write_text(path, item.content, int(item.mode, 8))
        written.append(str(path))
    if as_json:
        print_document({"schema": "apiary.render/v1", "target": target, "files": written})
    else:
        click.echo("\n".join(written))
    report(findings, as_json)
    return exit_code(findings)
