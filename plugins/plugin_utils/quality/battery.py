# SPDX-License-Identifier: GPL-3.0-or-later

"""Requests to a replica, from knowledge/quality, and its answers as documents."""

from __future__ import annotations

import functools
import hashlib
import json
import math
import random
import re
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any, ClassVar, Literal

from ..documents import from_document, knowledge, to_document
from ..findings import Finding, error

Outcome = Literal["same", "worse", "not decided"]
# Ten times what the battery's own answers take.
MOST_BYTES, MOST_ANSWERS, MOST_TOKENS = 8 << 20, 2000, 4096
_PATHS = {"tokens": "/tokenize", "chat": "/v1/chat/completions"}


@dataclass(frozen=True)
class Item:
    """One request of the battery; ``right`` are the answers that are right, lower case.

    ``alone``: nothing else is sent meanwhile. ``long``: how the prompt is composed on the host,
    of the engine's own tokens.
    """

    id: str
    kind: str
    group: str
    path: str
    body: Mapping[str, Any]
    right: tuple[str, ...] = ()
    alone: bool = False
    long: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class Answer:
    """One answer, or the ``problem`` with it; log probabilities are natural, one a token."""

    text: str = ""
    tokens: tuple[str, ...] = ()
    logprobs: tuple[float, ...] = ()
    ids: tuple[int, ...] = ()
    call: tuple[str, ...] = ()
    problem: str | None = None


@dataclass(frozen=True)
class Quality:
    """A replica's answers to a battery, and what it was: unknown is None.

    ``recipe`` stands for the engine's environment and arguments, ``share`` is of right answers;
    ``exact``: its kernels compute a request alike, whatever is in the batch with it.
    """

    SCHEMA: ClassVar[str] = "apiary.quality/v1"

    battery: str
    model: str
    date: str
    share: float
    answers: Mapping[str, Answer]
    revision: str | None = None
    engine: str | None = None
    recipe: str | None = None
    gpu: str | None = None
    max_model_len: int | None = None
    seconds: float | None = None
    exact: bool = False


@dataclass(frozen=True)
class Probe:
    """One comparison with the reference. ``before``, ``now`` and the interval are in its ``unit``:
    a share of right answers or nats a token. ``detectable`` is the smallest loss that would most
    likely have shown.
    """

    name: str
    verdict: Outcome
    unit: Literal["share", "nats", "tokens"]
    count: int
    now: float
    before: float | None = None
    low: float | None = None
    high: float | None = None
    detectable: float | None = None


@dataclass(frozen=True)
class Verdict:
    """Whether a replica answers as the reference did; ``verdict`` is None without one."""

    SCHEMA: ClassVar[str] = "apiary.quality-verdict/v1"

    replica: str
    verdict: Outcome | None
    share: float
    probes: tuple[Probe, ...] = ()
    differs: tuple[str, ...] = ()
    findings: tuple[Finding, ...] = ()


@functools.cache
def battery(tools: bool = False) -> tuple[Item, ...]:
    """Return all items; with ``tools`` those that need a parser of tool calls, too."""
    facts = knowledge("quality/battery.yml")
    items: list[Item] = []

    def add(group: str, body: Mapping[str, Any], end: str = "") -> None:
        body = {**facts["requests"][group], **body}
        kind, alone = body.pop("kind"), body.pop("alone", False) or end == "a"
        right, long = tuple(body.pop("right", ())), body.pop("long", None)
        count = sum(item.group == group and item.id.endswith(end) for item in items)
        path = _PATHS.get(kind, "/v1/completions")
        items.append(Item(f"{group}-{count}{end}", kind, group, path, body, right, alone, long))

    # Some twice: alone, and among others.
    several = (("tokenizer", ""), ("template", ""), *product(("repeat", "texts"), "ab"))
    for group, end in (*several, ("schema", ""), *((("tools", ""),) * tools)):
        for body in facts[group]:
            add(group, body, end)
    for number in facts["cache"]["numbers"]:
        prompt = facts["cache"]["prompt"].replace("{}", number)
        add("cache", {"prompt": prompt, "right": [number]})
    known = knowledge("quality/questions.yml")
    rows = [
        (form["ask"].replace("{}", key), right.lower().split("|"))
        for form in known["lists"]
        for key, right in form["right"].items()
    ]
    for question, answers in rows:
        add("questions", {"prompt": f"{known['intro']}Q: {question}\nA:", "right": answers})
    for question, answers in rows[:: len(rows) // facts["chat"]]:
        add("chat", {"messages": [{"role": "user", "content": question}], "right": answers})
    long, generator = facts["long"], random.Random("long")  # noqa: S311 - no secret
    places = product(long["shares"], long["depths"])
    for door, (share, depth) in zip(long["doors"], places, strict=True):
        secret = str(generator.randrange(10_000, 100_000))
        texts = {name: long[name].format(door=door, number=secret) for name in long["texts"]}
        add("long", {"right": [secret], "long": {"share": share, "depth": depth, **texts}})
    return tuple(items)


def right_pattern(right: tuple[str, ...]) -> str:
    """Return a pattern of answers that begin rightly; what comes after was not requested."""
    return f"(?:{'|'.join(map(re.escape, right))})(?!\\w)"


def few_questions() -> list[dict[str, Any]]:
    """Return what replicas are sent while they serve: id, body and the pattern of right answers.

    Texts decide. vLLM compiles what counts log probabilities, and ends where that cannot be.
    """
    items = [item for item in battery() if item.group == "questions"]
    items = items[:: knowledge("serving/life.yml")["questions"]["every"]]
    bodies = [{name: i.body[name] for name in i.body if name != "logprobs"} for i in items]
    rows = zip(items, bodies, strict=True)
    return [{"id": i.id, "body": body, "right": right_pattern(i.right)} for i, body in rows]


@functools.cache
def identity() -> str:
    """Return a digest of this battery: answers to another one are no reference."""
    text = json.dumps(to_document(battery(tools=True)), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def request_of(url: str, items: tuple[Item, ...], *, seed: int = 0, **more: Any) -> dict[str, Any]:
    """Return what module_utils/quality.py takes; ``seed`` changes the order of requests only."""
    facts = knowledge("quality/battery.yml")
    names = ("concurrency", "answer_seconds", "battery_seconds", "long")
    limits = {name: facts[name] for name in names}
    return {"url": url, "items": to_document(items), "seed": seed, **limits, **more}


def read_reference(text: str, name: str) -> Quality:
    """Return the reference in a file; raises QUALITY-REFERENCE, or DOC-… for a wrong field."""
    try:
        if len(text) > MOST_BYTES:
            raise ValueError(f"is larger than {MOST_BYTES >> 20} MiB")
        return quality_of(json.loads(text), name)
    except (ValueError, RecursionError) as failure:
        raise error("QUALITY-REFERENCE", name, f"is no reference: {failure}"[:300]) from None


def quality_of(data: Any, name: str) -> Quality:
    """Return answers from an untrusted document; ValueError where they are out of bounds."""
    quality = from_document(Quality, data, name)
    if len(quality.answers) > MOST_ANSWERS:
        raise ValueError(f"{len(quality.answers)} answers, expected at most {MOST_ANSWERS}")
    for key, answer in quality.answers.items():
        if max(map(len, (answer.tokens, answer.logprobs, answer.ids))) > MOST_TOKENS:
            raise ValueError(f"answer {key:.40} has more than {MOST_TOKENS} tokens")
        if not all(map(math.isfinite, answer.logprobs)):
            raise ValueError(f"answer {key:.40} has a log probability that is not finite")
    return quality
