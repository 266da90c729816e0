# SPDX-License-Identifier: GPL-3.0-or-later

"""Scores of a battery's answers, and whether they are as good as a reference's; pure.

Rounding flips some answers and moves every log probability a little, so nothing is compared
exactly but token ids. What cannot be told apart from that is `same` only where a real loss would
have shown, else `not decided`.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import permutations
from statistics import NormalDist, fmean, stdev
from typing import Any

from ...module_utils.quality import revision_of
from ..documents import knowledge
from ..findings import Finding, error
from ..plan.types import Plan
from .battery import (
    Answer,
    Item,
    Outcome,
    Probe,
    Quality,
    Verdict,
    battery,
    identity,
    quality_of,
    right_pattern,
)

_SCORED = ("questions", "chat", "long", "schema", "tools", "cache")
_KINDS = {"string": str, "integer": int, "boolean": bool}
_DOUBT: Outcome = "not decided"
_DECODED = {"decoding": ("questions", "chat", "repeat"), "long": ("long",), "cache": ("cache",)}
_CONDITIONS = ("engine", "recipe", "gpu", "max_model_len")
_SIBLINGS = ("model", "revision", "recipe", "gpu")
_UNKNOWN = "unknown"
_NONE = Answer(problem="it is missing")


def is_right(item: Item, answer: Answer) -> bool:
    """Return whether an answer is one of those that are right."""
    text = answer.text.strip()
    if answer.problem is not None:
        return False
    if item.group == "schema":
        return _fits(text, dict(kind.split(":") for kind in item.right))
    if item.group == "tools":
        name, arguments = (*answer.call, "", "")[:2]
        return name == item.right[0] and item.right[1] in _object(arguments)
    if item.group == "chat":
        words = re.findall(r"\w+", text.lower().replace(",", ""))
        return any(set(right.split()) <= set(words) for right in item.right)
    return bool(re.match(right_pattern(item.right), text.lower().replace(",", "")))


def quality(
    items: Sequence[Item], measured: Mapping[str, Any], date: str, **facts: str | int | None
) -> Quality:
    """Return the document of what module_utils/quality.py measured, on any host.

    Raises ApiaryError, KeyError, TypeError or ValueError where it is not what that returns.
    """
    names = ("model", "engine", "max_model_len", "seconds", "answers")
    document = {name: measured[name] for name in names}
    document |= {"battery": identity(), "date": date, "share": 0.0, **facts}
    result = quality_of(document, str(document["model"]))
    scored = [item for item in items if item.group in _SCORED]
    share = fmean(is_right(item, result.answers.get(item.id, _NONE)) for item in scored)
    return replace(result, share=round(share, 4))


def facts_of(plan: Plan, unit: str = "") -> dict[str, Any]:
    """Return a plan's facts about a replica, its first without a name."""
    replica = next(one for one in plan.replicas if unit in ("", one.unit))
    return {
        "model": plan.deployment.model.name,
        "revision": revision_of(plan.deployment.model.path),
        "recipe": replica.recipe,
        "gpu": plan.gpu_model,
        "gpus": replica.gpus,
        "exact": replica.env.get(knowledge("quality/battery.yml")["drift"]["exact"]) == "1",
        "tools": any(word.startswith("--tool-call-parser") for word in replica.argv),
    }


