# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which raw results stand when a run goes on, and which levels are measured again."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import takewhile
from typing import Any

from ...documents import knowledge
from ...findings import has_errors
from ..raw import Raw
from ..types import Level


def again(level: Level, raw: Raw) -> bool:
    """Return whether a kept level tells of circumstances that may be over, not of its load.

    Knowledge bench/protocol.yml `resume` names them. A load under which the engine died in each of
    some attempts is evidence: it is what that load does.
    """
    facts = knowledge("bench/protocol.yml")["resume"]
    codes = {finding.code for finding in level.findings if has_errors([finding])}
    if level.status == "FAILED":
        served = level.measured.completed if level.measured is not None else 0
        if not served or level.load.phase == "warmup":
            # Nothing answered: a stopped engine is no evidence once it runs again.
            return True
        died = bool(codes & set(facts["died"])) or any(map(_fell_silent, raw.shards))
        return died and int(raw.load.get("attempt", 0)) + 1 < facts["attempts"]
    return level.status == "INVALID" and bool(codes & set(facts["again"]))


def _fell_silent(shard: Mapping[str, Any]) -> bool:
    """Return whether a process got no answer any more from some moment until its end.

    An engine that is only too busy still answers some of its last requests.
    """
    errors = list(shard.get("errors") or ())
    starts = shard.get("start_times") or ()
    if len(starts) == len(errors):
        order = sorted(range(len(errors)), key=lambda place: starts[place] or 0.0)
        errors = [errors[place] for place in order]
    last = sum(1 for _one in takewhile(bool, reversed(errors)))
    share = float(knowledge("bench/protocol.yml")["resume"]["silent_share"])
    return last >= max(1, share * len(errors))
