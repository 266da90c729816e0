# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""docs/reference/rules.md: every rule with its condition, effect, reason, source and versions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ansible_collections.apiary.instinct.plugins.plugin_utils.documents import knowledge
from ansible_collections.apiary.instinct.plugins.plugin_utils.engine.conditions import (
    parse,
    read_span,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.engine.flags import versions
from ansible_collections.apiary.instinct.plugins.plugin_utils.engine.rules import Rule, rules
from ansible_collections.apiary.instinct.plugins.plugin_utils.engine.values import checks

_KINDS = ("set", "refuse", "warn", "note")
HEAD = """# Engine rules

How Apiary makes the command of one vLLM engine, and what it refuses. Rules are evaluated from top
to bottom: elements first, then what the whole command is. `force` in a deployment may name rules
that refuse, and the checks marked so; their refusals are then warnings. `stage` says where vLLM
itself stops on what a rule refuses: its parser, its configuration, the choice of an attention
backend, loading (weights, layers, caches) or running; a dash means that it goes on, and that the
result would be ignored or wrong.

Known versions: {versions}. An unknown version gets the rules of the nearest known one below it,
with a warning ([add a version](../how-to/add-a-vllm-version.md)).
"""


def cell(text: str) -> str:
    """Return text that stays within a table's cell."""
    return " ".join(text.split()).replace("|", "\\|")


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> Iterator[str]:
    """Yield a Markdown table."""
    names = list(head)
    yield "| " + " | ".join(names) + " |"
    yield "|" + "---|" * len(names)
    for row in rows:
        yield "| " + " | ".join(map(cell, row)) + " |"
    yield ""


def element(rule: Rule) -> str:
    """Return what an element rule sets, as it stands in a command."""
    name, value = rule.effect.get("env") or rule.effect["flag"], rule.effect.get("value", "")
    return f"`{name}={value}`" if "env" in rule.effect else f"`{f'{name} {value}'.strip()}`"


def words(rule: Rule) -> str:
    """Return a rule's condition in words."""
    return rule.when.words() or "always"


def stages(rule: Rule) -> str:
    """Return the stages of a refusal, by version where they differ."""
    parts = [
        (stage or "-") if first == "0" else f"{stage or '-'} from {first}"
        for first, stage in rule.stages
    ]
    return ", ".join(parts)


def claims(found: Iterable[Rule]) -> Iterator[str]:
    """Yield what was published, and what is right."""
    for rule in found:
        for claim in rule.claims:
            yield f"- `{rule.id}`: published: *{claim.says}* ({claim.by}). {claim.verdict}."


def selection() -> Iterator[tuple[str, str, str, str]]:
    """Yield the order in which vLLM looks for an attention backend."""
    for entry in knowledge("vllm/attention.yml")["selection"]:
        order = []
        for item in entry["order"]:
            words = parse(item.get("when", {})).words()
            order.append(item["backend"] + (f" (if {words})" if words else ""))
        yield (
            str(read_span(entry.get("versions"))),
            ", ".join(entry["attention"]),
            "; ".join(order),
            entry["explicit"],
        )


def page() -> str:
    """Return the whole page."""
    by_kind = {kind: [rule for rule in rules() if rule.kind == kind] for kind in _KINDS}
    known = versions()
    lines = [HEAD.format(versions=f"{len(known)}, {known[0]} to {known[-1]}")]
    lines += ["## Elements\n"]
    lines += table(
        ("rule", "element", "versions", "when", "reason", "source"),
        (
            (
                f"`{r.id}`",
                element(r),
                str(r.versions),
                r.when.words() or "always",
                r.reason,
                r.source,
            )
            for r in by_kind["set"]
        ),
    )
    lines += ["## Refusals\n"]
    lines += table(
        ("rule", "finding", "versions", "when", "stage", "reason", "source"),
        (
            (
                f"`{r.id}`",
                f"`{r.effect['code']}`",
                str(r.versions),
                words(r),
                stages(r),
                r.reason,
                r.source,
            )
            for r in by_kind["refuse"]
        ),
    )
    for kind, title in (("warn", "Warnings"), ("note", "Notes")):
        lines += [f"## {title}\n"]
        lines += table(
            ("rule", "finding", "versions", "when", "reason", "source"),
            (
                (
                    f"`{r.id}`",
                    f"`{r.effect['code']}`",
                    str(r.versions),
                    words(r),
                    r.reason,
                    r.source,
                )
                for r in by_kind[kind]
            ),
        )
    lines += ["## Checks of single elements\n"]
    lines += table(
        ("check", "finding", "may be forced", "reason", "source"),
        (
            (f"`{c.id}`", f"`{c.code}`", "yes" if c.forcible else "no", c.reason, c.source)
            for c in checks()
        ),
    )
    owned = knowledge("vllm/owned.yml")
    lines += ["What the plan owns (`VLLM-OWNED`):\n"]
    lines += table(
        ("flag or variable", "set instead", "reason"),
        (
            (f"`{name}`", f"`{entry['field']}`" if entry.get("field") else "-", entry["reason"])
            for group in ("flags", "env")
            for name, entry in owned[group].items()
        ),
    )
    lines += ["## Profiles\n"]
    profiles = knowledge("vllm/profiles.yml")
    lines += table(
        ("profile", "limits where the deployment leaves them open", "what it is for"),
        (
            (
                f"`{name}`",
                ", ".join(f"{key} {value}" for key, value in entry["limits"].items()),
                entry["is"],
            )
            for name, entry in profiles["profiles"].items()
        ),
    )
    lines += [f"Source: {profiles['source']}.\n"]
    lines += [
        "## Attention backends\n\nIn which order vLLM looks for one on ROCm. Naming one"
        " (`--attention-backend`) is ignored, taken as it is, or checked. From 0.18.1 on a"
        " candidate must be able to serve the model (head size, KV format, block size, sinks,"
        " KV connector).\n"
    ]
    lines += table(("versions", "attention", "order", "naming one is"), selection())
    lines += [f"Source: {knowledge('vllm/attention.yml')['source']}.\n"]
    lines += ["## What was published, and for which versions it is right\n", *claims(rules()), ""]
    return "\n".join(lines)