def evaluate(
    replica: str, items: Sequence[Item], now: Quality, reference: Quality | None
) -> Verdict:
    """Return the verdict on a replica's answers, with a finding for all but `same`.

    Raises QUALITY-BATTERY for a reference that answers other questions, or another model's.
    """
    facts = knowledge("quality/battery.yml")
    found = list(_unanswered(replica, items, now, facts["unanswered"]))
    if reference is None:
        found += _first(replica, now)
        return Verdict(replica, None, now.share, findings=tuple(found))
    for name in ("battery", "model", "revision"):
        a, b = getattr(reference, name), getattr(now, name)
        if None not in (a, b) and a != b:
            message = f"the reference is of {name} {a}, the replica of {b}"
            raise error("QUALITY-BATTERY", replica, message)
    if all(reference.answers.get(item.id, _NONE).problem for item in items):
        raise error("QUALITY-REFERENCE", replica, "the reference has no answer to compare with")
    pairs = ((name, getattr(reference, name), getattr(now, name)) for name in _CONDITIONS)
    differs = tuple(f"{n}: {a or _UNKNOWN} against {b or _UNKNOWN}" for n, a, b in pairs if a != b)
    if reference.max_model_len != now.max_model_len:
        # Their prompts are as long as the context.
        items = [item for item in items if not item.long]
    probes = tuple(_probes(items, reference, now, facts, bool(differs)))
    counted = [probe for probe in probes if probe.verdict != _DOUBT or not _is_small(probe, facts)]
    verdicts = {probe.verdict for probe in counted}
    order: tuple[Outcome, ...] = ("worse", _DOUBT, "same")
    outcome = next((one for one in order if one in verdicts), _DOUBT)
    message = "; ".join(text_of(probe) for probe in counted if probe.verdict == outcome)
    if outcome == "worse":
        found.append(Finding("QUALITY-WORSE", replica, message))
    elif outcome == _DOUBT:
        found.append(Finding("QUALITY-NOT-DECIDED", replica, message))
    return Verdict(replica, outcome, now.share, probes, differs, tuple(found))


def answers_of(
    host: str, plans: Sequence[Plan], results: Iterable[Mapping[str, Any]], date: str
) -> dict[str, Quality]:
    """Return replicas' answers by their names; ``results`` are those of module replica_smoke.

    Raises QUALITY-NOT-ASKED.
    """
    measured: dict[str, Quality] = {}
    for result in results:
        if result.get("skipped"):
            continue
        unit = str(result.get("unit", ""))
        plan = next((p for p in plans if unit in [one.unit for one in p.replicas]), None)
        if plan is None:
            raise error("QUALITY-NOT-ASKED", f"{host}, {unit}", "is no replica of the plan")
        facts = facts_of(plan, unit)
        replica = f"{host}, {unit} ({', '.join(facts['gpus'])})"
        own = {key: facts[key] for key in ("recipe", "gpu", "exact")}
        try:
            # Tool calls were requested where the plan has a parser.
            items = battery("tools-0" in result["quality"]["answers"])
            # Of the weights that the host has; a link of the plan's may lead elsewhere by now.
            own["revision"] = result["quality"].get("revision")
            measured[replica] = quality(items, result["quality"], date, **own)
        except (KeyError, TypeError, ValueError) as failure:
            message = f"the host reports no answers: {failure!r:.200}"
            raise error("QUALITY-NOT-ASKED", replica, message) from None
    return measured


def judged(
    measured: Mapping[str, Quality], known: Quality, passed: Mapping[str, Quality]
) -> tuple[Finding, ...]:
    """Return the findings about replicas' answers; only those of its model have a reference.

    Those that ``passed`` before may be their siblings; one that is found among them is a warning,
    since it is not what is judged now. Raises QUALITY-BATTERY.
    """
    findings: list[Finding] = []
    for replica, answers in measured.items():
        items = battery("tools-0" in answers.answers)
        reference = known if known.model == answers.model else None
        findings += evaluate(replica, items, answers, reference).findings
    before = passed.keys() - measured.keys()
    return (*findings, *outliers({**passed, **measured}, battery(), before))


def have_siblings(some: Mapping[str, Quality], others: Mapping[str, Quality]) -> bool:
    """Return whether any of some replicas is a sibling of one of the others."""
    return any(_are_siblings(a, b) for a in some.values() for b in others.values())


def text_of(probe: Probe) -> str:
    """Return a probe in a few words."""
    if probe.unit == "tokens":
        return f"{probe.name}: {probe.now:.0f} of {probe.count} as in the reference"
    of = "{:.1%}".format if probe.unit == "share" else "{:.3f} nats/token".format
    before = "" if probe.before is None else f", expected {of(probe.before)}"
    between = f"difference {of(probe.low)} to {of(probe.high)}"
    shows = f"{of(probe.detectable)} would have shown"
    return f"{probe.name}: {of(probe.now)}{before}, {between}, {shows}"


