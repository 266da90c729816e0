# SPDX-License-Identifier: GPL-3.0-or-later

"""A few questions an hour to a replica that serves: which is due, and what the answers were; pure.

All replicas get the same questions in the same order, so their latest answers can be compared.
"""

from __future__ import annotations

import json
import re
import zlib
from typing import Any

from .client import Answer, Load
from .progress import option

RECORD = "quality.json"


class Questions:
    """The questions of one engine, and its answers since it serves. Times are monotonic seconds.

    ``counts`` is by result; ``answers`` has a number by a question's id, which stands for the
    first word of the latest answer.
    """

    def __init__(
        self, known: dict[str, Any], per_hour: int, command: list[str], now: float
    ) -> None:
        self._known = known["entries"] if per_hour else []
        self._every = 3600 / max(per_hour, 1)
        self._next, self._number = now + self._every, 0
        self._open: dict[str, Any] | None = None
        # Other policies refuse a priority (vLLM's CompletionRequest).
        ordered = option(command, "--scheduling-policy") == "priority"
        self._more = {"priority": known["priority"]} if ordered else {}
        self.counts = {"right": 0, "wrong": 0, "unanswered": 0}
        self.answers: dict[str, int] = {}

    def due(self, load: Load | None, now: float) -> dict[str, Any] | None:
        """Return the body to send now: one at a time, none while the engine's requests wait."""
        if not self._known or self._open or now < self._next or load is None or load.waiting:
            return None
        self._open = self._known[self._number % len(self._known)]
        self._next, self._number = now + self._every, self._number + 1
        return {**self._open["body"], **self._more}

    def take(self, answer: Answer) -> None:
        """Count the answer to the question that was sent; only a completion is one."""
        question, self._open = self._open or {}, None
        try:
            text = json.loads(answer.body if answer.status == 200 else "")["choices"][0]["text"]
            text = text.strip().lower().replace(",", "")
        except (AttributeError, IndexError, KeyError, RecursionError, TypeError, ValueError):
            self.counts["unanswered"] += 1
            self.answers.pop(question["id"], None)
            return
        self.counts["right" if re.match(question["right"], text) else "wrong"] += 1
        word = text.split(maxsplit=1)[:1]
        self.answers[question["id"]] = zlib.crc32("".join(word).encode("utf-8", "replace"))
