# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Have one release of vLLM judge cases, in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Sequence
from importlib.metadata import PathDistribution
from pathlib import Path
from typing import Any

from ansible_collections.apiary.instinct.plugins.plugin_utils.gpus import gpu_facts
from packaging.requirements import Requirement

from engine.cases import Case
from engine.environment import Environment, UnavailableError

JUDGE = Path(__file__).parent / "inside" / "judge.py"
GPUS = 8
# Of transformers 5; a release that takes none of them wants a 4.
FIVES = tuple(f"5.{minor}.0" for minor in range(40))
# Compute units, as ROCm's GPU specifications have them; the rest is in knowledge/gpus.
COMPUTE_UNITS = {"MI300X": 304, "MI325X": 304, "MI355X": 256}


def opinions(
    sources: Path, env: Environment, cases: Sequence[Case], gpu: str, log: Path
) -> dict[str, dict[str, Any]]:
    """Return vLLM's opinion of each case by its id; what vLLM printed goes to ``log``.

    Each opinion stands beside it (.jsonl) as soon as it is there, so a long run can be followed.
    """
    answers = log.with_suffix(".jsonl")
    docket = {
        "count": GPUS,
        "gpus": {gpu: node_gpu(gpu)},
        "cases": [
            {
                "id": case.id,
                "gpu": gpu,
                "argv": case.argv,
                "env": dict(case.env),
                "whole": case.memory is not None,
            }
            for case in cases
        ],
    }
    with (
        tempfile.TemporaryDirectory() as cache,
        log.open("w") as complaints,
        answers.open("w") as lines,
    ):
        variables = {**os.environ, "JUDGE_CACHE": cache}
        if needs_transformers_4(sources):
            variables["PYTHONPATH"] = str(env.transformers_4)
        done = subprocess.run(
            [env.python, JUDGE, sources],
            input=json.dumps(docket),
            env=variables,
            stdout=lines,
            stderr=complaints,
            text=True,
            check=False,
        )
    if done.returncode:
        last = log.read_text(errors="replace").strip().splitlines()[-1:] or ["nothing"]
        raise UnavailableError(f"vLLM of {sources} could not judge; {log} ends with: {last[0]}")
    found = [json.loads(line) for line in answers.read_text().splitlines()]
    return {opinion["id"]: opinion for opinion in found}


def needs_transformers_4(sources: Path) -> bool:
    """Return whether a release asks for a transformers 4; of 5 the environment's own serves.

    A release may bound it to less than ours (`<5.18`); its code takes a newer 5.x all the same.
    """
    (metadata,) = sources.glob("*.dist-info")
    needs = [Requirement(text) for text in PathDistribution(metadata).requires or ()]
    return any(
        need.name == "transformers" and not any(map(need.specifier.contains, FIVES))
        for need in needs
    )


def node_gpu(name: str) -> dict[str, Any]:
    """Return the fields of inside/node.py's Gpu."""
    facts = gpu_facts(name)
    return {
        "name": name,
        "gfx": facts.gfx,
        "device_id": f"0x{facts.devices[0]}",
        "memory_gib": facts.memory.gib,
        "compute_units": COMPUTE_UNITS[name],
    }
