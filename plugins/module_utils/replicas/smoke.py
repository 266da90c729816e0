# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Ask a replica a few fixed questions and judge its answers, on the host it runs on."""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any


class SmokeError(Exception):
    """A replica that does not answer as it should."""


@dataclass(frozen=True)
class Endpoint:
    """Where a replica answers, under which model name, with which key; times are in seconds."""

    address: str
    port: int
    model: str
    key: str | None
    timeout: float


@dataclass(frozen=True)
class Prompt:
    """One question of the test, and how many tokens are asked for."""

    id: str
    text: str
    max_tokens: int


@dataclass(frozen=True)
class Streamed:
    """A streamed answer and when its first token came, in seconds."""

    text: str
    first_token_seconds: float


def complete(endpoint: Endpoint, prompt: Prompt) -> str:
    """Return the greedy answer to a prompt; raises SmokeError."""
    response, connection = _ask(endpoint, prompt, stream=False)
    try:
        answer = json.loads(response.read())
        choice = answer["choices"][0]
        text, reason = choice["text"], choice["finish_reason"]
    except (OSError, http.client.HTTPException) as failure:
        raise SmokeError(f"prompt {prompt.id}: the answer broke off: {failure}") from failure
    except (ValueError, KeyError, IndexError, TypeError) as failure:
        raise SmokeError(f"prompt {prompt.id}: the answer is no completion") from failure
    finally:
        connection.close()
    if not isinstance(text, str) or reason not in ("stop", "length"):
        raise SmokeError(f"prompt {prompt.id}: the answer ended with {reason!r}")
    return text


def stream(endpoint: Endpoint, prompt: Prompt) -> Streamed:
    """Return the greedy answer as it comes, token by token; raises SmokeError."""
    begun = time.monotonic()
    response, connection = _ask(endpoint, prompt, stream=True)
    pieces, first = [], None
    try:
        for event in _events(response):
            if event == "[DONE]":
                break
            told = json.loads(event)
            if "error" in told:
                raise SmokeError(f"prompt {prompt.id}: the stream ended with an error")
            for choice in told.get("choices", ()):
                if choice.get("text"):
                    first = time.monotonic() if first is None else first
                    pieces.append(choice["text"])
        else:
            raise SmokeError(f"prompt {prompt.id}: the stream ended without [DONE]")
    except (OSError, http.client.HTTPException) as failure:
        raise SmokeError(f"prompt {prompt.id}: the stream broke off: {failure}") from failure
    except (ValueError, AttributeError, TypeError) as failure:
        raise SmokeError(f"prompt {prompt.id}: the stream is no stream of completions") from failure
    finally:
        connection.close()
    if first is None:
        raise SmokeError(f"prompt {prompt.id}: the stream has no token")
    return Streamed("".join(pieces), first - begun)


def judge_answers(
    before: dict[str, str],
    after: dict[str, str],
    compare: str,
    because: str,
    unit: str,
) -> Iterator[dict[str, Any]]:
    """Yield a finding for each answer that is another than before.

    ``compare`` is must (an error), should (a warning) or no; ``because`` is the reason for that.
    """
    if compare == "no":
        return
    for name in sorted(before.keys() & after.keys()):
        if before[name] == after[name]:
            continue
        yield finding(
            "ROLLOUT-SMOKE-ANSWER",
            "error" if compare == "must" else "warning",
            f"{unit}, prompt {name}",
            f"answered {shorten(before[name])} before and {shorten(after[name])} now; {because}",
            "compare the releases' plans (`apiary diff`); if the change is meant, run again with "
            "rollout_compare=should",
        )


def judge_speed(
    seconds: float, before: float | None, limits: dict[str, float], unit: str
) -> Iterator[dict[str, Any]]:
    """Yield a finding where the first token comes too late, or much later than before."""
    limit, factor = limits["first_token_seconds"], limits["slower_factor"]
    slower = before is not None and seconds > max(before * factor, limits["slower_least_seconds"])
    if seconds > limit:
        yield finding(
            "ROLLOUT-SMOKE-SLOW",
            "error",
            unit,
            f"the first token of an idle replica came after {seconds:.1f} s, expected {limit:g} s",
            "see the replica's journal: kernels that are compiled anew, or a CPU fallback",
        )
    elif slower:
        yield finding(
            "ROLLOUT-SMOKE-SLOW",
            "warning",
            unit,
            f"the first token came after {seconds:.2f} s, before the change {before:.2f} s",
            "measure before the next batch (`apiary bench`), and compare the releases' plans",
        )


def finding(
    code: str, severity: str, subject: str, message: str, remedy: str
) -> dict[str, str | None]:
    """Return a finding as a document."""
    return {
        "code": code,
        "severity": severity,
        "subject": subject,
        "message": message,
        "remedy": remedy,
        "source": None,
    }


def told(one: dict[str, Any]) -> str:
    """Return a finding in the words that every program of ours prints."""
    return (
        f"{one['severity']}: {one['code']}: {one['subject']}: {one['message']}\n"
        f"  remedy: {one['remedy']}"
    )


def shorten(text: str) -> str:
    """Return an answer that fits on a line."""
    return repr(text if len(text) <= 60 else text[:57] + "...")


def _ask(
    endpoint: Endpoint, prompt: Prompt, stream: bool
) -> tuple[http.client.HTTPResponse, http.client.HTTPConnection]:
    """Send one prompt; temperature 0 and the seed make the answer the model's most likely one."""
    body = {
        "model": endpoint.model,
        "prompt": prompt.text,
        "max_tokens": prompt.max_tokens,
        "temperature": 0,
        "seed": 0,
        "stream": stream,
    }
    headers = {"Content-Type": "application/json"}
    if endpoint.key:
        headers["Authorization"] = f"Bearer {endpoint.key}"
    connection = http.client.HTTPConnection(
        endpoint.address, endpoint.port, timeout=endpoint.timeout
    )
    try:
        connection.request("POST", "/v1/completions", json.dumps(body), headers)
        response = connection.getresponse()
        if response.status != 200:
            raise SmokeError(
                f"prompt {prompt.id}: status {response.status}: "
                f"{shorten(response.read(500).decode('utf-8', 'replace'))}"
            )
    except (OSError, http.client.HTTPException) as failure:
        connection.close()
        raise SmokeError(f"prompt {prompt.id}: no answer: {failure}") from failure
    except ValueError as failure:
        connection.close()
        # A key that no header can have; the error's text would be the key.
        raise SmokeError(
            f"prompt {prompt.id}: cannot be sent with this key ({type(failure).__name__})"
        ) from None
    except SmokeError:
        connection.close()
        raise
    return response, connection


def _events(response: http.client.HTTPResponse) -> Iterator[str]:
    """Yield the data of server-sent events."""
    for raw in response:
        line = raw.decode("utf-8", "replace").strip()
        if line.startswith("data:"):
            yield line[len("data:") :].strip()
