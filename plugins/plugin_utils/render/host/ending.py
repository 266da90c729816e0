# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The finding of an engine that ended by itself, with the cause that its lines tell."""

from __future__ import annotations

import time

from ....module_utils.engine_causes import Cause, Causes
from ....module_utils.finding import ApiaryError
from .context import Context
from .problems import replica_error

RECORD = "died.json"


class Ending:
    """What is known of an engine's end; ``causes`` sees its lines."""

    def __init__(self, context: Context) -> None:
        self._context, self._facts = context, context.life["causes"]
        self.causes = Causes(self._facts)

    def died(self, code: str, message: str, served: bool, earlier: float = 0.0) -> ApiaryError:
        """Return the finding of an end; of an engine that served, by its last lines.

        ``earlier`` is how many seconds ago it began to end.
        """
        fresh = time.monotonic() - float(self._facts["fresh_seconds"]) - earlier
        return self._failed(code, message, self.causes.ended(fresh if served else float("-inf")))

    def stood_still(self, code: str, message: str, phase: str, since: float) -> ApiaryError:
        """Return the finding of a start that shows nothing new in a phase since then."""
        return self._failed(code, message, self.causes.stands_still(phase, since))

    def _failed(self, code: str, message: str, cause: Cause | None) -> ApiaryError:
        cause = cause or Cause("unknown", "", self._facts["advice"])
        text = f"{message}: {cause}" if cause.text else message
        self._context.record(RECORD, {"code": code, "cause": cause.id, "message": text})
        return replica_error(code, text, advice=cause.advice)
