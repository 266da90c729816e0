# SPDX-License-Identifier: GPL-3.0-or-later

"""The commands about plans: make one, compare two, render one to files."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import click
from ansible_collections.apiary.instinct.plugins.plugin_utils.deployment import Runtime
from ansible_collections.apiary.instinct.plugins.plugin_utils.documents import dumps, from_document
from ansible_collections.apiary.instinct.plugins.plugin_utils.files import write_text
from ansible_collections.apiary.instinct.plugins.plugin_utils.findings import Finding
from ansible_collections.apiary.instinct.plugins.plugin_utils.plan.build import (
    PlanRequest,
    build_plans,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.plan.explain import (
    diff_plans,
    summary,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.plan.nodes import Place, nodes_of
from ansible_collections.apiary.instinct.plugins.plugin_utils.plan.types import Node, Plan
from ansible_collections.apiary.instinct.plugins.plugin_utils.render.containers import (
    review as review_containers,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.render.kubernetes import (
    KubernetesOptions,
    render_kubernetes,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.render.replicas import render_systemd

from apiary.app.inputs import (
    json_option,
    load_architecture,
    load_deployments,
    load_plan,
    load_topology,
)
from apiary.app.options import (
    extra_option,
    inventory_option,
    limit_option,
    split_extra,
    vault_option,
)
from apiary.app.output import echo, exit_code, print_document, report, show
from apiary.fleet.plan import FleetOptions, plan_fleet, refuse_mix
from apiary.plan.explain_command import layout_table

REFUSED = {"target": "--limit says which hosts"}


@click.command()
@click.argument("deployment_file", metavar="[DEPLOYMENT", required=False, type=click.Path())
@click.argument("evidence_file", metavar="EVIDENCE]", required=False, type=click.Path())
@click.option(
    "--with",
    "beside",
    metavar="DEPLOYMENT",
    type=click.Path(),
    multiple=True,
    help="Another deployment on the same host; may be given often.",
)
@click.option(
    "--model",
    "config_json",
    type=click.Path(),
    help="The model's config.json, if Apiary doesn't know it.",
)
@click.option(
    "--keep",
    metavar="PLAN",
    type=click.Path(),
    multiple=True,
    help="Replicas of this plan that can stay keep their GPUs; may be given often.",
)
@click.option(
    "--nodes",
    metavar="HOST=ADDRESS,…",
    help="The hosts that a replica spans, in rank order; the evidence's host is one of them.",
)
@click.option("--interface", help="The network interface between them.")
@inventory_option("Fleet: an Ansible inventory; may be given often.")
@limit_option("Fleet: only these hosts of the inventory.")
@click.option(
    "--offline", is_flag=True, help="Fleet: go by the last surveys, without asking the hosts."
)
@click.option(
    "--drift",
    is_flag=True,
    help="Fleet: only what changed on the hosts since it was applied, not in the inventory.",
)
@click.option("--diff", is_flag=True, help="Fleet: show each change's lines.")
@click.option("--forks", type=click.IntRange(1), help="Fleet: hosts at once; else Ansible's.")
@extra_option("Fleet: variables, as Ansible's.")
@vault_option("Fleet: as Ansible's; may be given often.")
@click.option(
    "--out",
    type=click.Path(),
    help="Write the plan to this file; several plans to NAME/plan.json below it.",
)
@json_option
@click.pass_context
def plan(
    context: click.Context,
    /,
    deployment_file: str | None,
    evidence_file: str | None,
    beside: tuple[str, ...],
    config_json: str | None,
    keep: tuple[str, ...],
    nodes: str | None,
    interface: str | None,
    extra: tuple[str, ...],
    vault: tuple[str, ...],
    out: str | None,
    as_json: bool,
    **fleet: Any,
) -> int:
    """Plan a deployment (YAML) on the host that the evidence is of; or a whole fleet.

    The file may also have a list of deployments, as apiary_deployments.

    \b
    apiary plan deployment.yml evidence/gpu-001.json --out plan.json
    apiary plan large.yml evidence/gpu-001.json --with small.yml --out plans

    With --inventory: look at every host of the group gpu_hosts and say what playbooks/site.yml
    would change, grouped by identical changes, which hosts stand out, and what capacity results.
    Nothing is changed.

    \b
    apiary plan --inventory inventory/mine
    apiary plan --inventory inventory/mine --limit rack1 --diff
    apiary plan --inventory inventory/mine --drift --json

    Exit code of a fleet's plan: 0 nothing would change, 3 something would, 1 an error (a host not
    reached, a refusal), 2 wrong usage.
    """
    given = [item.opts[-1] for item in context.command.params if context.params[str(item.name)]]
    refuse_mix(given, sum(file is not None for file in (deployment_file, evidence_file)))
    if deployment_file is None or evidence_file is None:
        files, inline = split_extra(extra, REFUSED)
        options = FleetOptions(
            **fleet,
            out=out,
            extra_files=tuple(files),
            extra_vars=inline,
            vault_password_files=vault,
        )
        return plan_fleet(options, as_json)
    return _plan_host(
        deployment_file, evidence_file, beside, config_json, keep, nodes, interface, out, as_json
    )


def _plan_host(
    deployment_file: str,
    evidence_file: str,
    beside: tuple[str, ...],
    config_json: str | None,
    keep: tuple[str, ...],
    nodes: str | None,
    interface: str | None,
    out: str | None,
    as_json: bool,
) -> int:
    """Plan deployments on one host."""
    files = [
        (name, deployment)
        for name in (deployment_file, *beside)
        for deployment in load_deployments(name)
    ]
    before = {plan.deployment.name: plan for plan in map(load_plan, keep)}
    if len(files) == len(keep) == 1:  # the same deployment under another name
        before[files[0][1].name] = load_plan(keep[0])
    topology = load_topology(evidence_file)
    place = None if nodes is None else _place(topology.host, nodes, interface)
    deployments = [
        PlanRequest(
            deployment,
            load_architecture(deployment, config_json if name == deployment_file else None, name),
            before.get(deployment.name),
            place if nodes_of(deployment) > 1 else None,
        )
        for name, deployment in files
    ]
    plans = build_plans(deployments, topology)
    if out:
        for planned in plans:
            own = f"{planned.deployment.name}/plan.json" if len(plans) > 1 else ""
            write_text(Path(out) / own, dumps(planned))
    if as_json:
        document = {"schema": "apiary.plans/v1", "plans": plans}
        print_document(plans[0] if len(plans) == 1 else document)
    for planned in () if as_json else plans:
        echo("\n".join(summary(planned)))
        if planned.layouts is not None:
            show(layout_table(planned.layouts))
    findings = tuple(dict.fromkeys(finding for planned in plans for finding in planned.findings))
    report(findings, as_json)
    return exit_code(findings)


def _place(host: str, nodes: str, interface: str | None) -> Place:
    """Return the place of the evidence's host among the hosts named."""
    pairs = [item.partition("=")[::2] for item in nodes.split(",")]
    names = [name for name, _address in pairs]
    if host not in names or not all(name and address for name, address in pairs):
        raise click.BadParameter(
            f"{nodes!r} is no list HOST=ADDRESS,HOST=ADDRESS with {host}", param_hint="--nodes"
        )
    addresses = [address for _name, address in pairs]
    node = Node(names.index(host), len(names), addresses[0], tuple(names))
    return Place(node, addresses[names.index(host)], interface)


