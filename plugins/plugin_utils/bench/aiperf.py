# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A load to the command line of aiperf, which module_utils/load/aiperf.py runs and reads."""

from __future__ import annotations

from typing import Any

from ..documents import knowledge
from ..findings import error
from . import command
from .types import Load, Target

_PROGRAM = "ansible_collections.apiary.instinct.plugins.module_utils.load.aiperf"
# Whoever runs it fills these in: where the programs lie, and the Python to run them with.
_DIRECTORY, _PYTHON = "@DIR@", "@PYTHON@"


def argv(
    load: Load,
    target: Target,
    shard: int,
    shards: int,
    result_dir: str,
    filename: str,
    client: tuple[str, ...] = ("aiperf",),
) -> tuple[str, ...]:
    """Return the command of one shard of a load, without any secret.

    ``client`` starts aiperf. Shard i goes to url i % len(urls), with its even share. The tokenizer
    is a path on the load host or a name that aiperf can fetch, by default the model's. Raises
    ApiaryError BENCH-WORKLOAD for a kind that aiperf is not asked for: its sessions end when their
    number is reached, not the requests', and it mixes no lengths.
    """
    facts = knowledge("bench/aiperf.yml")
    workload = load.workload
    if workload.kind not in facts["kinds"] or workload.turns > 1:
        raise error(
            "BENCH-WORKLOAD",
            f"workload {workload.name}",
            f"aiperf is not asked for workloads of kind {workload.kind}",
            "use the builtin client",
            facts["source"],
        )
    directory = f"{result_dir}/{filename.removesuffix('.json')}"
    width, height = workload.image_pixels or (None, None)
    requests, warmups = _share(load.requests, shard, shards), _share(load.warmups, shard, shards)
    values: dict[str, Any] = {
        "model": target.model,
        "url": target.urls[shard % len(target.urls)],
        "tokenizer": target.tokenizer or target.model,
        "fresh": workload.input_tokens - workload.prefix_tokens,
        "output": workload.output_tokens,
        "requests": requests,
        # Warm-ups take prompts of the same set: with fewer, the load's first would be known.
        "entries": requests + warmups,
        "seed": command.seed_of(load, shard),
        "timeout": knowledge("bench/client.yml")["timeout_seconds"],
        "concurrency": load.concurrency and _share(load.concurrency, shard, shards),
        "rate": load.request_rate and f"{load.request_rate / shards:.9g}",
        "warmups": warmups or None,
        "directory": directory,
        "prefixes": workload.prefixes,
        "prefix": workload.prefix_tokens,
        "images": workload.images,
        "width": width,
        "height": height,
    }
    words: list[str] = []
    for flag in (*facts["common"], *facts["kinds"][workload.kind]):
        if "when" not in flag or values[flag["when"]] is not None:
            words.append(flag["flag"])
            words += [flag["value"].format(**values)] if "value" in flag else []
    asked = (str(workload.input_tokens), str(workload.output_tokens))
    return (
        *("env", f"PYTHONPATH={_DIRECTORY}", _PYTHON, "-m", _PROGRAM),
        *(directory, f"{result_dir}/{filename}", *asked),
        *(*client, "profile", *words),
    )


def _share(total: int, shard: int, shards: int) -> int:
    return total // shards + (shard < total % shards)
