# SPDX-License-Identifier: GPL-3.0-or-later

"""The load generator of backend `builtin`: one shard of a load, sent and timed by one process.

    python -m load.client REQUEST RESULT

REQUEST is a file or JSON itself: url, model, load (the document of a Load), shard, shards, and
what `Settings` has. RESULT gets the shard (see `run`). The API key comes from the environment.
"""

from __future__ import annotations

import gc
import json
import os
import sys
from collections import deque
from dataclasses import dataclass, fields
from functools import partial
from typing import Any

from .bodies import Bodies, Made
from .http import Connection, Loop, Server, clock
from .prompts import Turn, arrivals, seed_of, share, turns_of
from .sse import Response


@dataclass(frozen=True)
class Settings:
    """How the requests of a load are sent.

    ``endpoint`` is /v1/completions or /v1/chat/completions; images are always chat. ``vocabulary``
    are the lowest and highest token id to use; without it the server's /tokenize tells.
    """

    url: str
    model: str
    load: dict[str, Any]
    shard: int = 0
    shards: int = 1
    endpoint: str = "completions"
    timeout_seconds: float = 600.0
    session_header: str = "X-Session-Id"
    vocabulary: tuple[int, int] | None = None

    @classmethod
    def of(cls, request: dict[str, Any]) -> Settings:
        """Return a request's settings; ValueError for a key that is not known or is missing."""
        known = {one.name for one in fields(cls)}
        unknown, missing = set(request) - known, {"url", "model", "load"} - set(request)
        if unknown or missing:
            what = "unknown" if unknown else "missing"
            raise ValueError(f"{what} in the request: {', '.join(sorted(unknown or missing))}")
        return cls(**request)


class Sent:
    """One request of the load and what came of it; ``due`` is when it was to be sent."""

    __slots__ = ("connection", "due", "ended", "made", "response", "sent")

    def __init__(self, due: float, made: Made) -> None:
        self.due, self.made = due, made
        self.sent = self.ended = 0.0
        self.response = Response()
        self.connection: Connection | None = None

    @property
    def error(self) -> str:
        """Return why it is no success; whatever is not the whole output is none."""
        response, requested = self.response, self.made.output_tokens
        if response.error:
            return response.error
        if not response.times:
            return "empty output: no token came"
        if not isinstance(response.usage, dict):
            return "the stream has no usage"
        got = self.output_tokens
        if got != requested:
            return f"{'partial' if got < requested else 'long'} output: {got} of {requested} tokens"
        return ""

    @property
    def usage(self) -> Any:
        """Return what the server counted."""
        return self.response.usage

    @property
    def output_tokens(self) -> int:
        """Return how many tokens came, by the server's count."""
        return int((self.usage or {}).get("completion_tokens") or 0)

    @property
    def input_tokens(self) -> int:
        """Return how many tokens the prompt had, by the server's count, else as requested."""
        return int((self.usage or {}).get("prompt_tokens") or self.made.input_tokens)

    @property
    def cached_tokens(self) -> int | None:
        """Return how many of the prompt's came from a cache, where the server says."""
        details = self.usage.get("prompt_tokens_details") if isinstance(self.usage, dict) else None
        cached = details.get("cached_tokens") if isinstance(details, dict) else None
        return cached if isinstance(cached, int) else None


