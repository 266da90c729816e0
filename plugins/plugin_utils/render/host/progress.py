# SPDX-License-Identifier: GPL-3.0-or-later

"""What an engine's own words tell: how far it has come, whether it works, and why it ended."""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from ....module_utils.engine_causes import Cause, Causes
from ....module_utils.finding import ApiaryError
from ....module_utils.kfd import read
from .client import Load
from .context import Context, replica_error


class Hang:
    """Judges a serving engine by its own counters. Times are monotonic seconds.

    Requests that are there while no token is made for ``seconds`` mean that it hangs, and so does
    silence. One that idles is asked for a token now and then: its counters are those of before it
    hung, and whoever waits for it isn't among them.
    """

    def __init__(self, seconds: float, now: float) -> None:
        self._seconds = seconds
        self._moved = self._asked = now
        self._silent_since: float | None = None
        self._tokens: float | None = None
        self._requests = 0
        self._told = False
        self._busy_since = now

    def take(self, load: Load | None, now: float) -> None:
        """Take what /metrics said, None for no answer."""
        if load is None:
            self._silent_since = now if self._silent_since is None else self._silent_since
            return
        self._silent_since = None
        self._told = self._told or load.told
        if load.tokens != self._tokens:
            self._tokens, self._moved = load.tokens, now
        requests = int(load.running + load.waiting)
        if requests and not self._requests:
            self._busy_since = now
        self._requests = requests

    def verdict(self, now: float) -> str | None:
        """Return why the engine hangs, or None."""
        silent = 0.0 if self._silent_since is None else now - self._silent_since
        if silent > self._seconds:
            return f"/metrics has not answered for {duration(silent)}"
        still = now - max(self._moved, self._busy_since)
        if self._requests and still > self._seconds:
            return f"{self._requests} requests and not one token for {duration(still)}"
        return None

    def means_hang(self) -> bool:
        """Return whether no answer to the last question means a hang.

        Not where tokens were made since: it waits behind a burst that came just before it.
        """
        return self._moved <= self._asked

    def wants_proof(self, now: float) -> bool:
        """Say whether an idle engine should be asked for a token now; asking counts as asked.

        One that keeps no statistics never: busy, it would let the question wait in its queue.
        """
        due = (
            self._told
            and not self._requests
            and now - max(self._moved, self._asked) > self._seconds
        )
        if due:
            self._asked = now
        return due


def overdue(life: dict[str, Any], timeout: float, since: float, progress: float) -> str | None:
    """Return why a start has failed, or None. ``timeout`` is what a start is planned to take.

    ``since`` are the seconds since the engine began, ``progress`` those since something new.
    """
    limits = life["start"]
    if progress > limits["stall_seconds"]:
        return f"nothing new for {duration(progress)}"
    if since > timeout and progress > limits["late_stall_seconds"]:
        return f"not up after {duration(since)}, and nothing new for {duration(progress)}"
    if since > timeout * limits["most_timeouts"]:
        return f"not up after {duration(since)}"
    return None


def option(command: list[str], flag: str) -> str:
    """Return the value that a command gives a flag; empty where it has none."""
    for place, word in enumerate(command):
        name, _equals, value = word.partition("=")
        if name.replace("_", "-") == flag:
            return value or (command[place + 1] if place + 1 < len(command) else "")
    return ""


def drains_itself(command: list[str], flag: str) -> bool:
    """Say whether the engine finishes its requests after SIGTERM; ``flag`` says for how long."""
    return option(command, flag) not in ("", "0")


