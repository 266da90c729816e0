# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The finding of an engine that ended by itself, with the cause that its lines tell."""

from __future__ import annotations

import time
from collections.abc import Callable

from ....module_utils.engine_causes import Cause, Causes
from ....module_utils.finding import ApiaryError
from .context import Context
from .figures import Figures
from .problems import replica_error

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
