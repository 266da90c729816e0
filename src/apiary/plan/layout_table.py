# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""How an open layout was chosen, as a table: chosen, possible in order, and what is impossible."""

from __future__ import annotations

from collections.abc import Iterator

from ansible_collections.apiary.instinct.plugins.plugin_utils.plan.types import (
    ConsideredLayout,
    LayoutChoice,
)
from rich.table import Table

GIB = 2**30


def layout_table(choice: LayoutChoice) -> Table:
    """Return the layouts that were considered; impossible ones with one reason share a row."""
    table = Table(
        title=f"layouts, in the order preferred for {choice.preference} ({choice.because})",
        title_justify="left",
    )
    for name in ("layout", "verdict"):
        table.add_column(name, overflow="fold", max_width=24)
    for name in ("weights\nGiB/GPU", "KV tokens\non the host", "free\nGPUs"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("why", overflow="fold", ratio=1)
    for item in choice.considered:
        if item.verdict != "dropped":
            style = "bold" if item.verdict == "chosen" else None
            table.add_row(item.name, item.verdict, *_numbers(item), item.reason, style=style)
    for names, reason in _dropped(choice):
        table.add_row(names, "impossible", "", "", "", reason, style="dim")
    return table


def _numbers(layout: ConsideredLayout) -> Iterator[str]:
    weights, tokens = layout.weights_bytes_per_gpu, layout.kv_tokens_per_host
    yield "?" if weights is None else f"{weights / GIB:.1f}"
    yield "?" if tokens is None else f"{tokens:,}"
    yield "?" if layout.free_gpus is None else str(layout.free_gpus)


def _dropped(choice: LayoutChoice) -> Iterator[tuple[str, str]]:
    """Yield the names of impossible layouts that one kind of finding drops, and what it says."""
    kinds: dict[tuple[str, ...], list[ConsideredLayout]] = {}
    for item in choice.considered:
        if item.verdict == "dropped":
            kinds.setdefault(item.codes, []).append(item)
    for codes, members in kinds.items():
        names = " ".join(member.name for member in members)
        more = "" if len({member.reason for member in members}) == 1 else "; the others likewise"
        yield names, f"{members[0].reason}{more} ({', '.join(codes)})"
