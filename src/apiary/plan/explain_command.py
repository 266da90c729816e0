# SPDX-License-Identifier: GPL-3.0-or-later

"""`apiary explain`: why a plan is as it is, on another version, and against another command."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import click
from ansible_collections.apiary.instinct.plugins.plugin_utils.deployment import Deployment
from ansible_collections.apiary.instinct.plugins.plugin_utils.documents import to_document
from ansible_collections.apiary.instinct.plugins.plugin_utils.engine.migration import (
    Change,
    migration,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.engine.review import Review
from ansible_collections.apiary.instinct.plugins.plugin_utils.files import read_text
from ansible_collections.apiary.instinct.plugins.plugin_utils.findings import (
    Finding,
    by_severity,
    error,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.gpus import gpu_models
from ansible_collections.apiary.instinct.plugins.plugin_utils.plan.cases import (
    Case,
    case_of,
    cases_of,
    judge,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.plan.explain import (
    Explained,
    command_lines,
    explained,
    grouped,
    shown,
    summary,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.plan.types import (
    ConsideredLayout,
    LayoutChoice,
    Plan,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.plan.why import why_element
from rich.table import Table
from rich.text import Text

from apiary.app.inputs import json_option, load_architecture, load_plan_or_deployment
from apiary.app.output import EXIT_FINDINGS, echo, exit_code, print_document, report, show


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


GIB = 2**30
MOST_LAYOUTS = 8  # in a table that is read


class Sources:
    """Numbers sources in the order they are cited, to be listed once at the end."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def cite(self, source: str | None) -> str:
        """Return "[3]" for a source, nothing for none."""
        if not source:
            return ""
        return f"[{self._numbers.setdefault(source, len(self._numbers) + 1)}]"

    def show(self) -> None:
        for source, number in self._numbers.items():
            echo(f"[{number}] {source}")


def _table(title: str, whole: Sequence[str], shares: Mapping[str, int]) -> Table:
    """Return an empty table: columns that are never broken, then those that share the rest."""
    table = Table(title=title, title_justify="left", expand=True)
    for name in whole:
        table.add_column(name, no_wrap=True)
    for name, share in shares.items():
        table.add_column(name, ratio=share, overflow="fold")
    return table


def show_elements(rows: Sequence[Explained], replicas: int) -> None:
    """Print the elements in groups, each with what it is about, then the sources."""
    sources = Sources()
    shares = {"element": 5, "why": 6, "rule [source]": 3}
    table = _table("the command, element by element", (), shares)
    for title, about, members in grouped(rows):
        table.add_section()
        table.add_row(Text(title, style="bold"), Text(about, style="italic"))
        for row in members:
            who = "" if len(row.replicas) == replicas else f"  (replica {_numbers(row.replicas)})"
            rule = f"{row.reason.rule} {sources.cite(row.reason.source)}"
            table.add_row(shown(row.texts) + who, row.reason.reason, rule)
    show(table)
    sources.show()


def show_changes(changes: Sequence[Change], title: str) -> None:
    """Print what changes from one version to another, one row an element."""
    if not changes:
        echo(f"{title}: nothing changes")
        return
    sources = Sources()
    table = _table(title, ("element", "change"), {"before": 3, "after": 3, "why": 6})
    for change in changes:
        why = f"{change.reason} {sources.cite(change.source)}"
        table.add_row(change.element, change.kind, change.before or "", change.after or "", why)
    show(table)
    sources.show()


def show_problems(findings: Sequence[Finding], title: str, file: str) -> None:
    """Print what is wrong with a file and what to do, the gravest first."""
    if not findings:
        echo(f"{title}: nothing is wrong")
        return
    sources = Sources()
    table = _table(title, ("line", "", "finding"), {"what": 1, "do": 1})
    for finding in sorted(findings, key=by_severity):
        table.add_row(
            finding.subject.removeprefix(f"{file}:"),
            finding.severity,
            finding.code,
            f"{finding.message} {sources.cite(finding.source)}",
            finding.remedy,
        )
    show(table)
    sources.show()


def _numbers(replicas: Sequence[int]) -> str:
    return ",".join(map(str, replicas))


def layout_table(choice: LayoutChoice) -> Table:
    """Return the layouts preferred most; impossible ones with one reason share a row."""
    table = Table(
        title=f"layouts, in the order preferred for {choice.preference} ({choice.because})",
        title_justify="left",
    )
    for name in ("layout", "verdict"):
        table.add_column(name, overflow="fold", max_width=24)
    for name in ("weights\nGiB/GPU", "KV tokens\non the host", "free\nGPUs"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("why", overflow="fold", ratio=1)
    kept = [item for item in choice.considered if item.verdict != "dropped"]
    for item in kept[:MOST_LAYOUTS]:
        style = "bold" if item.verdict == "chosen" else None
        table.add_row(item.name, item.verdict, *_layout_numbers(item), item.reason, style=style)
    if others := kept[MOST_LAYOUTS:]:
        why = f"{len(others)} more, less preferred; --json has them"
        table.add_row("…", "possible", "", "", "", why, style="dim")
    for names, reason in _dropped(choice):
        table.add_row(names, "impossible", "", "", "", reason, style="dim")
    return table


def _layout_numbers(layout: ConsideredLayout) -> Iterator[str]:
    weights, tokens = layout.weights_bytes_per_gpu, layout.kv_tokens_per_host
    yield "?" if weights is None else f"{weights / GIB:.1f}"
    yield "?" if tokens is None else f"{tokens:,}"
    yield "?" if layout.free_gpus is None else str(layout.free_gpus)


def _dropped(choice: LayoutChoice) -> Iterator[tuple[str, str]]:
    """Yield the names of impossible layouts that one kind of finding drops, and what it says."""
    kinds: dict[tuple[str, ...], list[ConsideredLayout]] = {}
    for item in choice.considered:
        if item.verdict == "dropped":
            kinds.setdefault(item.codes, []).append(item)
    for codes, members in kinds.items():
        names = " ".join(member.name for member in members)
        more = "" if len({member.reason for member in members}) == 1 else "; the others likewise"
        yield names, f"{members[0].reason}{more} ({', '.join(codes)})"
