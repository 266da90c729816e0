# SPDX-License-Identifier: GPL-3.0-or-later

"""Send a replica a few fixed prompts from its own host, and judge its answers."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

from ..finding import Finding
from ..quality import Client, QualityError

PATH = "/v1/completions"


def complete(client: Client, body: dict[str, Any], seconds: float) -> str:
    """Return the answer to a prompt; raises QualityError."""
    answer = client.document(PATH, body, seconds)
    try:
        choice = answer["choices"][0]
        text, reason = choice["text"], choice["finish_reason"]
    except (LookupError, TypeError):
        raise QualityError("the answer is no completion") from None
    if not isinstance(text, str) or reason not in ("stop", "length"):
        raise QualityError(f"the answer ended with {reason!r}")
    return text


def stream(client: Client, body: dict[str, Any], seconds: float) -> float:
    """Return how many seconds the first token of a streamed answer takes; raises QualityError."""
    begun, first, rest, done = time.monotonic(), None, b"", False
    for piece in client.pieces(PATH, {**body, "stream": True}, seconds):
        *lines, rest = (rest + piece).split(b"\n")
        for event in (line[5:].strip() for line in lines if line.startswith(b"data:")):
            done = done or event == b"[DONE]"
            if not done and _has_token(event) and first is None:
                first = time.monotonic() - begun
    if not done:
        raise QualityError("the stream ended without [DONE]")
    if first is None:
        raise QualityError("the stream has no token")
    return first


def _has_token(event: bytes) -> bool:
    try:
        chunk = json.loads(event)
        if "error" in chunk:
            raise QualityError("the stream ended with an error")
        return any(choice.get("text") for choice in chunk.get("choices", ()))
    except (ValueError, RecursionError, AttributeError, TypeError):
        raise QualityError("the stream is no stream of completions") from None


def judge_answers(
    before: dict[str, str], after: dict[str, str], compare: str, because: str, unit: str
) -> Iterator[Finding]:
    """Yield a finding for each answer that is another than before.

    ``compare`` is must (an error), should (a warning) or no; ``because`` is the reason for that.
    """
    if compare == "no":
        return
    for name in sorted(before.keys() & after.keys()):
        if before[name] == after[name]:
            continue
        yield Finding(
            "ROLLOUT-SMOKE-ANSWER",
            f"{unit}, prompt {name}",
            f"answered {shorten(before[name])} before and {shorten(after[name])} now; {because}",
            minor=compare == "should",
        )


def judge_speed(
    seconds: float, before: float | None, limits: dict[str, float], unit: str
) -> Iterator[Finding]:
    """Yield a finding where the first token comes too late, or much later than before."""
    limit, factor = limits["first_token_seconds"], limits["slower_factor"]
    slower = before is not None and seconds > max(before * factor, limits["slower_least_seconds"])
    if seconds > limit:
        message = f"the first token of an idle replica took {seconds:.1f} s"
        yield Finding("ROLLOUT-SMOKE-SLOW", unit, f"{message}, expected {limit:g} s")
    elif slower:
        message = f"the first token took {seconds:.2f} s, before the change {before:.2f} s"
        yield Finding("ROLLOUT-SMOKE-SLOW", unit, message, minor=True)


def shorten(text: str) -> str:
    """Return an answer that fits on a line."""
    return repr(text if len(text) <= 60 else text[:57] + "...")


def certificate(deployment: str) -> str:
    """Return the name of the credential with a host's certificate, its key and the authority.

    No variable of an environment has such a name, as the other credentials are.
    """
    return f"{deployment}.pem"
