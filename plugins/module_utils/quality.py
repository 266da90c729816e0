# SPDX-License-Identifier: GPL-3.0-or-later

"""Send a replica a battery of requests, and return its answers: bounded and plain.

A request is what plugin_utils/quality/battery.py makes. Nothing is evaluated here. Answers come
from an engine that may be wrong in any way: each is checked, and an invalid one has a `problem`.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import math
import os
import random
import ssl
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Callable
from urllib.parse import SplitResult, urlsplit

from .weights.manifest import COMMIT

MOST_BODY, MOST_TEXT, MOST_TOKENS, MOST_NAME = 1 << 24, 2000, 4096, 200
# What an engine reports for an impossible token is about -10,000.
_LEAST_LOGPROB = -20000.0
Answer = dict[str, Any]


class QualityError(Exception):
    """Why a replica, or one request to it, has no answer, in words for a person."""


def measure(
    request: dict[str, Any], key: str = "", progress: Callable[[int], None] | None = None
) -> Answer:
    """Return what a replica is, and its answer to each item of the battery, by the item's id.

    ``request`` has url, items, long, seed, concurrency, answer_seconds, battery_seconds, and may
    have model and authority (a file with certificates). Raises QualityError.
    """
    begun, session = time.monotonic(), Session(request, key)
    answers: dict[str, Answer] = {}
    alone = [item for item in request["items"] if item["alone"]]
    crowd = [item for item in request["items"] if not item["alone"]]
    # So that a request has other neighbours in its batch every time.
    random.Random(request["seed"]).shuffle(crowd)  # noqa: S311 - no secret
    for items, several in ((alone, 1), (crowd, request["concurrency"])):
        with ThreadPoolExecutor(several) as pool:
            for item, answer in zip(items, pool.map(session.answer, items)):
                answers[item["id"]] = answer
                if progress:
                    progress(len(answers))
    seconds = round(time.monotonic() - begun, 1)
    return {**session.facts, "seconds": seconds, "answers": answers}


def revision_of(path: str) -> str | None:
    """Return the commit of weights whose directory is named by it."""
    name = os.path.basename(path)
    return name if COMMIT.fullmatch(name) else None


class Client:
    """Sends requests to one replica; ``authority`` is a file with certificates, for its TLS."""

    def __init__(self, url: str, key: str = "", authority: str | None = None) -> None:
        self._url, self._authority = _parsed(url), authority
        self._headers = {"Content-Type": "application/json"}
        if key:
            self._headers["Authorization"] = f"Bearer {key}"

    @contextlib.contextmanager
    def response(self, path: str, body: Any, seconds: float) -> Iterator[http.client.HTTPResponse]:
        """Send a request, GET without a body; all that fails, in the block too, is QualityError."""
        connection = self._connection(seconds)
        try:
            method, sent = ("GET", None) if body is None else ("POST", json.dumps(body))
            path = self._url.path.rstrip("/").removesuffix("/v1") + path
            connection.request(method, path, sent, self._headers)
            yield connection.getresponse()
        except (OSError, http.client.HTTPException) as failure:
            raise QualityError(f"no answer: {str(failure) or type(failure).__name__}") from None
        except ValueError:
            # A key that no header takes; the error's text would show it.
            raise QualityError("the request cannot be sent") from None
        finally:
            connection.close()

    def pieces(self, path: str, body: Any, seconds: float) -> Iterator[bytes]:
        """Yield an answer's bytes as they arrive, up to MOST_BODY."""
        until, size = time.monotonic() + seconds, 0
        with self.response(path, body, seconds) as response:
            while piece := response.read1(1 << 16):
                size += len(piece)
                if size > MOST_BODY or time.monotonic() > until:
                    raise QualityError("the answer is too long, or comes too slowly")
                if response.status != 200:
                    raise QualityError(f"HTTP {response.status}: {piece[:MOST_NAME]!r}")
                yield piece
            length = response.getheader("Content-Length", str(size))
            if response.status != 200 or length != str(size):
                raise QualityError(f"HTTP {response.status}, and the answer breaks off")

    def document(self, path: str, body: Any, seconds: float) -> dict[str, Any]:
        """Return the object that a request brings; empty for any other JSON."""
        try:
            document = json.loads(b"".join(self.pieces(path, body, seconds)), parse_int=_whole)
        except (ValueError, RecursionError):
            raise QualityError("the answer is not JSON") from None
        return document if isinstance(document, dict) else {}

    def _connection(self, seconds: float) -> http.client.HTTPConnection:
        host, port = self._url.hostname or "", self._url.port
        if self._url.scheme == "http":
            return http.client.HTTPConnection(host, port, timeout=seconds)
        try:
            context = ssl.create_default_context(cafile=self._authority)
        except OSError as failure:
            raise QualityError(f"no certificates: {failure}") from None
        return http.client.HTTPSConnection(host, port, timeout=seconds, context=context)


