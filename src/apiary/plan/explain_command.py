# SPDX-License-Identifier: GPL-3.0-or-later

"""`apiary explain`: why a plan is as it is, on another version, and against another command."""

from __future__ import annotations

import click
from ansible_collections.apiary.instinct.plugins.plugin_utils.deployment import Deployment
from ansible_collections.apiary.instinct.plugins.plugin_utils.documents import to_document
from ansible_collections.apiary.instinct.plugins.plugin_utils.engine.migration import migration
from ansible_collections.apiary.instinct.plugins.plugin_utils.engine.review import Review
from ansible_collections.apiary.instinct.plugins.plugin_utils.files import read_text
from ansible_collections.apiary.instinct.plugins.plugin_utils.findings import error
from ansible_collections.apiary.instinct.plugins.plugin_utils.gpus import gpu_models
from ansible_collections.apiary.instinct.plugins.plugin_utils.plan.cases import (
    Case,
    case_of,
    cases_of,
    judge,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.plan.explain import (
    command_lines,
    explained,
    summary,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.plan.types import Plan
from ansible_collections.apiary.instinct.plugins.plugin_utils.plan.why import why_element

from apiary.app.inputs import json_option, load_architecture, load_plan_or_deployment
from apiary.app.output import EXIT_FINDINGS, echo, exit_code, print_document, report, show
from apiary.plan.explain_tables import (
    layout_table,
    show_changes,
    show_elements,
    show_problems,
)


@click.command()
@click.argument("plan_file", metavar="PLAN", type=click.Path())
@click.option("--why", metavar="ELEMENT", help="Only this flag or variable, in full.")
@click.option("--against", metavar="VERSION", help="What changes on another engine version.")
@click.option(
    "--recipe",
    "recipe_file",
    metavar="FILE",
    type=click.Path(),
    help="What is wrong with somebody's shell command for this model, GPU and version.",
)
@click.option(
    "--model", "config_json", type=click.Path(), help="The model's config.json, for a DEPLOYMENT."
)
@click.option(
    "--gpu",
    type=click.Choice(list(gpu_models())),
    default="MI325X",
    show_default=True,
    help="The GPU, for a DEPLOYMENT.",
)
@click.option("--brief", is_flag=True, help="Where the replicas run and why, without the command.")
@json_option
def explain(
    plan_file: str,
    why: str | None,
    against: str | None,
    recipe_file: str | None,
    config_json: str | None,
    gpu: str,
    brief: bool,
    as_json: bool,
) -> int:
    """Say why each flag and variable of a plan is there, with its source.

    --against and --recipe also take a DEPLOYMENT (YAML) that names its layout, without a host.

    \b
    apiary explain plan.json --why --attention-backend
    apiary explain plan.json --against 0.20.2
    apiary explain deployment.yml --recipe start.sh
    """
    if sum(option is not None for option in (why, against, recipe_file)) > 1:
        raise click.UsageError("give one of --why, --against and --recipe")
    document = load_plan_or_deployment(plan_file)
    if isinstance(document, Plan):
        if against is None and recipe_file is None:
            return _plan(document, plan_file, why, brief, as_json)
        deployment, architecture, model = document.deployment, document.model, document.gpu_model
    elif against is None and recipe_file is None:
        raise error("EXPLAIN-NEEDS-PLAN", plan_file, "is a deployment, which has no commands yet")
    else:
        deployment, model = document, gpu
        architecture = load_architecture(document, config_json, plan_file)
    if recipe_file is not None:
        result = judge(read_text(recipe_file), architecture, deployment, model, recipe_file)
        return _recipe(result, deployment, model, recipe_file, as_json)
    if isinstance(document, Plan):
        return _against(cases_of(document), str(against), as_json)
    return _against((case_of(deployment, architecture, model),), str(against), as_json)


def _plan(plan: Plan, name: str, why: str | None, brief: bool, as_json: bool) -> int:
    rows = explained(plan)
    if why is not None:
        answer = why_element(plan, rows, why, name)
        if as_json:
            print_document({"schema": "apiary.why/v1", "host": plan.host, **to_document(answer)})
        else:
            echo("\n".join(answer.lines()))
        return 0
    if as_json:
        elements = [
            {
                "element": text,
                "rule": row.reason.rule,
                "reason": row.reason.reason,
                "source": row.reason.source,
                "replicas": [
                    who for who, other in zip(row.replicas, row.texts, strict=True) if other == text
                ],
            }
            for row in rows
            for text in dict.fromkeys(row.texts)
        ]
        print_document(
            {
                "schema": "apiary.explanation/v1",
                "host": plan.host,
                "elements": elements,
                "layouts": plan.layouts,
            }
        )
        return 0
    echo("\n".join(summary(plan)))
    if plan.layouts is not None:
        show(layout_table(plan.layouts))
    if not brief:
        show_elements(rows, len(plan.replicas))
    return 0


def _against(cases: tuple[Case, ...], version: str, as_json: bool) -> int:
    """Print what changes for each kind of engine; what the version refuses comes first."""
    engines, warnings = [], []
    refused = False
    for case in cases:
        after = case.on_version(version)
        changes = migration(case.recipe, after)
        size = case.deployment.decided.tensor_parallel_size
        engines.append(
            {"tensor_parallel_size": size, "replicas": case.replicas, "changes": changes}
        )
        refused = refused or bool(after.refused)
        warnings += [finding for finding in after.recipe.findings if finding.severity == "warning"]
        if not as_json:
            title = f"vLLM {case.recipe.version} to {version}"
            title += f", TP{size}" if len(cases) > 1 else ""
            show_changes(changes, title)
    if as_json:
        before = cases[0].recipe.version
        document = {"schema": "apiary.migration/v1", "from": before, "to": version}
        print_document({**document, "refused": refused, "engines": engines})
    report(dict.fromkeys(warnings), as_json)
    return EXIT_FINDINGS if refused else 0


def _recipe(
    found: Review, deployment: Deployment, gpu_model: str | None, file: str, as_json: bool
) -> int:
    """Print what is wrong with a command, the gravest first, and what would be run instead."""
    version = deployment.engine.version
    if as_json:
        document = {"schema": "apiary.review/v1", "version": version}
        print_document({**document, **to_document(found)})
        return exit_code(found.findings)
    title = f"{file} on {gpu_model or 'an unknown GPU'}, vLLM {version}"
    show_problems(found.findings, title, file)
    if found.attention_backend is not None:
        echo(f"attention backend of this command: {found.attention_backend}")
    if found.recipe is None:
        echo("Apiary would not run this layout with these limits: plan it to see why")
    else:
        echo("what Apiary would run for the same model, layout and limits:")
        echo("\n".join(command_lines(found.recipe)))
    return exit_code(found.findings)
