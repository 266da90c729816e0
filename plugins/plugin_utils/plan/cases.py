# SPDX-License-Identifier: GPL-3.0-or-later

"""The engines of a plan or deployment, to be compared with other versions and other commands."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass

from ..deployment import Deployment
from ..engine.facts import ALONE, NodeRank
from ..engine.flags import resolve_version
from ..engine.recipe import assess
from ..engine.review import Review, deployment_of, flags_of, review, spoken
from ..engine.types import Assessment, Recipe
from ..findings import Finding
from ..gpus import gpu_facts
from ..model.types import Architecture
from .engines import Engines
from .nodes import rank_of
from .replica import start_timeout
from .types import Plan, Replica


@dataclass(frozen=True)
class Case:
    """One kind of engine: what it is asked to be, and its recipe as it stands.

    ``replicas`` are those of the plan that have it; none for a deployment that was not planned.
    """

    replicas: tuple[int, ...]
    deployment: Deployment
    architecture: Architecture
    gpu_model: str | None
    recipe: Recipe
    node: NodeRank = ALONE

    def on_version(self, version: str) -> Assessment:
        """Return the recipe of another engine version, with what that one refuses."""
        engine = dataclasses.replace(self.deployment.engine, version=version, treat_as=None)
        asked = dataclasses.replace(self.deployment, engine=engine)
        return assess(
            self.architecture, asked, self.gpu_model, self.deployment.base_port, self.node
        )


def cases_of(plan: Plan) -> tuple[Case, ...]:
    """Return each size of engine that a plan has, with its first replica's recipe."""
    engines = plan.layout.engines
    cases = []
    for engine in dict.fromkeys(engines):
        replicas = tuple(index for index, other in enumerate(engines) if other == engine)
        first = plan.replicas[replicas[0]]
        layout = dataclasses.replace(engine, replicas=len(replicas))
        timeout = start_timeout(plan, first)
        limits = dataclasses.replace(plan.deployment.limits, start_timeout_seconds=timeout)
        candidate = dataclasses.replace(
            plan.deployment, layout=layout, base_port=first.port, limits=limits
        )
        recipe = _recipe_of(first, candidate)
        node = rank_of(plan.node, first.master_port)
        cases.append(Case(replicas, candidate, plan.model, plan.gpu_model, recipe, node))
    return tuple(cases)


def case_of(deployment: Deployment, architecture: Architecture, gpu_model: str | None) -> Case:
    """Return the engine of a deployment that names its layout; raises DEPLOY-LAYOUT-OPEN."""
    decided = dataclasses.replace(deployment, layout=deployment.decided)
    recipe = assess(architecture, decided, gpu_model, deployment.base_port).recipe
    return Case((), decided, architecture, gpu_model, recipe)


def judge(
    text: str, architecture: Architecture, deployment: Deployment, gpu_model: str | None, file: str
) -> Review:
    """Return the review of a shell command, with what it takes up and whether it is of this model.

    The command's own layout and limits hold. Raises ApiaryError as ``engine.review.review`` does.
    """
    reviewed = review(text, architecture, deployment, gpu_model, file)
    rebuilt = deployment_of(reviewed.command, deployment, reviewed.rules_of)
    where = f"{file}:{reviewed.command.line}"
    more = list(_other_model(reviewed.command.model, deployment, where))
    vram = gpu_facts(gpu_model).memory.gib
    engines = Engines(rebuilt, architecture, gpu_model, vram << 30 if vram else None)
    needs = engines.memory(
        rebuilt.decided,
        reviewed.rules_of,
        {name: text for name, (text, _line) in reviewed.command.env.items()},
        flags_of(reviewed.command, reviewed.rules_of),
    )
    more += [
        item.about(where).reworded(remedy=spoken(item.remedy))
        for item in needs.findings
        if item.severity == "error"
    ]
    return dataclasses.replace(reviewed, findings=(*more, *reviewed.findings))


def _other_model(model: str | None, deployment: Deployment, where: str) -> Iterator[Finding]:
    """Say of a command that serves another model than the one it is judged as."""
    expected = (deployment.model.name, deployment.model.path)
    ends = {name.rstrip("/").rpartition("/")[2] for name in expected}
    if model is None or model in expected or model.rstrip("/").rpartition("/")[2] in ends:
        return
    yield Finding(
        "EXPLAIN-OTHER-MODEL",
        where,
        f"the command serves {model}, and is judged as {deployment.model.name}",
    )


def _recipe_of(replica: Replica, deployment: Deployment) -> Recipe:
    """Return a replica's recipe, without what the plan added to it for its unit."""
    engine = deployment.engine
    added = {reason.element for reason in replica.reasons if reason.rule.startswith("SERVE-")}
    return Recipe(
        engine=engine.name,
        version=engine.version,
        env={name: value for name, value in replica.env.items() if name not in added},
        argv=replica.argv[1:],
        reasons=tuple(reason for reason in replica.reasons if reason.element not in added),
        attention_backend=replica.attention_backend,
        attention_reason=replica.attention_reason,
        rules_of=resolve_version(engine.version, engine.treat_as).version,
    )
