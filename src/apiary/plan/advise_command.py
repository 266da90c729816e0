# SPDX-License-Identifier: GPL-3.0-or-later

"""`apiary advise`: the known defects of an engine release on a GPU, and what an upgrade changes."""

from __future__ import annotations

from typing import Any

import click
from ansible_collections.apiary.instinct.plugins.plugin_utils.engine.advisories import (
    Advisory,
    advisories,
    release_facts,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.engine.conditions import Fact
from ansible_collections.apiary.instinct.plugins.plugin_utils.gpus import gpu_models

from apiary.app.inputs import json_option
from apiary.app.output import echo, grid, print_document, show
from apiary.plan.model_command import read_model


@click.command()
@click.option("--engine", "release", required=True, metavar="VERSION", help="Release of vLLM.")
@click.option("--from", "before", metavar="VERSION", help="Also what changes since this one.")
@click.option(
    "--gpu",
    type=click.Choice(list(gpu_models())),
    default="MI325X",
    show_default=True,
    help="The GPU.",
)
@click.option("--model", "config_json", type=click.Path(), help="Only what concerns this model.")
@click.option("--aiter", metavar="VERSION", help="AITER, where it is not the official image's.")
@click.option("--rocm", metavar="VERSION", help="ROCm, where it is not the official image's.")
@json_option
def advise(
    release: str,
    before: str | None,
    gpu: str,
    config_json: str | None,
    aiter: str | None,
    rocm: str | None,
    as_json: bool,
) -> int:
    """List what is known to go wrong with a release on a GPU: what to read before an upgrade.

    Each with what it hangs on, what to do, and the thread that says so. --model takes a config.json
    or a directory with one, or the name of a model that Apiary knows.

    \b
    apiary advise --engine 0.33.0 --gpu MI325X
    apiary advise --engine 0.33.0 --from 0.28.0 --model config.json
    """
    architecture = read_model(config_json)[0] if config_json else None
    given = {name: text for name, text in (("aiter", aiter), ("rocm", rocm)) if text}
    facts = {**release_facts(release, gpu, architecture), **given}
    known = _possible(facts)
    changes = {}
    if before:
        earlier = _possible(release_facts(before, gpu, architecture))
        changes["brings"] = [name for name in known if name not in earlier]
        changes["ends"] = [name for name in earlier if name not in known]
    if as_json:
        about = {name: facts.get(name) for name in ("release", "gpu", "aiter", "rocm")}
        document = {"schema": "apiary.advisories/v1", **about, "from": before, **changes}
        print_document({**document, "advisories": [_row(*each) for each in known.values()]})
        return 0
    stack = f"AITER {facts.get('aiter', 'unknown')}, ROCm {facts.get('rocm', 'unknown')}"
    title = f"vLLM {release} on {gpu} ({stack})"
    columns = ("advisory", "what happens", "when", "what to do")
    show(grid(title, columns, (_cells(*each) for each in known.values())))
    for name, (advisory, _hangs_on) in known.items():
        echo(f"{name}: {advisory.source}")
    for name, ids in changes.items():
        echo(f"the upgrade from {before} {name}: {', '.join(ids) or 'none'}")
    return 0


def _possible(facts: dict[str, Fact]) -> dict[str, tuple[Advisory, str]]:
    """Return the advisories that may apply, by id, each with what it hangs on, in words."""
    pairs = ((advisory, advisory.possible(facts)) for advisory in advisories())
    return {advisory.id: (advisory, words) for advisory, words in pairs if words is not None}


def _row(advisory: Advisory, hangs_on: str) -> dict[str, Any]:
    names = ("id", "symptom", "says", "proof", "read", "fixed", "avoid", "source", "severity")
    fields = {name: getattr(advisory, name) for name in names}
    return {**fields, "versions": str(advisory.versions), "when": hangs_on, "do": advisory.remedy}


def _cells(advisory: Advisory, hangs_on: str) -> tuple[str, ...]:
    what = f"{advisory.effect['message']} ({advisory.reason})"
    return advisory.id, what, hangs_on or "always", advisory.remedy