def outliers(
    qualities: Mapping[str, Quality], items: Sequence[Item], before: Collection[str] = ()
) -> tuple[Finding, ...]:
    """Return a finding for each replica whose answers are not those of its siblings.

    Siblings have one recipe, revision and GPU model. Of two either may be wrong, so both are named.
    Of those measured ``before`` it is a warning.
    """
    facts = knowledge("quality/battery.yml")
    apart: dict[str, set[str]] = {name: set() for name in qualities}
    siblings: Counter[str] = Counter()
    for name, other in permutations(qualities, 2):
        a, b = qualities[name], qualities[other]
        if not _are_siblings(a, b):
            continue
        siblings[name] += 1
        probes = _probes(items, b, a, facts, False)
        if any(probe.verdict == "worse" for probe in probes):
            apart[name].add(other)
            apart[other].add(name)
    return tuple(
        Finding(
            "QUALITY-SIBLING",
            name,
            f"answers differ from those of {', '.join(sorted(those))}",
            minor=name in before,
        )
        for name, those in apart.items()
        if 2 * len(those) > siblings[name]
    )


def _are_siblings(a: Quality, b: Quality) -> bool:
    return all(getattr(a, one) == getattr(b, one) for one in _SIBLINGS)


def _probes(
    items: Sequence[Item], before: Quality, now: Quality, facts: Mapping[str, Any], changed: bool
) -> Iterable[Probe]:
    """Yield each comparison of two measurements of one model."""
    pairs = [(i, before.answers.get(i.id, _NONE), now.answers.get(i.id, _NONE)) for i in items]
    groups = dict.fromkeys(item.group for item in items)
    for group in groups:
        own = [pair for pair in pairs if pair[0].group == group and pair[1].problem is None]
        if not own:
            continue
        if group in ("tokenizer", "template"):
            same = sum(a.ids == b.ids for _item, a, b in own)
            yield Probe(group, "same" if same == len(own) else "worse", "tokens", len(own), same)
        elif group in _SCORED:
            yield _paired(group, own, facts)
    limits = facts["drift"]["changed" if changed else "same"]
    noise = fmean(_noise(before, items) or [0.0])
    limit = max(limits["least"], limits["noise_factor"] * noise)
    if before.exact and now.exact and not changed:
        limit = 0.0
    texts = [_apart(a, b) for item, a, b in pairs if item.group == "texts" and item.alone]
    yield from _drift("text drift", texts, limit, facts)
    for name, several in _DECODED.items():
        values = [_decoded(a, b) for item, a, b in pairs if item.group in several]
        yield from _drift(f"{name} drift", values, limit, facts)
    yield from _drift("repeatability", _noise(now, items), limit, facts)


def _paired(
    name: str, own: Sequence[tuple[Item, Answer, Answer]], facts: Mapping[str, Any]
) -> Probe:
    """Compare right answers in pairs: an interval, and how likely rounding alone did it."""
    scores = [(is_right(item, a), is_right(item, b)) for item, a, b in own]
    count = len(scores)
    lost = sum(a and not b for a, b in scores)
    won = sum(b and not a for a, b in scores)
    before, now = (fmean(pair[place] for pair in scores) for place in (0, 1))
    known = sum(a for a, _b in scores)
    z = NormalDist().inv_cdf((1 + facts["confidence"]) / 2)
    # Discordant pairs that rounding alone makes are never fewer than none were seen.
    spread = max(lost + won, 2 * facts["flip"] * max(known, 1))
    error_ = math.sqrt(max(spread - (lost - won) ** 2 / count, facts["flip"])) / count
    shows = (z + NormalDist().inv_cdf(facts["power"])) * math.sqrt(spread) / count
    unlikely = 1 - facts["confidence"]
    # So many losses are never rounding's; more than were right cannot be lost.
    least = next(
        (k for k in range(1, known + 1) if _tail(k, known, facts["flip"]) < unlikely), count + 1
    )
    shows = min(1.0, max(shows, least / count))
    outcome: Outcome = "same"
    if lost - won >= least:
        outcome = "worse"
    elif shows > facts["resolution"]:
        outcome = _DOUBT
    half, less = z * error_, now - before
    low, high = max(-1.0, less - half), min(1.0, less + half)
    return Probe(name, outcome, "share", count, now, before, low, high, shows)


def _is_small(probe: Probe, facts: Mapping[str, Any]) -> bool:
    return probe.unit == "share" and probe.count < facts["few"]


