# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Runs aiperf for one shard of a load, and makes a shard of our shape from its records.

    python -m …bench_aiperf DIRECTORY RESULT ASKED_INPUT ASKED_OUTPUT aiperf profile …

aiperf takes an API key as an argument, which every user of a host may read, or from a variable that
a configuration file names: so it gets such a file.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

FILES = ("aiperf",)
RECORDS = "profile_export.jsonl"
_KEY = "OPENAI_API_KEY"


def shard_of(lines: list[str], asked_input: int, asked_output: int) -> dict[str, Any]:
    """Return the records of aiperf 0.13 as a shard of `vllm bench serve --save-detailed`.

    Its warm-up records are left out; start times are of the wall clock. What brought another number
    of tokens than was asked is an error, as is what has no time of a first token.
    """
    records = [json.loads(line) for line in lines if line.strip()]
    records = [one for one in records if one["metadata"].get("benchmark_phase") == "profiling"]
    records.sort(key=_start)
    shard: dict[str, Any] = {key: [] for key in _LISTS}
    for record in records:
        error = error_of(record, asked_output)
        metrics = {} if error else record["metrics"]
        shard["start_times"].append(_start(record) / 1e9)
        shard["errors"].append(error)
        shard["input_lens"].append(int(_value(record["metrics"], _INPUT, asked_input)))
        cached = (record["metrics"].get(_CACHED) or {}).get("value")
        shard["cached_tokens"].append(None if cached is None else int(cached))
        shard["output_lens"].append(int(_value(record["metrics"], _OUTPUT, 0)))
        shard["ttfts"].append(_value(metrics, "time_to_first_token", 0.0) / 1e3)
        shard["latencies"].append(_value(metrics, "request_latency", 0.0) / 1e3)
        gaps = (metrics.get("inter_chunk_latency") or {}).get("value") or []
        shard["itls"].append([gap / 1e3 for gap in gaps])
    shard["asked_input_lens"] = [asked_input] * len(records)
    shard["asked_output_lens"] = [asked_output] * len(records)
    failed = sum(map(bool, shard["errors"]))
    ends = [one["metadata"]["request_end_ns"] for one in records]
    return {
        "completed": len(records) - failed,
        "failed": failed,
        "duration": (max(ends) - _start(records[0])) / 1e9 if records else 0.0,
        "backend": "aiperf",
        "clock": "time.time",
        **shard,
    }


_INPUT, _OUTPUT = "usage_prompt_tokens", "usage_completion_tokens"
# Of prompt_tokens_details.cached_tokens, where the server has it.
_CACHED = "usage_prompt_cache_read_tokens"
_TIMES = ("start_times", "ttfts", "latencies", "itls")
_LISTS = (*_TIMES, "input_lens", "output_lens", "cached_tokens", "errors")


def error_of(record: dict[str, Any], asked_output: int) -> str:
    """Return why a record is no success, or nothing."""
    error = record.get("error")
    if error:
        return f"{error.get('type') or 'error'}: {error.get('message')}"
    if record["metadata"].get("was_cancelled"):
        return "cancelled"
    if "time_to_first_token" not in record["metrics"]:
        return "empty output: no token came"
    got = int(_value(record["metrics"], _OUTPUT, 0))
    if got != asked_output:
        return (
            f"{'partial' if got < asked_output else 'long'} output: {got} of {asked_output} tokens"
        )
    return ""


def _start(record: dict[str, Any]) -> int:
    return int(record["metadata"]["request_start_ns"])


def _value(metrics: dict[str, Any], name: str, otherwise: float) -> float:
    value = (metrics.get(name) or {}).get("value")
    return otherwise if value is None else float(value)


def configuration(command: list[str]) -> dict[str, Any]:
    """Return a configuration that names the key's variable; the rest is what must be there.

    The command's flags stand above it.
    """
    phase: dict[str, Any] = {"type": "concurrency", "concurrency": 1}
    if "--request-rate" in command:
        # A concurrency of the file would bound the rate.
        phase = {"type": "poisson", "rate": 1.0}
    model, url = (command[command.index(flag) + 1] for flag in ("--model", "--url"))
    return {
        "benchmark": {
            "models": [model],
            "endpoint": {"urls": [url], "api_key": f"${{{_KEY}}}"},
            "datasets": [
                {"name": "main", "type": "synthetic", "entries": 1, "prompts": {"isl": 1}}
            ],
            "phases": [{"name": "profiling", "requests": 1, **phase}],
        }
    }


def main(arguments: list[str]) -> int:
    """Run aiperf, then write the shard; its words are ours."""
    if len(arguments) < 5:
        sys.stderr.write("usage: bench_aiperf DIRECTORY RESULT INPUT OUTPUT aiperf profile …\n")
        return 2
    directory, result = Path(arguments[0]), Path(arguments[1])
    command = arguments[4:]
    directory.mkdir(parents=True, exist_ok=True)
    if os.environ.get(_KEY):
        config = directory / "key.yml"
        config.write_text(json.dumps(configuration(command)), encoding="utf-8")
        command += ["--config", str(config)]
    try:
        code = subprocess.run(command, check=False).returncode
        if code:
            return code
        lines = (directory / RECORDS).read_text(encoding="utf-8").splitlines()
        shard = shard_of(lines, int(arguments[2]), int(arguments[3]))
        result.write_text(json.dumps(shard), encoding="utf-8")
    except (OSError, ValueError, KeyError) as error:
        sys.stderr.write(f"bench_aiperf: {command[0]}: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
