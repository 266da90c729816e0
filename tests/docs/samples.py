# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The documents that a reader has by the time that a page speaks of them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import yaml
from ansible_collections.apiary.instinct.plugins.plugin_utils.bench.types import Interval
from ansible_collections.apiary.instinct.plugins.plugin_utils.documents import dumps, to_document
from ansible_collections.apiary.instinct.plugins.plugin_utils.plan.build import architecture_of
from ansible_collections.apiary.instinct.plugins.plugin_utils.plan.types import Plan
from ansible_collections.apiary.instinct.plugins.plugin_utils.tune import steps
from ansible_collections.apiary.instinct.plugins.plugin_utils.tune.types import (
    Budget,
    Outcome,
    Question,
    Tune,
)

from support.bench.documents import BLOG, DP2, SLO, TP8, Curve, bench
from support.demo import demo_deployment, demo_plan
from support.planned import build_plan
from support.topology.simulated import simulated_evidence
from support.topology.topologies import mi325x

IMAGE = f"docker.io/vllm/vllm-openai-rocm@sha256:{'5' * 64}"
LEVELS = (1, 8, 64, 128)
CURVES = {"DP2/TP4/EP4": DP2, "DP1/TP8/EP8": TP8}


def lay_out(work: Path) -> None:
    """Put the documents on a desk."""
    deployment(work)
    made = {
        "plan.json": demo_plan(),
        "artifacts/gpu-001/plan.json": _in_containers(),
        "artifacts/gpu-001/topology.json": mi325x(),
    }
    for name, curve in {"dp2-tp4": DP2, "tp8": TP8}.items():
        layout = "DP2/TP4/EP4" if curve is DP2 else "DP1/TP8/EP8"
        made[f"{name}.json"] = bench(layout, curve, steps=LEVELS)
        for life in (1, 2):
            made[f"{name}-{life}.json"] = bench(layout, curve, steps=LEVELS, seed=life)
    for name, curve in {"off": Curve(0.0150), "on": DP2, "last-week": DP2, "today": DP2}.items():
        made[f"{name}.json"] = bench("DP2/TP4/EP4", curve, steps=LEVELS)
    for name, document in made.items():
        _write(work / name, dumps(document))
    _write(work / "tuning/state.json", dumps(_tuned(work / "tuning")))
    evidence = {**simulated_evidence(), "host": "gpu-001"}
    _write(work / "evidence/gpu-001.json", json.dumps(evidence))


def deployment(work: Path) -> None:
    """Write deployment.yml, what the demo serves, and the image that it could be served from."""
    asked = demo_deployment()
    asked = replace(asked, engine=replace(asked.engine, image=IMAGE))
    _write(work / "deployment.yml", yaml.safe_dump(to_document(asked)))


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def _in_containers() -> Plan:
    """Return the demo's plan, to be run from an image."""
    asked = demo_deployment()
    asked = replace(asked, engine=replace(asked.engine, runtime="quadlet", image=IMAGE))
    return build_plan(asked, mi325x(), architecture_of(asked, "demo"))


def _tuned(place: Path) -> Tune:
    """Return the state of a tuning between two layouts, its trials beside it."""
    question = Question(
        replace(demo_deployment(), layout="auto"),
        BLOG,
        SLO,
        layouts=tuple(CURVES),
        knobs={},
        budget=Budget(engine_runs=2, confirm_engine_runs=0),
        hosts=("gpu-001",),
    )
    state = steps.begin(question, architecture_of(question.deployment, "tuned"), mi325x())
    while state.choice is None:
        for trial in steps.assign(state, ["gpu-001"]):
            layout = state.candidate(trial.candidate).layout
            path = f"trial-{len(state.trials)}.json"
            seed = len(state.trials)
            measured = bench(layout, CURVES[layout], steps=(1, 8), engine_runs=1, seed=seed)
            _write(place / path, dumps(measured))
            score = Interval(1, 12.8 if layout == "DP2/TP4/EP4" else 8.3)
            done = Outcome("measured", score, score.mean * 1.02, path=path, seconds=60)
            state = steps.record(state, trial, done)
    return state
