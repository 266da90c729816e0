# SPDX-License-Identifier: GPL-3.0-or-later

"""Where more load brings no more: evaluated only by levels that reached their concurrency."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from .ledger import Rules, by_size, mean_rate
from .types import Level, Saturation


def of(levels: Iterable[Level], workload: str, rules: Rules) -> Saturation | None:
    """Return where the levels saturate; None while they do not.

    Either each of ``gain_times`` steps, of at least a doubling, gained less than ``gain``, or the
    engine's own metrics say why: requests queue, or its KV cache is full. Then it is the lowest
    level with that rate. An INVALID level counts nowhere, so that the end of a client is never
    taken for the end of an engine.
    """
    steps = _steps(levels, workload, rules)
    flat = 0
    for at, (slots, rate, group) in enumerate(steps):
        reason = _reason(group, rules)
        if reason:
            enough = rate / (1 + rules.gain)
            knee, served = next((it[0], it[1]) for it in steps if it[1] >= enough)
            seen = "" if knee == slots else f", seen at {slots:g}"
            return Saturation(workload, int(knee), served, True, reason + seen)
        if at:
            flat = flat + 1 if rate < steps[at - 1][1] * (1 + rules.gain) else 0
        if flat == rules.gain_times:
            knee, served, _levels = steps[at - flat]
            gains = ", ".join(
                f"{after[1] / before[1] - 1:+.1%} at {after[0]:g}"
                for before, after in zip(
                    steps[at - flat : at], steps[at - flat + 1 :], strict=False
                )
            )
            return Saturation(
                workload,
                int(knee),
                served,
                True,
                f"gain below {rules.gain:.0%} {rules.gain_times} times ({gains}), each level at "
                "its concurrency",
            )
    return None


def conclude(levels: Sequence[Level], workload: str, rules: Rules) -> Saturation:
    """Return where all engine runs together saturate, or that they did not and how far they got."""
    found = of(levels, workload, rules)
    if found is not None:
        return found
    steps = _steps(levels, workload, rules)
    reached = f"up to {steps[-1][0]:g} concurrent requests" if steps else "at any level"
    return Saturation(workload, None, None, False, f"not seen {reached}")


def _steps(
    levels: Iterable[Level], workload: str, rules: Rules
) -> list[tuple[float, float, tuple[Level, ...]]]:
    """Return (concurrency, mean rate, levels), each at least a step above the one before."""
    steps: list[tuple[float, float, tuple[Level, ...]]] = []
    for size, group in by_size(levels, workload, "concurrency").items():
        rate = mean_rate(group)
        if rate and (not steps or size >= steps[-1][0] * rules.gain_step):
            steps.append((size, rate, group))
    return steps


def _reason(group: Iterable[Level], rules: Rules) -> str | None:
    """Return what the engine's own metrics say of a level, where it is the bottleneck."""
    for level in group:
        engine, measured = level.engine, level.measured
        if engine is None or measured is None:
            continue
        if engine.kv_usage_max is not None and engine.kv_usage_max > rules.kv_usage:
            return f"KV cache {engine.kv_usage_max:.0%} full"
        queue, spread = engine.queue_seconds_mean, measured.e2el
        if queue is not None and spread is not None and queue > rules.queue_share * spread.mean:
            return f"{queue / spread.mean:.0%} of a request's time is spent in the engine's queue"
    return None
