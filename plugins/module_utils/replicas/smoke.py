# SPDX-License-Identifier: GPL-3.0-or-later

"""Connect to a replica from its own host, ask it a few fixed questions and judge its answers."""

from __future__ import annotations

import contextlib
import http.client
import json
import ssl
import time
from collections.abc import Iterator
from dataclasses import dataclass

from ..finding import ApiaryError, Finding, error


@dataclass(frozen=True)
class Endpoint:
    """Where a replica answers, under which model name, with which key; times are in seconds.

    With ``authority``, the file that verifies it, it speaks TLS.
    """

    unit: str
    address: str
    port: int
    model: str
    key: str | None
    timeout: float
    authority: str | None = None


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
    """Return the greedy answer to a prompt; raises ApiaryError."""
    response, connection = _ask(endpoint, prompt, stream=False)
    try:
        answer = json.loads(response.read())
        choice = answer["choices"][0]
        text, reason = choice["text"], choice["finish_reason"]
    except (OSError, http.client.HTTPException) as failure:
        raise _failed(endpoint, prompt, f"the answer broke off: {failure}") from failure
    except (ValueError, KeyError, IndexError, TypeError) as failure:
        raise _failed(endpoint, prompt, "the answer is no completion") from failure
    finally:
        connection.close()
    if not isinstance(text, str) or reason not in ("stop", "length"):
        raise _failed(endpoint, prompt, f"the answer ended with {reason!r}")
    return text


def stream(endpoint: Endpoint, prompt: Prompt) -> Streamed:
    """Return the greedy answer as it comes, token by token; raises ApiaryError."""
    begun = time.monotonic()
    response, connection = _ask(endpoint, prompt, stream=True)
    pieces, first = [], None
    try:
        for event in _events(response):
            if event == "[DONE]":
                break
            chunk = json.loads(event)
            if "error" in chunk:
                raise _failed(endpoint, prompt, "the stream ended with an error")
            for choice in chunk.get("choices", ()):
                if choice.get("text"):
                    first = time.monotonic() if first is None else first
                    pieces.append(choice["text"])
        else:
            raise _failed(endpoint, prompt, "the stream ended without [DONE]")
    except (OSError, http.client.HTTPException) as failure:
        raise _failed(endpoint, prompt, f"the stream broke off: {failure}") from failure
    except (ValueError, AttributeError, TypeError) as failure:
        raise _failed(endpoint, prompt, "the stream is no stream of completions") from failure
    finally:
        connection.close()
    if first is None:
        raise _failed(endpoint, prompt, "the stream has no token")
    return Streamed("".join(pieces), first - begun)


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
        message = f"the first token of an idle replica came after {seconds:.1f} s"
        yield Finding("ROLLOUT-SMOKE-SLOW", unit, f"{message}, expected {limit:g} s")
    elif slower:
        message = f"the first token came after {seconds:.2f} s, before the change {before:.2f} s"
        yield Finding("ROLLOUT-SMOKE-SLOW", unit, message, minor=True)


def _failed(endpoint: Endpoint, prompt: Prompt, message: str) -> ApiaryError:
    return error("ROLLOUT-SMOKE-FAILED", endpoint.unit, f"prompt {prompt.id}: {message}")


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
    place = (endpoint.address, endpoint.port, endpoint.timeout, endpoint.authority)
    connection = connect(*place)
    try:
        connection.request("POST", "/v1/completions", json.dumps(body), headers)
        response = connection.getresponse()
        if response.status != 200:
            answer = shorten(response.read(500).decode("utf-8", "replace"))
            raise _failed(endpoint, prompt, f"status {response.status}: {answer}")
    except (OSError, http.client.HTTPException) as failure:
        connection.close()
        raise _failed(endpoint, prompt, f"no answer: {failure}") from failure
    except ValueError as failure:
        connection.close()
        # A key that no header can have; the error's text would be the key.
        message = f"cannot be sent with this key ({type(failure).__name__})"
        raise _failed(endpoint, prompt, message) from None
    except ApiaryError:
        connection.close()
        raise
    return response, connection


def _events(response: http.client.HTTPResponse) -> Iterator[str]:
    """Yield the data of server-sent events."""
    for raw in response:
        line = raw.decode("utf-8", "replace").strip()
        if line.startswith("data:"):
            yield line[len("data:") :].strip()


def certificate(deployment: str) -> str:
    """Return the name of the credential with a host's certificate, its key and the authority.

    No variable of an environment has such a name, as the other credentials are.
    """
    return f"{deployment}.pem"


def connect(
    address: str, port: int, seconds: float, authority: str | None
) -> http.client.HTTPConnection:
    """Return a connection that is not open yet; ``authority`` is the file that verifies TLS.

    Without it nobody is who he says: the connection fails when it is opened.
    """
    if authority is None:
        return http.client.HTTPConnection(address, port, timeout=seconds)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    with contextlib.suppress(OSError):
        context.load_verify_locations(authority)
    return http.client.HTTPSConnection(address, port, timeout=seconds, context=context)