class Generator:
    """Sends a shard's requests, by a closed loop of slots, at arrival times, or both."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._loop = Loop()
        self._server = Server(self._loop, settings.url)
        key = os.environ.get("OPENAI_API_KEY")
        self._headers = {"Authorization": f"Bearer {key}"} if key else {}
        self._flying: set[Sent] = set()
        self._first: deque[Turn] = deque()
        self._again: deque[Turn] = deque()
        self._waiting: deque[float] = deque()
        self._later: dict[int, deque[Turn]] = {}
        self._ended: list[Sent] = []
        self._slots = 0
        self._open = False
        self._began = 0.0

    def run(self) -> dict[str, Any]:
        """Send warm-ups, then the load, and return the shard."""
        settings, load = self._settings, self._settings.load
        shard, shards = settings.shard, settings.shards
        requests = share(load["requests"], shard, shards)
        seed = seed_of(load, shard)
        bodies = Bodies(self._server, settings, self._headers)
        slots = load.get("concurrency")
        rate = load.get("request_rate")
        self._slots = max(1, share(slots, shard, shards)) if slots else requests
        warm = share(load.get("warmups") or 0, shard, shards)
        self._bodies = bodies.named("warm-up")
        self._start(turns_of(load["workload"], warm, seed), [])
        warmed, self._ended = self._ended, []
        self._bodies = bodies.named("load")
        gc.collect()
        gc.freeze()
        # A collection amid the load would be seen as a late token.
        gc.disable()
        begun, cpu = clock(), os.times()
        times: list[float] = []
        turns = turns_of(load["workload"], requests, seed)
        if rate and load["workload"].get("trace"):
            # A shard has sessions of its own, and all of their turns.
            turns = turns_of(load["workload"], load["requests"], seed, rate)[shard::shards]
            times = [0.0]
        elif rate:
            times = arrivals(rate / shards, requests, f"arrivals {seed}")
        self._start(turns, times)
        seconds, cpu_end = clock() - begun, os.times()
        gc.enable()
        self._server.close()
        self._loop.close()
        used = cpu_end.user + cpu_end.system - cpu.user - cpu.system
        return {
            **shard_of(self._ended, seconds),
            "backend": "builtin",
            "clock": "time.perf_counter",
            "cpu_seconds": used,
            "warmup_errors": [one.error for one in warmed if one.error],
        }

    def _start(self, conversations: list[list[Turn]], times: list[float]) -> None:
        """Send all turns, each after the one before it of its conversation, at ``times``.

        Without those slots send the next when they are free. What is of a trace is sent when it
        was, or once the turn before it has its answer.
        """
        count = sum(map(len, conversations))
        self._later = {turns[0].conversation: deque(turns[1:]) for turns in conversations}
        self._first = deque(turns[0] for turns in conversations)
        self._open = bool(times)
        start = self._began = clock()
        if self._open and self._first and self._first[0].traced:
            for turns in conversations:
                self._replay(turns[0])
        elif self._open:
            self._arrive(start, deque(times))
        else:
            for _slot in range(min(self._slots, count)):
                self._next(start)
        self._sweep(count)
        self._loop.run(partial(self._all_ended, count))

    def _all_ended(self, count: int) -> bool:
        return len(self._ended) >= count

    def _arrive(self, start: float, times: deque[float]) -> None:
        """Note what has arrived by now, and come back for the next."""
        now = clock()
        while times and start + times[0] <= now:
            self._waiting.append(start + times.popleft())
        self._admit()
        if times:
            self._loop.at(start + times[0], partial(self._arrive, start, times))

    def _admit(self) -> None:
        """Send what has arrived while a slot is free and a conversation has a turn to send."""
        while self._waiting and self._any and len(self._flying) < self._slots:
            self._next(self._waiting.popleft())

    @property
    def _any(self) -> bool:
        return bool(self._again or self._first)

    def _next(self, due: float) -> None:
        """Send the next turn of the conversation that waits longest for it, or begin one."""
        if not self._any:
            return
        self._send((self._again or self._first).popleft(), due)

    def _replay(self, turn: Turn) -> None:
        due = max(clock(), self._began + (turn.traced[0] if turn.traced else 0.0))
        self._loop.at(due, partial(self._send, turn, due))

    def _send(self, turn: Turn, due: float) -> None:
        made = self._bodies.make(turn)
        one = Sent(due, made)
        one.response = Response(keep=made.keep)
        self._flying.add(one)
        one.sent = clock()
        if not self._open:
            one.due = one.sent
        one.connection = self._server.send(made.request, one.response, partial(self._end, one))

    def _end(self, one: Sent, response: Response) -> None:
        one.ended = clock()
        one.connection = None
        turn = one.made.turn
        self._flying.discard(one)
        self._ended.append(one)
        self._bodies.answered(turn, response)
        one.made = one.made.without_request()
        later = self._later[turn.conversation]
        if later and self._open and turn.traced:
            self._replay(later.popleft())
        elif later:
            self._again.append(later.popleft())
        if self._open:
            self._admit()
        elif self._any:
            # Not from here: an answer that fails at once would nest without end.
            self._loop.at(one.ended, partial(self._next, one.ended))

    def _sweep(self, count: int) -> None:
        """Give up, once a second, what has lasted too long."""
        now, most = clock(), self._settings.timeout_seconds
        for one in list(self._flying):
            if now - one.sent > most and one.connection is not None:
                one.connection.abort(one.response, f"timeout after {most:g} s")
        if not self._all_ended(count):
            self._loop.at(now + min(1.0, most), partial(self._sweep, count))


def shard_of(requests: list[Sent], seconds: float) -> dict[str, Any]:
    """Return requests as `vllm bench serve --save-detailed` tells them (0.32), in order of ``due``.

    ``ttfts`` and ``latencies`` count from when a request was to be sent; less its ``queue_times``
    they count from when it was. The times of what failed are 0.
    """
    ordered = sorted(requests, key=_due)
    errors = [one.error for one in ordered]
    good = [one for one, error in zip(ordered, errors) if not error]
    shard: dict[str, Any] = {
        "completed": len(good),
        "failed": len(ordered) - len(good),
        "duration": seconds,
        "total_input_tokens": sum(one.input_tokens for one in good),
        "total_output_tokens": sum(one.output_tokens for one in good),
        "start_times": [one.due for one in ordered],
        "queue_times": [one.sent - one.due for one in ordered],
        "input_lens": [one.input_tokens for one in ordered],
        "output_lens": [one.output_tokens for one in ordered],
        "cached_tokens": [one.cached_tokens for one in ordered],
        "asked_input_lens": [one.made.input_tokens for one in ordered],
        "asked_output_lens": [one.made.output_tokens for one in ordered],
        "errors": errors,
        "ttfts": [],
        "latencies": [],
        "itls": [],
    }
    for one, error in zip(ordered, errors):
        times = [] if error else one.response.times
        shard["ttfts"].append(times[0] - one.due if times else 0.0)
        shard["latencies"].append(times[-1] - one.due if times else 0.0)
        shard["itls"].append([after - before for before, after in zip(times, times[1:])])
    return shard


def _due(one: Sent) -> float:
    return one.due


def run(request: dict[str, Any]) -> dict[str, Any]:
    """Send one shard of a load and return its result.

    ValueError or OSError say that it could not begin: a wrong request, a name that is not known.
    """
    return Generator(Settings.of(request)).run()


def main(arguments: list[str]) -> int:
    """Run the program; what can't be done is told in a line."""
    if len(arguments) != 2:
        sys.stderr.write("usage: bench_client REQUEST RESULT\n")
        return 2
    requested, result = arguments
    try:
        if requested.lstrip().startswith("{"):
            request = json.loads(requested)
        else:
            with open(requested, encoding="utf-8") as file:
                request = json.load(file)
        shard = run(request)
        with open(f"{result}.part", "w", encoding="utf-8") as file:
            json.dump(shard, file)
        os.replace(f"{result}.part", result)
    except (ValueError, OSError) as error:
        sys.stderr.write(f"bench_client: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