def _drift(
    name: str, values: Sequence[float | None], limit: float, facts: Mapping[str, Any]
) -> Iterable[Probe]:
    """Compare how far log probabilities are apart, a mean for each answer, with what may be."""
    known = [value for value in values if value is not None]
    if len(known) < 2:
        return
    z = facts["student"][: len(known) - 1][-1]  # few values: wider than a normal interval
    middle, deviation = fmean(known), stdev(known) / math.sqrt(len(known))
    low, high = max(0.0, middle - z * deviation), middle + z * deviation
    outcome: Outcome = "same" if high < limit else "worse" if low > limit else _DOUBT
    # A few answers far off make the mean uncertain: then most are over the limit, or not.
    over = sum(value > limit for value in known)
    if outcome == _DOUBT and _tail(over, len(known), 0.5) < 1 - facts["confidence"]:
        outcome = "worse"
    if not limit:
        outcome = "worse" if any(known) else "same"
    shows = limit + (z + NormalDist().inv_cdf(facts["power"])) * deviation
    yield Probe(name, outcome, "nats", len(known), middle, None, low, high, shows)


def _noise(quality: Quality, items: Sequence[Item]) -> list[float]:
    """Return how far apart the two answers to each text are, sent alone and among others."""
    answers = quality.answers
    names = [item.id for item in items if item.group == "texts" and item.alone]
    pairs = [_apart(answers.get(n, _NONE), answers.get(f"{n[:-1]}b", _NONE)) for n in names]
    return [pair for pair in pairs if pair is not None]


def _apart(a: Answer, b: Answer) -> float | None:
    """Return the mean difference of the log probabilities of a text; None where it was not read."""
    if a.problem or b.problem or not a.logprobs or len(a.logprobs) != len(b.logprobs):
        return None
    return fmean(abs(x - y) for x, y in zip(a.logprobs, b.logprobs, strict=True))


def _decoded(a: Answer, b: Answer) -> float | None:
    """Return the mean difference over what was generated, up to the first other token.

    That one is compared as well: both are the likeliest one behind the same text.
    """
    if a.problem or b.problem or not a.logprobs or not b.logprobs:
        return None
    pairs = list(zip(a.tokens, b.tokens, strict=False))
    same = next((place for place, (x, y) in enumerate(pairs) if x != y), len(pairs))
    rows = list(zip(a.logprobs, b.logprobs, strict=False))[: same + 1]
    return fmean(abs(x - y) for x, y in rows)


def _unanswered(
    replica: str, items: Sequence[Item], now: Quality, most: float
) -> Iterable[Finding]:
    problems = [now.answers.get(item.id, _NONE).problem for item in items]
    lost = [problem for problem in problems if problem]
    if len(lost) > most * len(items):
        message = f"{len(lost)} of {len(items)} requests have no answer: {lost[0]}"
        yield Finding("QUALITY-UNANSWERED", replica, message)


def _first(replica: str, now: Quality) -> Iterable[Finding]:
    """Return what can be known without a reference: a published score sets a floor."""
    for one in knowledge("quality/published.yml")["models"]:
        if re.fullmatch(one["model"], now.model, re.IGNORECASE):
            published = f"{one['benchmark']} {one['score']} is published"
            message = f"{now.share:.0%} of simple questions are right; {published}"
            if now.share < one["least"]:
                yield Finding("QUALITY-BELOW-PUBLISHED", replica, message, source=one["source"])
            return
    message = (
        f"{now.share:.0%} of simple questions are right; no score is published to compare with"
    )
    yield Finding("QUALITY-FIRST-RUN", replica, message)


def _tail(least: int, count: int, chance: float) -> float:
    """Return how likely at least so many of ``count`` answers flip, each with a chance."""
    return sum(
        math.comb(count, k) * chance**k * (1 - chance) ** (count - k)
        for k in range(least, count + 1)
    )


def _object(text: str) -> Mapping[str, Any]:
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return data if isinstance(data, Mapping) else {}


def _fits(text: str, properties: Mapping[str, str]) -> bool:
    data = _object(text)
    # JSON's true is a number to Python.
    values = [(data.get(name), kind) for name, kind in properties.items()]
    return all(
        isinstance(value, _KINDS[kind]) and isinstance(value, bool) == (kind == "boolean")
        for value, kind in values
    )
