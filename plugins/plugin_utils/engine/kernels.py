# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What an engine's kernels make of a model's weights (knowledge/vllm/kernels.yml)."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from ..documents import knowledge
from ..gpus import gpu_facts
from ..model.types import Architecture
from .conditions import Fact, parse
from .facts import model_facts
from .versions import read_span


def as_loaded(
    architecture: Architecture, version: str, gpu: str | None, env: Mapping[str, str]
) -> Architecture:
    """Return the model as this engine holds it: with experts padded to what its kernels take.

    ``version`` is a known one. Without a GPU nothing is known of its kernels.
    """
    if not gpu or architecture.details is None:
        return architecture
    known: dict[str, Fact] = {
        **model_facts(architecture, version),
        "gfx": gpu_facts(gpu).gfx,
        **{f"env {name}": value for name, value in env.items()},
    }
    for entry in knowledge("vllm/kernels.yml")["expert_steps"]:
        if read_span(entry["versions"]).covers(version) and parse(entry["when"]).holds(known):
            details = {**architecture.details, "expert_steps": entry["steps"]}
            return dataclasses.replace(architecture, details=details)
    return architecture