@click.command()
@click.argument("before", type=click.Path())
@click.argument("after", type=click.Path())
@json_option
def diff(before: str, after: str, as_json: bool) -> int:
    """Show how two plans differ, as a unified diff.

    \b
    apiary diff plan-before.json plan.json
    apiary diff artifacts/gpu-001/plan.json plan.json --json
    """
    lines = diff_plans(load_plan(before), load_plan(after))
    if as_json:
        print_document({"schema": "apiary.diff/v1", "changed": bool(lines), "diff": lines})
    else:
        echo("\n".join(lines) or "the plans are the same")
    return 0


_RUNTIMES: dict[str, Runtime] = {"systemd": "native", "quadlet": "quadlet", "docker": "docker"}
_TARGETS = {runtime: target for target, runtime in _RUNTIMES.items()}


def _with_runtime(planned: Plan, runtime: Runtime) -> Plan:
    """Return the plan as it is where another program runs its replicas."""
    engine = dataclasses.replace(planned.deployment.engine, runtime=runtime)
    deployment = dataclasses.replace(planned.deployment, engine=engine)
    return dataclasses.replace(planned, deployment=deployment)


@click.command()
@click.argument("plan_file", metavar="PLAN", type=click.Path())
@click.option("--out", required=True, type=click.Path(), help="Directory to write the files below.")
@click.option(
    "--target",
    type=click.Choice(["systemd", "quadlet", "docker", "kubernetes"]),
    help="What runs the replicas; the deployment's own engine.runtime if left out."
    " systemd is the host itself.",
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
    plan_file: str, out: str, target: str | None, as_json: bool, **options: int | str | None
) -> int:
    """Write a plan's files below a directory: a host's, or the objects of a cluster.

    \b
    apiary render plan.json --out rendered
    apiary render plan.json --out rendered --target quadlet
    apiary render plan.json --out rendered --target kubernetes --render-gid 109
    """
    planned = load_plan(plan_file)
    findings: tuple[Finding, ...] = ()
    if target == "kubernetes":
        cluster = render_kubernetes(planned, from_document(KubernetesOptions, options, "options"))
        files, findings = cluster.files, cluster.findings
    else:
        runtime = _RUNTIMES.get(target or "", planned.deployment.engine.runtime)
        planned = _with_runtime(planned, runtime)
        files = render_systemd(planned)
        if runtime != "native":
            findings = tuple(review_containers(planned))
    target = target or _TARGETS[planned.deployment.engine.runtime]
    written = []
    for item in files:
        path = Path(out) / item.path.lstrip("/")
        write_text(path, item.content, int(item.mode, 8))
        written.append(str(path))
    if as_json:
        print_document({"schema": "apiary.render/v1", "target": target, "files": written})
    else:
        echo("\n".join(written))
    report(findings, as_json)
    return exit_code(findings)
