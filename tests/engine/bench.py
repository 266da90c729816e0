# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Have one release of vLLM judge cases, in a process of its own."""

from __future__ import annotations

import hashlib
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
from engine.environment import MARK, OLDER, Environment, UnavailableError, pinned

JUDGE = Path(__file__).parent / "inside" / "judge.py"
GPUS = 8
TRIES = 3  # of a case that could not be judged: the machine may have been stopped for a while
LATER = "5.999"  # a transformers 5 that only a release without a bound takes
# Compute units, as ROCm's GPU specifications have them; the rest is in knowledge/gpus.
COMPUTE_UNITS = {"MI300X": 304, "MI325X": 304, "MI355X": 256}


def opinions(
    sources: Path,
    env: Environment,
    cases: Sequence[Case],
    gpu: str,
    log: Path,
    only_kept: bool = False,
) -> dict[str, dict[str, Any]]:
    """Return vLLM's opinion of each case by its id; what vLLM printed goes to ``log``.

    Each opinion stands in a file of its own name (.jsonl) as soon as it is there. A later run goes
    on where that one ended, and asks again what has changed; or ``only_kept``, asks nothing.
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
    common = _common(env, docket["gpus"])
    keys = {case["id"]: _key(common, case) for case in docket["cases"]}
    known = kept(answers, set(keys.values()))
    docket["cases"] = [
        case | {"key": keys[case["id"]]}
        for case in docket["cases"]
        if keys[case["id"]] not in known and not only_kept
    ]
    for _ in range(TRIES):
        if not docket["cases"]:
            break
        _put(docket, sources, env, log)
        known = kept(answers, set(keys.values()), broken=True)
        docket["cases"] = [case for case in docket["cases"] if "broken" in known[case["key"]]]
    return {name: known[key] | {"id": name} for name, key in keys.items() if key in known}


def _put(docket: dict[str, Any], sources: Path, env: Environment, log: Path) -> None:
    """Have a docket judged; each opinion is added to the log's neighbour as soon as it is there."""
    answers = log.with_suffix(".jsonl")
    if answers.is_file() and not answers.read_bytes().endswith(b"\n"):
        answers.write_text(answers.read_text() + "\n")  # after the line that was cut
    with (
        tempfile.TemporaryDirectory() as cache,
        log.open("a") as complaints,
        answers.open("a") as lines,
    ):
        variables = {**os.environ, "JUDGE_CACHE": cache}
        if name := older(sources):
            variables["PYTHONPATH"] = str(env.older[name])
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


def kept(answers: Path, keys: set[str], broken: bool = False) -> dict[str, dict[str, Any]]:
    """Return the opinions of an earlier run by what they depend on; a cut line is none.

    What could not be judged is tried again, unless ``broken``.
    """
    result = {}
    for line in answers.read_text().splitlines() if answers.is_file() else ():
        try:
            opinion = json.loads(line)
        except ValueError:
            continue
        if opinion.get("key") in keys and (broken or "broken" not in opinion):
            result[opinion["key"]] = opinion
    return result


def _common(env: Environment, gpus: dict[str, Any]) -> str:
    """Return what all opinions depend on: the environment, the judge, the GPUs."""
    stamp = env.python.parents[2] / MARK
    parts = [path.read_bytes() for path in (stamp, *sorted(JUDGE.parent.glob("*.py")))]
    return hashlib.sha256(b"".join(parts) + json.dumps(gpus).encode()).hexdigest()


def _key(common: str, case: dict[str, Any]) -> str:
    """Return what the opinion of a case depends on, the files of its model too, as one word."""
    model = Path(case["argv"][1])
    files = [
        (path.name, path.read_text(errors="replace"))
        for path in (sorted(model.iterdir()) if model.is_dir() else ())
        if path.is_file()
    ]
    asked = [case[name] for name in ("gpu", "argv", "env", "whole")]
    return hashlib.sha256(json.dumps([common, asked, files]).encode()).hexdigest()


def older(sources: Path) -> str | None:
    """Return which older transformers a release gets; None for the environment's own.

    A release that bounds transformers to none above was made with an older one than ours.
    """
    (metadata,) = sources.glob("*.dist-info")
    needs = [Requirement(text) for text in PathDistribution(metadata).requires or ()]
    (bound,) = (need.specifier for need in needs if need.name == "transformers")
    if bound.contains(pinned("transformers")) and not bound.contains(LATER):
        return None
    have = {name: pinned("transformers", pins) for name, pins in OLDER.items()}
    return next(name for name, version in have.items() if bound.contains(version))


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