class Phases:
    """The phase of one start; it only goes forward, for workers and draft models repeat lines.

    ``progress`` is when something new was seen last, ``since`` when the phase began (monotonic).
    """

    def __init__(self, life: dict[str, Any], now: float | None = None) -> None:
        self._entries: list[dict[str, Any]] = life["phases"]["entries"]
        self._index = {entry["id"]: place for place, entry in enumerate(self._entries)}
        self._patterns = [
            (place, re.compile(pattern))
            for place, entry in enumerate(self._entries)
            for pattern in entry.get("patterns", ())
        ]
        self._idle = [re.compile(pattern) for pattern in life["idle_lines"]["patterns"]]
        self._lock = threading.Lock()
        self._place = 0
        self._count: tuple[int, int] | None = None
        self.since = self.progress = time.monotonic() if now is None else now
        # The engine's last line that meant something, for whoever asks why it ended.
        self.last_line = ""
        self.watching = True

    @property
    def phase(self) -> str:
        """The id of the phase."""
        return str(self._entries[self._place]["id"])

    def enter(self, phase: str, now: float | None = None) -> None:
        """Go to a phase that no line tells."""
        with self._lock:
            self._enter(self._index[phase], time.monotonic() if now is None else now)

    def _enter(self, place: int, now: float) -> None:
        if place > self._place:
            self._place, self._count, self.since = place, None, now
        self.progress = now

    def see(self, line: str, now: float | None = None) -> None:
        """Take one line of the engine."""
        if not self.watching:
            return
        now = time.monotonic() if now is None else now
        with self._lock:
            if any(pattern.search(line) for pattern in self._idle):
                return
            self.last_line = line.strip()[:500]
            self.progress = now
            for place, pattern in self._patterns:
                if place < self._place:
                    continue
                match = pattern.search(line)
                if match is None:
                    continue
                self._enter(place, now)
                groups = match.groupdict()
                if groups.get("total"):
                    self._count = int(groups["done"]), int(groups["total"])
                return

    def text(self, now: float | None = None) -> str:
        """Return the phase as a person reads it: loading weights 12/24, 3 min."""
        now = time.monotonic() if now is None else now
        with self._lock:
            count = f" {self._count[0]}/{self._count[1]}" if self._count else ""
            return f"{self._entries[self._place]['text']}{count}, {duration(now - self.since)}"


def has_read_weights(life: dict[str, Any], phase: str) -> bool:
    """Say whether a replica that published this phase has the weights behind it."""
    ids = [entry["id"] for entry in life["phases"]["entries"]]
    (reading,) = (
        place for place, entry in enumerate(life["phases"]["entries"]) if entry.get("reads_weights")
    )
    return phase in ids and reading < ids.index(phase) < ids.index("stopping")


def duration(seconds: float) -> str:
    """Return a length of time in its largest fitting unit: 45 s, 3 min, 1 h 5 min."""
    minutes = int(seconds) // 60
    if minutes < 1:
        return f"{int(seconds)} s"
    if minutes < 60:
        return f"{minutes} min"
    return f"{minutes // 60} h {minutes % 60} min"


RECORD = "died.json"


class Ending:
    """What an engine's lines tell of its end, and of itself until it serves."""

    def __init__(self, context: Context) -> None:
        self._context, self._facts = context, context.life["causes"]
        self._causes, self._figures = Causes(self._facts), Figures(context)

    def see(self, line: str) -> None:
        """Take one line of the engine."""
        self._causes.see(line)
        self._figures.see(line)

    def serves(self, metrics: Callable[[], str | None]) -> None:
        """Take that the start is over: what was until now did not end it."""
        self._figures.compare(metrics)
        self._causes.clear()

    def died(self, code: str, message: str, served: bool, earlier: float = 0.0) -> ApiaryError:
        """Return the finding of an end that began so much earlier; a server's by its last lines."""
        fresh = time.monotonic() - float(self._facts["fresh_seconds"]) - earlier
        return self._failed(code, message, self._causes.ended(fresh if served else float("-inf")))

    def stood_still(self, code: str, message: str, phase: str, since: float) -> ApiaryError:
        """Return the finding of a start that shows nothing new in a phase since then."""
        return self._failed(code, message, self._causes.stands_still(phase, since))

    def _failed(self, code: str, message: str, cause: Cause | None) -> ApiaryError:
        cause = cause or Cause("unknown", "", self._facts["advice"])
        text = f"{message}: {cause}" if cause.text else message
        self._context.record(RECORD, {"code": code, "cause": cause.id, "message": text})
        return replica_error(code, text, advice=cause.advice)


# An engine names few attention backends; a log may have any number.
MOST_NAMES, LINE = 8, 2000
_LABEL = re.compile(r'\b(\w{1,60})="(\d{1,15})"')
_CODES = {
    "weights_bytes_per_gpu": "REPLICA-PREDICTION-WEIGHTS",
    "kv_tokens": "REPLICA-PREDICTION-KV",
    "attention_backend": "REPLICA-PREDICTION-BACKEND",
}


