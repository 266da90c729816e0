# SPDX-License-Identifier: GPL-3.0-or-later

"""What engines of a host measured of themselves counts there, where a plan computes otherwise.

Only for the very recipe, release and GPU model, and only what is credible: a host says it of
itself. What an earlier plan has stays while new figures agree with it, so that no restart of an
engine changes a plan.
"""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Sequence

from ..documents import knowledge
from ..findings import Finding
from ..model.types import Memory
from ..topology.types import Start
from .types import Plan, Replica

# A figure of a start, that of a layout's memory, both in words, and bytes that one takes at least.
_FIGURES = (
    ("kv_tokens", "kv_tokens_per_engine", "{:,.0f} tokens of KV cache a replica", 1, 256),
    ("weights_bytes_per_gpu", "weights_bytes_per_gpu", "{:,.1f} GiB of weights a GPU", 2**30, 1),
)
_ANSWERED = ("FIT-NO-ROOM", "FIT-RESERVE-ASSUMED", "FIT-UNKNOWN")


def start_of(
    replica: Replica, version: str, gpu_model: str | None, now: Sequence[Start], before: Plan | None
) -> Start | None:
    """Return the figures of a replica's recipe: the worst start's, or those of the plan before."""
    same = (replica.recipe, version, gpu_model)
    fresh, old = (
        [one for one in starts if (one.recipe, one.engine_version, one.gpu_model) == same]
        for starts in (now, before.measured if before else ())
    )
    worst = min(fresh, key=lambda one: one.kv_tokens or 0, default=None)
    if old and not (worst and any(_differ(worst, row[0], old[0], row[0]) for row in _FIGURES)):
        return old[0]
    return worst


def counted(needs: Memory, start: Start | None, host: str, given: int | None) -> Memory:
    """Return a layout's memory with the figures of a start that are not as computed.

    ``given`` are the bytes of a GPU that an engine may use.
    """
    other = [row for row in _FIGURES if start and _differ(start, row[0], needs, row[1])]
    if start is None or not other:
        return needs
    most, texts, wrong = knowledge("serving/life.yml")["figures"]["credible"], [], False
    for name, field, form, unit, least in other:
        figure, own = getattr(start, name), getattr(needs, field)
        texts.append(form.format(figure / unit) + (f" (computed {own / unit:,.1f})" if own else ""))
        wrong = wrong or figure * least > (given or 0) * (needs.gpus_per_engine or 1)
        wrong = wrong or (bool(own) and not 1 / most <= figure / own <= most)
    day = datetime.datetime.fromtimestamp(start.at, datetime.UTC)
    source = f"measured on {host} at {day:%Y-%m-%d %H:%M} UTC by {start.unit}"
    code = "FIT-MEASURED-ODD" if wrong else "FIT-MEASURED"
    note = Finding(code, host, f"{' and '.join(texts)}: {source}", source=source)
    if wrong:
        return dataclasses.replace(needs, findings=(*needs.findings, note))
    kept = (one for one in needs.findings if one.code not in _ANSWERED)
    tokens, own = start.kv_tokens, needs.kv_tokens_per_engine
    if tokens is not None and own:
        parts = ("kv_pool_bytes_per_gpu", "kv_tokens_per_host", "max_sequences")
        scaled = {name: getattr(needs, name) for name in (*parts, "max_sequences_per_host")}
        scaled = {
            name: value and type(value)(value * tokens / own) for name, value in scaled.items()
        }
        needs = dataclasses.replace(needs, **scaled)
    changes = {field: getattr(start, name) for name, field, *_words in other}
    return dataclasses.replace(needs, **changes, reserve_bytes_per_gpu=None, findings=(*kept, note))


def _differ(one: object, name: str, other: object, its: str) -> bool:
    """Say whether one has a figure that the other has not, within the tolerance."""
    tolerance: float = knowledge("serving/life.yml")["figures"]["tolerance"]
    figure, own = getattr(one, name), getattr(other, its)
    return figure is not None and not (own and abs(figure - own) <= tolerance * own)
