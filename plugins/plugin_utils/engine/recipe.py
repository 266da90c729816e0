# SPDX-License-Identifier: GPL-3.0-or-later

"""The command of one engine: env and argv for an exact vLLM version, each element explained."""

from __future__ import annotations

from collections.abc import Iterator

from ..deployment import Deployment, check_deployment
from ..findings import ApiaryError, Finding, has_errors
from ..model.types import Architecture
from .advisories import advisories
from .assembly import Assembly
from .attention import RULE, Choice
from .facts import ALONE, NodeRank, facts, with_profile
from .flags import resolve_version
from .rules import by_id, rules
from .types import Assessment, Reason, Recipe
from .values import checks, nearest


def recipe(
    architecture: Architecture,
    deployment: Deployment,
    gpu_model: str | None,
    port: int,
    node: NodeRank = ALONE,
) -> Recipe:
    """Return the engine's env and argv (`serve MODEL …`), every element with rule and source.

    ``gpu_model`` is a name of knowledge/gpus, such as MI325X; ``node`` matters to an engine on
    several hosts. Raises ApiaryError with every
    refusal at once, and the warnings; these and the notes are otherwise in the recipe's findings.
    """
    assessment = assess(architecture, deployment, gpu_model, port, node)
    if assessment.refused:
        warnings = (item for item in assessment.recipe.findings if item.severity == "warning")
        raise ApiaryError(*(refused.finding for refused in assessment.refused), *warnings)
    return assessment.recipe


def assess(
    architecture: Architecture,
    deployment: Deployment,
    gpu_model: str | None,
    port: int,
    node: NodeRank = ALONE,
) -> Assessment:
    """Return the recipe as if every refusal had been forced, and the refusals.

    Raises ApiaryError only for a deployment that cannot be read: a malformed field, no such
    version or profile, a `force` that names no rule.
    """
    findings = [*check_deployment(deployment), *_check_force(deployment)]
    if has_errors(findings):
        raise ApiaryError(*findings)
    engine, deployment = deployment.engine, with_profile(deployment)
    resolved = resolve_version(engine.version, engine.treat_as)
    values = facts(architecture, deployment, gpu_model, resolved.version, port, node)
    assembly = Assembly(values, engine.args, engine.env, deployment.force)
    assembly.apply(rules(), advisories())
    result = Recipe(
        engine=engine.name,
        version=engine.version,
        env=assembly.env(),
        argv=("serve", deployment.model.path, *assembly.argv()),
        reasons=(
            Reason("model", "DEPLOYMENT", "where the weights lie on the host", "model.path"),
            *assembly.reasons.values(),
        ),
        findings=(
            *findings,
            *resolved.findings,
            *assembly.findings,
            *_unused(deployment, assembly.used),
        ),
        attention_backend=assembly.choice.backend,
        attention_reason=_backend_reason(assembly.choice),
        rules_of=resolved.version,
    )
    return Assessment(result, tuple(assembly.refused))


def _backend_reason(choice: Choice) -> Reason | None:
    if choice.backend is None:
        return None
    return Reason("attention backend", RULE, choice.because, by_id()[RULE].source)


def _forcible() -> dict[str, bool]:
    """Return the ids that `force` may know, and whether it may name them."""
    forcible = {r.id: True for r in (*rules(), *advisories()) if r.kind == "refuse"}
    return forcible | {check.id: check.forcible for check in checks()}


def _check_force(deployment: Deployment) -> Iterator[Finding]:
    """Refuse a `force` that names no rule, or one that cannot be forced."""
    forcible = _forcible()
    for name in deployment.force:
        if forcible.get(name):
            continue
        close = nearest(name, [item for item, allowed in forcible.items() if allowed])
        wrong = "cannot be forced" if name in forcible else "is no rule that refuses anything"
        yield Finding("ENGINE-FORCE-UNKNOWN", "force", f"{name} {wrong}", nearest=close or "none")


def _unused(deployment: Deployment, used: set[str]) -> Iterator[Finding]:
    """Say of a `force` that nothing had to be forced."""
    for name in deployment.force:
        if name not in used:
            yield Finding("ENGINE-FORCE-UNUSED", "force", f"{name} refuses nothing here")