def planned(context: Context) -> dict[str, Any]:
    """Return the plan's figures of this replica, its engine's release, GPU model and recipe."""
    spec = context.spec
    try:
        plan = json.loads(read(context.root, "etc/apiary", spec.deployment, "plan.json"))
        replica, memory = plan["replicas"][spec.replica], plan["memory"]
        alike = memory.get("gpus_per_engine") in (None, len(replica["gpus"]))
        return {
            "engine_version": plan["deployment"]["engine"]["version"],
            "gpu_model": plan.get("gpu_model"),
            "uniform": _uniform(**memory),
            "recipe": replica["recipe"],
            "planned": {
                "weights_bytes_per_gpu": memory.get("weights_bytes_per_gpu") if alike else None,
                "kv_tokens": replica.get("kv_tokens"),
                "attention_backend": replica.get("attention_backend"),
            },
        }
    except (ValueError, LookupError, TypeError, AttributeError):
        return {"planned": {}}


def _uniform(
    sequence_length: int | None = None,
    kv_bytes_per_token_per_gpu: int | None = None,
    sequence_bytes_per_gpu: int | None = None,
    **_others: Any,
) -> bool:
    """Return whether blocks of tokens are all that a KV cache has: no windows, no states."""
    even = (sequence_length or 0) * (kv_bytes_per_token_per_gpu or 0)
    return even > 0 and abs((sequence_bytes_per_gpu or 0) - even) <= 0.01 * even


def _tokens(labels: dict[str, str], uniform: bool) -> int:
    """Return the tokens that an engine's cache holds by its metric's labels; 0 where none tells."""
    blocks = int(labels.get("num_gpu_blocks", 0)) * int(labels.get("block_size", 0))
    return int(labels.get("kv_cache_size_tokens", 0)) or (blocks if uniform else 0)


class Figures:
    """Figures of one start: numbers by name, the worst of all workers, and names by name."""

    def __init__(self, context: Context) -> None:
        self._context, self._facts = context, context.life["figures"]
        self._entries: dict[str, Any] = self._facts["entries"]
        self._patterns = {name: re.compile(one["pattern"]) for name, one in self._entries.items()}
        self.actual: dict[str, Any] = {}

    def see(self, line: str) -> None:
        """Take one line of the engine."""
        for name, pattern in self._patterns.items():
            match = pattern.search(line[:LINE])
            if match is not None:
                self._take(name, self._entries[name], match["value"])

    def _take(self, name: str, entry: dict[str, Any], value: str) -> None:
        if "unit" in entry:
            number = int(float(value.replace(",", "")) * entry["unit"])
            worse = max if entry["worse"] == "more" else min
            self.actual[name] = worse(number, self.actual.get(name, number))
            return
        names = self.actual.setdefault(name, [])
        value = entry["names"].get(value, value)
        if value not in names and len(names) < MOST_NAMES:
            names.append(value)

    def compare(self, metrics: Callable[[], str | None]) -> None:
        """Record the figures, and report each that is not as planned.

        The engine's ``metrics`` have the KV tokens, too, which a log of fewer lines has not.
        """
        self._patterns = {}  # what the log of a request may have is no figure
        plan, spec = planned(self._context), self._context.spec
        uniform = plan.pop("uniform", False)
        if "kv_tokens" not in self.actual:
            for line in re.findall(self._facts["metrics"], metrics() or ""):
                tokens = _tokens(dict(_LABEL.findall(line)), uniform)
                if tokens:
                    self._take("kv_tokens", self._entries["kv_tokens"], str(tokens))
        self._context.record("figures.json", {**plan, "gpus": spec.gpus, "actual": self.actual})
        for code, message in self._differences(plan["planned"]):
            self._context.report(replica_error(code, message))

    def _differences(self, wanted: dict[str, Any]) -> Iterator[tuple[str, str]]:
        for name in sorted(wanted.keys() & self.actual.keys()):
            entry, plan, actual = self._entries[name], wanted[name], self.actual[name]
            if "unit" not in entry:
                if plan and plan not in actual:
                    yield _CODES[name], f"planned {plan}, and the engine uses {', '.join(actual)}"
            elif plan and abs(actual - plan) > self._facts["tolerance"] * plan:
                text = entry["text"].format(plan / entry["unit"], actual / entry["unit"])
                yield _CODES[name], f"{text} ({100 * (actual - plan) / plan:+.1f} %)"
