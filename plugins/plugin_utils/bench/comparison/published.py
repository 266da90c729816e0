# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What others published of a model, each row under its own conditions: a reference, no target."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from ...documents import from_document, knowledge


@dataclass(frozen=True)
class Source:
    """Where rows come from; ``published`` is a year and month."""

    title: str
    url: str
    published: str


@dataclass(frozen=True)
class Reference:
    """One published figure with its whole key; unknown is None.

    ``metrics`` are per second for rates and seconds for latencies. ``effective`` is the number of
    requests really in flight, ``concurrency`` what was requested. ``caveats`` are sentences.
    """

    source: str
    models: tuple[str, ...]
    hardware: str
    gpus: int
    load: str
    metrics: dict[str, float]
    precision: str | None = None
    engine: str | None = None
    engine_version: str | None = None
    layout: str | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    images: int = 0
    concurrency: int | None = None
    effective: int | None = None
    cached: bool | None = None
    submitter: str | None = None
    table: str | None = None
    caveats: tuple[str, ...] = field(default=())


def sources() -> dict[str, Source]:
    """Return every source by its name."""
    listed = knowledge("bench/published.yml")["sources"]
    return {name: from_document(Source, one, name) for name, one in listed.items()}


def references(*names: str | None) -> tuple[Reference, ...]:
    """Return the rows of the model that any of these names: a checkpoint, a path, a served name."""
    requested = [_plain(name) for name in names if name]
    facts = knowledge("bench/published.yml")
    matches = []
    for row in facts["rows"]:
        if any(_plain(word) in name for word in row["models"] for name in requested):
            caveats = [facts["caveats"][one] for one in row["caveats"]]
            matches.append(
                from_document(Reference, {**row, "caveats": caveats}, "bench/published.yml")
            )
    return tuple(matches)


def _plain(name: str) -> str:
    """Return a checkpoint's own name in small letters, every separator a dash."""
    return re.sub(r"[^a-z0-9.]+", "-", name.rstrip("/").rsplit("/", 1)[-1].lower())
