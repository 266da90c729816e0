# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What an engine's lines tell: its figures beside the planned ones, and why it ended.

The plan is read as it lies on the host, so that a figure that changes restarts no replica.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator
from typing import Any

from ....module_utils.engine_causes import Cause, Causes
from ....module_utils.finding import ApiaryError
from ....module_utils.kfd import read
from .context import Context
from .spec import replica_error

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
