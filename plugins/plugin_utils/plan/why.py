# SPDX-License-Identifier: GPL-3.0-or-later

"""Why one flag or variable is in a plan, or is not: its rule, and what is wrongly claimed of it."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from ..engine.advisories import advisories, advisory
from ..engine.elements import read_env, read_flag
from ..engine.flags import env_vars, flags, resolve_version
from ..engine.rules import Claim, Rule, by_id, rules
from ..findings import ApiaryError, error
from .explain import Explained, shown
from .types import Plan


@dataclass(frozen=True)
class Related:
    """Another rule that looks at the element in this version: when it acts, and why."""

    rule: str
    kind: str
    when: str
    reason: str
    source: str


@dataclass(frozen=True)
class Why:
    """All that is known of one element of a plan.

    ``when`` is the condition of its rule and ``versions`` where that holds; both empty where the
    element is not a rule's. ``claims`` are published ones that are not right for every version.
    """

    element: str
    texts: tuple[str, ...]
    replicas: tuple[int, ...]
    rule: str
    reason: str
    source: str
    version: str
    versions: str
    when: str
    default: str | None
    claims: tuple[Claim, ...]
    related: tuple[Related, ...]

    def lines(self) -> list[str]:
        """Return it for a person."""
        lines = [
            shown(self.texts),
            f"  why:      {self.reason}",
            f"  rule:     {self.rule}"
            + (f", for {self.versions} versions" if self.versions == "all" else "")
            + (f", for vLLM {self.versions}" if self.versions not in ("", "all") else "")
            + (f", when {self.when}" if self.when else ""),
            f"  source:   {self.source}",
        ]
        if self.default is not None:
            lines.append(f"  default:  {self.default} in vLLM {self.version}")
        for claim in self.claims:
            lines.append(f"  claimed:  {claim.says} ({claim.by})")
            lines.append(f"            {claim.verdict}")
        for other in self.related:
            lines.append(f"  see also: {other.rule} ({other.kind}) when {other.when}")
            lines.append(f"            {other.reason} [{other.source}]")
        return lines


def why_element(plan: Plan, rows: Sequence[Explained], asked: str, subject: str) -> Why:
    """Return why an element is in a plan; raises EXPLAIN-NO-ELEMENT with the nearest names.

    Any spelling of a flag that its vLLM takes will do, with or without dashes.
    """
    engine = plan.deployment.engine
    version = resolve_version(engine.version, engine.treat_as).version
    names = _spellings(asked, version)
    matches = [row for row in rows if _plain(row.name) in names]
    if not matches:
        raise _absent(asked, rows, version, subject)
    row = matches[0]
    rule = by_id().get(row.reason.rule) or advisory(row.reason.rule)
    facts = _facts_of(row.name, version)
    return Why(
        element=row.name,
        texts=row.texts,
        replicas=row.replicas,
        rule=row.reason.rule,
        reason=row.reason.reason,
        source=row.reason.source,
        version=version,
        versions=str(rule.versions) if rule else "",
        when=rule.when.words() if rule else "",
        default=_default(row.name, version),
        claims=tuple(_claims(rule, row.name)),
        related=tuple(_related(row.reason.rule, row.name, facts, version)),
    )


def _plain(name: str) -> str:
    return name.strip("()-").replace("_", "-").replace(" ", "-").lower()


def _spellings(asked: str, version: str) -> set[str]:
    """Return what an element may be called in a plan, from any spelling of it."""
    names = {_plain(asked)}
    bare = asked.strip().lstrip("-").partition("=")[0].replace("_", "-")
    for spelling in (f"--{bare}", f"-{bare}"):
        flag = flags(version).get(spelling)
        if flag is not None:
            names |= {_plain(name) for name in flag.names + flag.negative}
    return names


def _facts_of(name: str, version: str) -> set[str]:
    """Return what rules call an element: `flag attention_backend`, `env VLLM_ROCM_USE_AITER`."""
    flag = flags(version).get(name.partition(".")[0])
    return {f"flag {flag.dest}"} if flag else {f"env {name}"}


def _default(name: str, version: str) -> str | None:
    flag, variable = flags(version).get(name), env_vars(version).get(name)
    thing = flag or variable
    return None if thing is None or thing.default is None else str(thing.default)


def _about(rule: Rule, name: str) -> bool:
    """Say whether a rule's effect is on an element: it sets it, or its finding names it."""
    effect = rule.effect
    named = (effect.get("flag"), effect.get("env"), effect.get("field", "").rpartition(".")[2])
    return _plain(name) in {_plain(each) for each in named if each}


def _claims(own: Rule | None, name: str) -> Iterator[Claim]:
    """Yield what is claimed of the element: by its own rule, and by those that are about it."""
    if own is not None:
        yield from own.claims
    for rule in rules():
        if rule is not own and _about(rule, name):
            yield from rule.claims


def _related(own: str, name: str, facts: set[str], version: str) -> Iterator[Related]:
    """Yield the other rules that would act on another value of the element."""
    for rule in (*rules(), *advisories()):
        if rule.id == own or rule.kind == "set" or not rule.versions.covers(version):
            continue
        asks = any(fact in facts for fact in rule.when.facts())
        if _about(rule, name) or (asks and rule.kind == "refuse"):
            yield Related(rule.id, rule.kind, rule.when.words(), rule.reason, rule.source)


def _absent(asked: str, rows: Iterable[Explained], version: str, subject: str) -> ApiaryError:
    """Return the refusal: whether vLLM knows the element, and the nearest ones in the plan."""
    plain = {_plain(row.name): row.name for row in rows}
    close = [plain[name] for name in difflib.get_close_matches(_plain(asked), plain, 3, 0.5)]
    nearest = f"the nearest in it: {', '.join(close)}" if close else "without --why it lists all"
    bare = asked.strip().partition("=")[0]
    dashed = bare.lstrip("-").replace("_", "-")
    flag = flags(version).get(f"--{dashed}") or flags(version).get(f"-{dashed}")
    documented = flag or env_vars(version).get(bare)
    if documented is None:
        why = _unknown(bare, version)
    else:
        default = "" if documented.default is None else f" ({documented.default})"
        why = f"vLLM {version} knows it, and its own default{default} holds"
    message = f"{asked} is not in this plan: {why}"
    return error("EXPLAIN-NO-ELEMENT", subject, message, nearest=nearest)


def _unknown(name: str, version: str) -> str:
    """Return what the engine's knowledge says of an element that a version does not know."""
    reading = read_env(name, "1", version) if name.isupper() else read_flag(name, None, version)
    for finding in (problem.finding for problem in reading.problems[:1]):
        return f"{finding.message} ({finding.remedy})"
    return f"vLLM {version} does not know it either"
