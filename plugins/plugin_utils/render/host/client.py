# SPDX-License-Identifier: GPL-3.0-or-later

"""The engine's own API: is it up, does it answer, what does it do."""

from __future__ import annotations

import contextlib
import http.client
import json
import ssl
import threading
from typing import Any, NamedTuple

from ....module_utils.finding import ApiaryError
from .context import Context, Event, replica_error


class Answer(NamedTuple):
    """An answer's status, 0 where there was none, and the beginning of its body."""

    status: int
    body: str


class Load(NamedTuple):
    """What /metrics says: requests being computed, requests that wait, tokens made since start.

    ``told`` is whether it said any of that; zeros otherwise (--disable-log-stats).
    """

    running: float
    waiting: float
    tokens: float
    told: bool = True


class Client:
    """Asks one engine. ``key`` is its API key, which goes into no log.

    ``authority`` is the file that verifies an engine that speaks TLS.
    """

    def __init__(self, context: Context, key: str | None, authority: str | None = None) -> None:
        self._tls = None
        if authority is not None:
            self._tls = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            with contextlib.suppress(OSError):  # it believes nobody then
                self._tls.load_verify_locations(authority)
        self._address, self._port = context.spec.probe_address, context.spec.port
        self._model, self._life = context.spec.model_name, context.life
        self._headers = {"Authorization": f"Bearer {key}"} if key else {}

    def ask(self, method: str, path: str, seconds: float, body: object = None) -> Answer:
        """Return one answer; failures are status 0 with their reason."""
        connection = self._connection(seconds)
        try:
            data = None if body is None else json.dumps(body)
            headers = {**self._headers, "Content-Type": "application/json"}
            connection.request(method, path, body=data, headers=headers)
            response = connection.getresponse()
            return Answer(response.status, response.read().decode("utf-8", "replace"))
        except (http.client.HTTPException, OSError) as failure:
            return Answer(0, str(failure) or type(failure).__name__)
        except ValueError as failure:
            # A header that HTTP can't have: its text would be the key.
            return Answer(0, type(failure).__name__)
        finally:
            connection.close()

    def _connection(self, seconds: float) -> http.client.HTTPConnection:
        place = (self._address, self._port)
        if self._tls is None:
            return http.client.HTTPConnection(*place, timeout=seconds)
        return http.client.HTTPSConnection(*place, timeout=seconds, context=self._tls)

    def healthy(self) -> Answer:
        limits = self._life["answer"]
        return self.ask("GET", limits["health"], limits["connect_seconds"])

    def complete(self, seconds: float, **more: object) -> Answer:
        """Request one token, or ``more``; a body that isn't a completion counts as no answer."""
        limits = self._life["answer"]
        body = {"model": self._model, "prompt": limits["prompt"], "max_tokens": 1, "temperature": 0}
        body.update(more)
        answer = self.ask("POST", limits["path"], seconds, body)
        if answer.status == 200 and not _is_completion(answer.body):
            return Answer(0, f"no completion: {answer.body[:200]}")
        return answer

    def metrics(self, seconds: float | None = None) -> str | None:
        """Return the engine's page of metrics; None where it doesn't answer."""
        limits = self._life["watchdog"]
        answer = self.ask("GET", limits["metrics"], seconds or limits["answer_seconds"])
        return answer.body if answer.status == 200 else None

    def load(self, seconds: float | None = None) -> Load | None:
        """Return what the engine does; None where it doesn't answer."""
        page = self.metrics(seconds)
        try:
            return None if page is None else read_load(page, self._life["watchdog"])
        except (ValueError, IndexError):
            return None


def _is_completion(body: str) -> bool:
    try:
        return bool(json.loads(body)["choices"])
    except (ValueError, KeyError, TypeError):
        return False


def read_load(page: str, known: dict[str, Any]) -> Load:
    """Return the load of a Prometheus page, summed over engines."""
    sums: dict[str, float] = {}
    for line in page.splitlines():
        if line.startswith("vllm:"):
            name = line.split("{", 1)[0].split(" ", 1)[0]
            if name in (known["running"], known["waiting"], *known["progress"]):
                sums[name] = sums.get(name, 0.0) + float(line.rsplit(" ", 1)[1])
    running, waiting = (sums.get(known[name], 0.0) for name in ("running", "waiting"))
    return Load(
        running, waiting, sum(sums.get(name, 0.0) for name in known["progress"]), bool(sums)
    )


class Prober(threading.Thread):
    """Asks the engine in the background, so that no slow answer delays a stop.

    Posts ``answers`` once it does, ``refused`` with what it says instead, then ``load`` for ever;
    ``blind`` with the error's name should it fail, so that no replica serves unwatched.
    """

    def __init__(self, context: Context, client: Client) -> None:
        super().__init__(name="prober", daemon=True)
        self._context, self._client = context, client
        self._over = threading.Event()

    def end(self) -> None:
        self._over.set()

    def run(self) -> None:
        try:
            self._probe()
        except Exception as failure:
            # Its text may be anything, the key too.
            self._context.events.put(Event("blind", type(failure).__name__))

    def _probe(self) -> None:
        start, answer = self._context.life["start"], self._context.life["answer"]
        post = self._context.events.put
        if self._context.spec.headless:
            self._follow()
            return
        while not self._over.wait(start["poll_seconds"]):
            if self._client.healthy().status == 200:
                completed = self._client.complete(answer["limit_seconds"])
                if completed.status == 200:
                    post(Event("answers"))
                    break
                post(Event("refused", completed))
        # A hang is judged by several answers.
        most = self._context.spec.hang_seconds / 4
        while not self._over.wait(min(self._context.life["watchdog"]["poll_seconds"], most)):
            post(Event("load", self._client.load()))

    def _follow(self) -> None:
        """Post ``answers`` once the first host's API does, and then ``leader`` with its health."""
        start, leader = self._context.life["start"], self._context.life["leader"]
        while not self._over.wait(start["poll_seconds"]):
            if self._client.healthy().status == 200:
                self._context.events.put(Event("answers"))
                break
        while not self._over.wait(leader["poll_seconds"]):
            self._context.events.put(Event("leader", self._client.healthy()))


def wrong_answer(answer: Answer) -> ApiaryError:
    """Return the finding of an engine that keeps refusing what it should serve."""
    return replica_error(
        "REPLICA-WRONG-ANSWER",
        f"its own model's completion is refused with status {answer.status}: {answer.body[:300]}",
    )