class Session:
    """Sends the items of a battery to one replica; ``facts`` are what it serves."""

    def __init__(self, request: dict[str, Any], key: str) -> None:
        self._request = request
        self._document = Client(request["url"], key, request.get("authority")).document
        self._deadline = time.monotonic() + request["battery_seconds"]
        wanted, seconds = request.get("model"), request["answer_seconds"]
        listed = self._document("/v1/models", None, seconds).get("data")
        cards = [card for card in (listed if isinstance(listed, list) else ()) if card]
        known = {card.get("id"): card for card in cards if isinstance(card, dict)}
        name = wanted or next(iter(known), None)
        if not isinstance(name, str) or name not in known:
            raise QualityError(f"does not serve {wanted or 'any model'}")
        length = known[name].get("max_model_len")
        self._length = length if isinstance(length, int) and 0 < length < 1 << 30 else 0
        version = self._document("/version", None, seconds).get("version")
        engine = version[:MOST_NAME] if isinstance(version, str) else None
        self.facts = {"model": name, "engine": engine, "max_model_len": self._length or None}
        self._cache: dict[str, list[int]] = {}

    def answer(self, item: dict[str, Any]) -> Answer:
        """Return the answer to an item, or its ``problem``."""
        try:
            own = {"prompt": self._long(item)} if item["long"] else {}
            return self._answer(item["kind"], item["path"], {**item["body"], **own})
        except QualityError as failure:
            return {"problem": str(failure)[:MOST_NAME]}

    def _answer(self, kind: str, path: str, body: dict[str, Any]) -> Answer:
        left = min(self._deadline - time.monotonic(), self._request["answer_seconds"])
        if left <= 0:
            raise QualityError("no time was left for the request")
        return answer_of(kind, self._document(path, {"model": self.facts["model"], **body}, left))

    def _long(self, item: dict[str, Any]) -> list[int]:
        """Return a prompt of a share of the context, with its needle at a depth of it."""
        spec, facts = item["long"], self._request["long"]
        if not self._length:
            raise QualityError("the engine does not report its context length")
        size = int(min(self._length, facts["most_tokens"]) * spec["share"]) - facts["room"]
        needle, question = self._tokens(spec["needle"]), self._tokens(spec["question"])
        fill = max(0, size - len(needle) - len(question))
        sentences = [self._tokens(text) for text in facts["filler"]]
        generator = random.Random(item["id"])  # noqa: S311 - no secret
        ids: list[int] = []
        while len(ids) < fill:
            ids += generator.choice(sentences)
        depth = int(fill * spec["depth"])
        return [*ids[:depth], *needle, *ids[depth:fill], *question]

    def _tokens(self, text: str) -> list[int]:
        if text not in self._cache:
            body = {"prompt": text, "add_special_tokens": False}
            ids = self._answer("tokens", "/tokenize", body).get("ids")
            if not ids:
                raise QualityError("the engine has no /tokenize, which long prompts are made by")
            self._cache[text] = ids
        return self._cache[text]


def _parsed(text: str) -> SplitResult:
    """Return a URL with a valid host and port."""
    try:
        url = urlsplit(text)
        # An invalid port raises.
        sound = url.scheme in ("http", "https") and url.hostname and url.port != 0
        sound = sound and not set(url.netloc) & set(" \t\r\n@")
    except ValueError:
        sound = False
    if not sound:
        raise QualityError("is no URL as http://HOST:PORT")
    return url


def _whole(text: str) -> int:
    # Of a number of a million digits the text alone would take minutes to read.
    return int(text) if len(text) < 20 else -1


def answer_of(kind: str, data: Any) -> Answer:
    """Return the answer to an item of a kind in a document, or its ``problem``."""
    try:
        answer: Answer = _READERS[kind](data)
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as failure:
        reason = str(failure) if isinstance(failure, ValueError) else ""
        return {"problem": (reason or "the answer is not of the API's form")[:MOST_NAME]}
    return answer


def _tokenized(data: Any) -> Answer:
    ids = data["tokens"]
    if not all(isinstance(one, int) and 0 <= one < 1 << 31 for one in ids):
        raise ValueError("the tokens are no numbers")
    return {"ids": ids[:MOST_TOKENS]}


def _read_text(data: Any) -> Answer:
    rows = data["choices"][0]["prompt_logprobs"][1:]
    # One token a place, the prompt's own: `prompt_logprobs: 0` requests no other.
    return {"logprobs": _numbers([next(iter(row.values()))["logprob"] for row in rows])}


def _completed(data: Any) -> Answer:
    choice = data["choices"][0]
    logs = choice.get("logprobs") or {}
    answer = _generated(choice["text"], logs.get("tokens") or [])
    return {**answer, "logprobs": _numbers(logs.get("token_logprobs") or [])}


def _chatted(data: Any) -> Answer:
    choice = data["choices"][0]
    message = choice["message"]
    calls = [call["function"] for call in (message.get("tool_calls") or ())[:1]]
    # Of a model that thinks first, what it thought is its answer where nothing else came.
    text = message.get("content") or message.get("reasoning") or ""
    logs = (choice.get("logprobs") or {}).get("content") or []
    answer = _generated(text, [row["token"] for row in logs])
    answer["logprobs"] = _numbers([row["logprob"] for row in logs])
    if calls:
        name, arguments = calls[0]["name"], calls[0]["arguments"]
        answer["call"] = [str(name)[:MOST_NAME], str(arguments)[:MOST_TEXT]]
    return answer


def _generated(text: Any, tokens: list[Any]) -> Answer:
    if not isinstance(text, str) or not all(isinstance(token, str) for token in tokens):
        raise ValueError("the answer is no text")
    return {
        "text": text[:MOST_TEXT],
        "tokens": [token[:MOST_NAME] for token in tokens[:MOST_TOKENS]],
    }


def _numbers(values: list[Any]) -> list[float]:
    """Return log probabilities, rounded; ValueError for an invalid one."""
    for value in values[:MOST_TOKENS]:
        real = isinstance(value, (int, float)) and math.isfinite(value)
        if not real or not _LEAST_LOGPROB < value < 1e-3:
            raise ValueError("a log probability is invalid")
    return [round(float(value), 4) for value in values[:MOST_TOKENS]]


_READERS = {"tokens": _tokenized, "text": _read_text, "complete": _completed, "chat": _chatted}
