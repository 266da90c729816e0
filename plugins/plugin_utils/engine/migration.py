# SPDX-License-Identifier: GPL-3.0-or-later

"""What changes when the same deployment moves to another vLLM version, and why."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from ..documents import knowledge
from .advisories import advisory
from .flags import SOURCE, actions, env_vars, flags, seen_in
from .rules import by_id
from .types import Assessment, Reason, Recipe

Kind = Literal["refused", "removed", "renamed", "added", "changed", "backend", "default"]
_RENAMED = "knowledge/vllm/renamed.yml"


@dataclass(frozen=True)
class Change:
    """One change: the element as it was and as it will be (None: not there), why, and from where.

    Kinds: refused (the new version does not take it), removed, renamed (another spelling), added,
    changed (another value), backend (another attention backend), default (vLLM's own default
    changed under what the recipe leaves out).
    """

    element: str
    kind: Kind
    before: str | None
    after: str | None
    reason: str
    source: str


@dataclass(frozen=True)
class _Element:
    """One flag or variable of a recipe: its spelling and its value as text."""

    name: str
    text: str
    reason: Reason


def migration(before: Recipe, after: Recipe | Assessment) -> tuple[Change, ...]:
    """Return what changes from one recipe to that of another version.

    With an Assessment, what the other version refuses comes first.
    """
    changes: list[Change] = []
    if isinstance(after, Assessment):
        for finding in (item.finding for item in after.refused):
            reason = f"{finding.message}; {finding.remedy}"
            source = finding.source or SOURCE
            changes.append(Change(finding.subject, "refused", None, None, reason, source))
        after = after.recipe
    changes += _elements(before, after)
    changes += _backend(before, after)
    changes += _defaults(before, after)
    return tuple(changes)


def parts(recipe: Recipe) -> dict[str, _Element]:
    """Return a recipe's elements by what they set: `env NAME` or `flag dest`."""
    accepted = flags(recipe.rules_of)
    reasons = {reason.element: reason for reason in recipe.reasons}
    result = {
        f"env {name}": _Element(name, value, reasons[name]) for name, value in recipe.env.items()
    }
    name, values = "", list[str]()

    def close() -> None:
        if name:
            base, _dot, inner = name.partition(".")
            dest = accepted[base].dest if base in accepted else base.lstrip("-").replace("-", "_")
            key = f"flag {dest}.{inner}" if inner else f"flag {dest}"
            text = " ".join(values)
            if key in result:  # one that may be given several times
                text = f"{result[key].text} {name} {text}"
            result[key] = _Element(name, text, reasons[name])

    for part in recipe.argv[2:]:
        if part in reasons and part.startswith("-"):
            close()
            name, values = part, []
        else:
            values.append(part)
    close()
    return result


def _elements(before: Recipe, after: Recipe) -> Iterator[Change]:
    old, new = parts(before), parts(after)
    for key, element in old.items():
        other, name = new.get(key), element.name
        if other is None:
            yield _removed(element, before, after)
        elif other.name != name:
            reason = f"vLLM {after.rules_of} spells it {other.name}"
            yield Change(name, "renamed", _shown(element), _shown(other), reason, SOURCE)
        elif other.text != element.text:
            because = other.reason
            change = (element.text, other.text, because.reason, because.source)
            yield Change(name, "changed", *change)
    for key, element in new.items():
        if key not in old:
            reason, source = _since(element.reason), element.reason.source
            yield Change(element.name, "added", None, _shown(element), reason, source)


def _shown(element: _Element) -> str:
    if not element.name.startswith("-"):
        return f"{element.name}={element.text}"
    return f"{element.name} {element.text}".rstrip()


def _since(reason: Reason) -> str:
    """Return an element's reason, and since when its rule holds."""
    rule = by_id().get(reason.rule) or advisory(reason.rule)
    if rule is None or str(rule.versions) == "all":
        return reason.reason
    return f"{reason.reason} (for {rule.versions})"


def _removed(element: _Element, before: Recipe, after: Recipe) -> Change:
    """Return why an element of the old recipe is not in the new one."""
    group = "flags" if element.name.startswith("-") else "env"
    names = flags(after.rules_of) if group == "flags" else env_vars(after.rules_of)
    advice = knowledge("vllm/renamed.yml")[group].get(element.name)
    rule = by_id().get(element.reason.rule) or advisory(element.reason.rule)
    if element.name not in names and (group == "flags" or element.name.startswith("VLLM_")):
        reason = f"vLLM {after.rules_of} does not know it; it is known in {seen_in(element.name)}"
        source = _RENAMED if advice else SOURCE
        reason += f"; {advice}" if advice else ""
    elif rule is not None and not rule.versions.covers(after.rules_of):
        reason = f"it was needed for {rule.versions} only: {element.reason.reason}"
        source = rule.source
    else:
        reason = f"vLLM {after.rules_of} no longer needs it: {element.reason.reason}"
        source = element.reason.source
    return Change(element.name, "removed", _shown(element), None, reason, source)


def _backend(before: Recipe, after: Recipe) -> Iterator[Change]:
    old, new = before.attention_backend, after.attention_backend
    if old != new and new is not None and after.attention_reason is not None:
        because = after.attention_reason
        yield Change("attention backend", "backend", old, new, because.reason, because.source)


def _defaults(before: Recipe, after: Recipe) -> Iterator[Change]:
    """Yield vLLM's own defaults that differ, for what neither recipe says."""
    stated = {*parts(before), *parts(after)}
    reason = f"vLLM's own default differs between {before.rules_of} and {after.rules_of}"
    ignored = tuple(knowledge("vllm/renamed.yml")["defaults_of_no_matter"])
    old = {flag.dest: flag for flag in actions(before.rules_of)}
    pairs = [
        (f"flag {flag.dest}", flag.name, old[flag.dest].default, flag.default)
        for flag in actions(after.rules_of)
        if flag.dest in old
    ]
    supported = env_vars(before.rules_of)
    pairs += [
        (f"env {name}", name, supported[name].default, variable.default)
        for name, variable in env_vars(after.rules_of).items()
        if name in supported and name.startswith("VLLM_")
    ]
    for key, name, first, second in pairs:
        # A default that is computed in one of the versions cannot be compared.
        if key in stated or None in (first, second) or first == second:
            continue
        if not any(part in name for part in ignored):
            yield Change(name, "default", _plain(first), _plain(second), reason, SOURCE)


def _plain(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
