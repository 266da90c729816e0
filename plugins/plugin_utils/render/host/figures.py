# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What an engine measures of itself while it starts, beside what its plan has.

The plan is read as it lies on the host, so that a figure that changes restarts no replica.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from typing import Any

from ....module_utils.kfd import read
from .context import Context
from .problems import replica_error

# An engine names few attention backends; a log may have any number.
MOST_NAMES, LINE = 8, 2000
_CODES = {
    "weights_bytes_per_gpu": "REPLICA-PREDICTION-WEIGHTS",
    "kv_tokens": "REPLICA-PREDICTION-KV",
    "attention_backend": "REPLICA-PREDICTION-BACKEND",
}


def planned(context: Context) -> dict[str, Any]:
    """Return the plan's figures of this replica, its engine's release, GPU model and command."""
    spec = context.spec
    try:
        plan = json.loads(read(context.root, "etc/apiary", spec.deployment, "plan.json"))
        replica, memory = plan["replicas"][spec.replica], plan["memory"]
        words = [word for word in replica["argv"] if word != str(replica["port"])]
        alike = memory.get("gpus_per_engine") in (None, len(replica["gpus"]))
        return {
            "engine_version": plan["deployment"]["engine"]["version"],
            "gpu_model": plan.get("gpu_model"),
            "recipe": hashlib.sha256(json.dumps(words).encode()).hexdigest()[:16],
            "planned": {
                "weights_bytes_per_gpu": memory.get("weights_bytes_per_gpu") if alike else None,
                "kv_tokens": replica.get("kv_tokens"),
                "attention_backend": replica.get("attention_backend"),
            },
        }
    except (ValueError, LookupError, TypeError, AttributeError):
        return {"planned": {}}


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

    def compare(self) -> None:
        """Record the figures, and report each that is not as planned."""
        self._patterns = {}  # what the log of a request may have is no figure
        plan = planned(self._context)
        self._context.record("figures.json", {**plan, "actual": self.actual})
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
