# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Put commands to one vLLM release on a simulated node and say how far each of them gets.

    judge.py SOURCES < DOCKET > OPINIONS

SOURCES holds the release's `vllm` package. DOCKET is one JSON document: `gpus` (the fields of
node.Gpu by name), `count` of them, and `cases`, each with `id`, `key`, `gpu`, `env` and `argv`
("serve", …; or "classes"). OPINIONS is a JSON object a line: a case's `id` and `key`, its
`seconds`, and what proceedings.opinion (or .classes) says, or `broken` with the reason why nothing
can be said.

vLLM reads some of its environment while it is imported. So torch is imported once, a fork of that
imports vLLM for each GPU and environment, and each case is a fork of that.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

Case = dict[str, Any]

# What vLLM imports too, and what takes long.
HEAVY = ("torch._dynamo.device_interface", "torch._inductor.compile_fx", "transformers")
# What every release reads only where it uses it.
LATE = ("VLLM_ENGINE_READY_TIMEOUT_S", "VLLM_ROCM_QUICK_REDUCE_")
PREFIXES = ("VLLM_", "AITER_", "NCCL_", "HIP_", "HSA_", "CUDA_", "ROCR_", "SAFETENSORS_")


def main() -> int:
    sources = Path(sys.argv[1]).resolve()
    docket = json.load(sys.stdin)
    # What vLLM and its libraries print goes to stderr; stdout is for the opinions alone.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    sys.path.insert(0, str(sources))
    sys.argv = ["vllm", "serve"]
    import node

    node.have_vision()
    for name in HEAVY:
        importlib.import_module(name)

    def say(case: Case, found: dict[str, Any], begun: float) -> None:
        found |= {"id": case["id"], "key": case["key"], "seconds": seconds(begun)}
        answers.write(json.dumps(found) + "\n")
        answers.flush()

    def hear(gpu: dict[str, Any], cases: list[Case]) -> None:
        import proceedings

        node.install(node.Gpu(**gpu), docket["count"])
        take_environment(own(cases[0]))
        proceedings.prepare()
        for case in cases:
            begun = time.monotonic()
            found = in_fork(lambda: hear_one(case))  # noqa: B023 - it ends within the round
            proceedings.learn(found.pop("imported", []))
            say(case, found, begun)

    for name, cases in groups(docket["cases"]):
        begun = time.monotonic()
        outcome = in_fork(lambda: hear(docket["gpus"][name], cases))  # noqa: B023
        if outcome:
            for case in cases:
                say(case, outcome, begun)
    return 0


def seconds(begun: float) -> float:
    return round(time.monotonic() - begun, 2)


def own(case: Case) -> dict[str, str]:
    """Return what of a case's environment vLLM may read while it is imported or makes a parser."""
    return {
        name: value
        for name, value in case["env"].items()
        if name.startswith("VLLM_") and not name.startswith(LATE)
    }


def groups(cases: list[Case]) -> list[tuple[str, list[Case]]]:
    """Return the cases that can share an imported vLLM, with the name of their GPU."""
    result: dict[tuple[str, str], list[Case]] = {}
    for case in cases:
        result.setdefault((case["gpu"], json.dumps(own(case), sort_keys=True)), []).append(case)
    return [(gpu, group) for (gpu, _rest), group in result.items()]


def take_environment(variables: dict[str, str]) -> None:
    """Drop what of its kind this machine may have set, and set these."""
    for name in [name for name in os.environ if name.startswith(PREFIXES)]:
        del os.environ[name]
    os.environ["HF_HUB_OFFLINE"] = "1"
    os.environ["VLLM_NO_USAGE_STATS"] = "1"
    os.environ["VLLM_LOGGING_LEVEL"] = "WARNING"
    os.environ["VLLM_CACHE_ROOT"] = os.environ["JUDGE_CACHE"]
    os.environ |= variables


def hear_one(case: Case) -> dict[str, Any]:
    import proceedings

    os.environ |= case["env"]
    return proceedings.classes() if case["argv"][0] == "classes" else proceedings.opinion(case)


def in_fork(work: Callable[[], dict[str, Any] | None]) -> dict[str, Any]:
    """Run in a child and return what it returned, or what went wrong as `broken`."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        try:
            answer = work() or {}
        except BaseException as problem:  # whatever it is, the child must not go on as its parent
            answer = {"broken": f"{type(problem).__name__}: {problem}"[:900]}
        with os.fdopen(writer, "w") as pipe:
            json.dump(answer, pipe)
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        text = pipe.read()
    _, status = os.waitpid(child, 0)
    answer = json.loads(text) if text else {"broken": f"its process ended with status {status}"}
    return dict(answer)


if __name__ == "__main__":
    sys.exit(main())
