# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Ablation: what one flag of a deployment is worth, as deployed against without it, in turns.

It is a tuning of two candidates that begins with the finals: nothing is chosen among many, so
nothing has to be confirmed, and the verdict may be that no difference was found.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import fields, replace
from typing import Any

import yaml

from ..deployment import Limits
from ..documents import knowledge
from ..findings import ApiaryError, error
from . import candidates, choice, knobs, trials
from .types import Budget, Candidate, NotTried, Question, Tune

STAGE = "ablation"


def read(text: str) -> tuple[str, Any]:
    """Return the path and the value that FLAG=VALUE means, None as the value of a FLAG alone.

    FLAG is a knob's name, a path such as engine.args.FLAG, a limit, an environment variable in
    capitals, or a flag of the engine. Raises ApiaryError TRIAL-KNOB.
    """
    name, equals, told = text.partition("=")
    plain = name.strip().removeprefix("--")
    known = knowledge("tune.yml")["knobs"]
    limit = plain.replace("-", "_")
    if plain in known:
        path = str(known[plain]["path"])
    elif plain.startswith(knobs.SECTIONS) and not plain.endswith("."):
        path = plain
    elif limit in {one.name for one in fields(Limits)}:
        path = f"limits.{limit}"
    elif re.fullmatch(r"[A-Z][A-Z0-9_]+", plain):
        path = f"engine.env.{plain}"
    elif re.fullmatch(r"[a-z][a-z0-9-]+", plain):
        path = f"engine.args.{plain}"
    else:
        raise _wrong(text, "names no flag")
    if not equals:
        return path, None
    try:
        value = told if path.startswith("engine.env.") else yaml.safe_load(told)
    except yaml.YAMLError:
        raise _wrong(text, "has a value that cannot be read") from None
    if value is None or value == "":
        raise _wrong(text, "has no value after its =")
    return path, value


def question(requested: Question, text: str) -> Question:
    """Return the question of an ablation: the deployment as it is, and with one change.

    Five runs each find a difference of a tenth where restarts differ as published; a repeat is
    only for what was chosen for being high.
    """
    path, value = read(text)
    budget, usual = requested.budget, Budget()
    entry = knowledge("tune.yml")["ablation"]
    if budget.engine_runs == usual.engine_runs:
        budget = replace(budget, engine_runs=int(entry["engine_runs"]))
    budget = replace(budget, confirm_engine_runs=0)
    return replace(requested, layouts=(), knobs={path: (value,)}, budget=budget, ablate=path)


def other(world: candidates.World, current: Candidate) -> Candidate:
    """Return the deployment with the change; raises TRIAL-NOTHING where it changes nothing."""
    ((path, (value,)),) = (world.question.knobs or {}).items()
    label = f"{current.label} {knobs.label(path, value)}"
    made = candidates.one_change(world, label, {path: value}, STAGE)
    if isinstance(made, NotTried):
        raise error(
            "TRIAL-NOTHING",
            world.question.deployment.name,
            f"{knobs.label(path, value)}: {made.reason}",
        )
    return made


def told(state: Tune) -> Iterator[str]:
    """Yield the answer in words: the verdict, its interval, and what it could have found."""
    made, name = state.choice, state.requested.deployment.name
    (changed,) = (one for one in state.candidates if one.stage == STAGE)
    ((path, value),) = changed.changes.items()
    label = knobs.label(path, value)
    comparisons = made.comparisons if made else ()
    found = next((one for one in comparisons if one.candidate == changed.id), None)
    if found is None:
        gone = [one for one in state.candidates if trials.out(state, one.id) is not None]
        why = "; ".join(f"{one.label}: {trials.out(state, one.id)}" for one in gone)
        yield f"{name}, {label} against as deployed: not decided{': ' * bool(why)}{why}"
        return
    yield f"{name}, {label} against as deployed: {choice.say(found)}"
    engine_runs = [len(trials.decided(state, "final", one.id)) for one in state.candidates]
    if found.detectable is not None:
        yield (
            f"  {min(engine_runs)} runs of each engine, in turns on one host: a difference of "
            f"{found.detectable:.1%} would most likely have shown"
        )


def _wrong(text: str, problem: str) -> ApiaryError:
    return error("TRIAL-KNOB", f"tune_ablate={text}", problem)
