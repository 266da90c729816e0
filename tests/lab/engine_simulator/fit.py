# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Parameter sets from published figures: `python -m engine_simulator fit` writes them again."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from ansible_collections.apiary.instinct.plugins.plugin_utils.bench.types import Load, Workload
from scipy.optimize import nnls

from engine_simulator.parameters import PARAMETERS, Client, Engine, Parameters, dumped
from engine_simulator.simulate import simulate

PUBLISHED = Path(__file__).parent / "published.yml"


@dataclass(frozen=True)
class Published:
    """One level of the study: output tokens a second and the slowest request."""

    table: str
    concurrency: int
    requests: int | None
    prompt: int
    output: int
    rate: float | None
    p99: float

    @property
    def waves(self) -> list[int]:
        """In flight at a time: equal requests begin and end together."""
        whole, rest = divmod(self.requests or self.concurrency, self.concurrency)
        return [self.concurrency] * whole + ([rest] if rest else [])


def published() -> Any:
    """Return the figures with what was assumed beside them."""
    return yaml.safe_load(PUBLISHED.read_text(encoding="utf-8"))


def fit(levels: list[Published], expert_share: float) -> dict[str, float]:
    """Return the costs of a decode step by least relative squares, none below 0."""
    rows = []
    for level in levels:
        # Where the study doesn't say how many requests there were, the slowest is one wave.
        waves = np.array(level.waves, dtype=float)
        seconds = (
            level.requests * level.output / level.rate
            if level.requests and level.rate
            else level.p99
        )
        context = waves.sum() * (level.prompt + level.output / 2)
        touched = (1 - (1 - expert_share) ** waves).sum()
        row = np.array([len(waves), waves.sum(), context, touched])
        rows.append(level.output * row / seconds)
    scale = np.array([1e-2, 1e-4, 1e-8, 1e-2])
    found, _residual = nnls(np.array(rows) * scale, np.ones(len(rows)))
    step, sequence, kv_token, experts = (float(f"{value:.4g}") for value in found * scale)
    return {
        "step": step,
        "sequence": sequence,
        "kv_token": kv_token,
        "experts": experts,
        "expert_share": expert_share,
    }


def rates(parameters: Parameters, level: Published) -> tuple[float, float]:
    """Return output tok/s and p99 of the study's own experiment on the simulator."""
    # One identical prompt, cached before: the study's client. Its size is taken as measured.
    workload = Workload("refit", level.prompt, level.output)
    load = Load(
        "fixed", workload, level.requests or level.concurrency, concurrency=level.concurrency
    )
    raw = simulate(parameters, load, client=Client(identical=True, self_test=False))
    shard = raw.shards[0]
    return shard["output_throughput"], float(np.percentile(shard["latencies"], 99))


def still(parameters: Parameters) -> Parameters:
    """Return the parameters without noise and first-time costs."""
    engine = {**vars(parameters.engine), "jit": 0.0}
    quiet = {"step_cov": 0.0, "level_cov": 0.0, "engine_run_cov": 0.0}
    return Parameters(**{**vars(parameters), **quiet, "engine": Engine(**engine)})


def fitted() -> dict[str, dict[str, Any]]:
    """Return every parameter file's content, by its name."""
    data = published()
    files = {}
    for name, model in data["models"].items():
        levels = [Published(*row) for row in model["levels"]]
        engine = {**fit(levels, model["expert_share"]), **model["engine"]}
        files[name] = {
            "model": model["model"],
            "engine": engine,
            **model["spread"],
            "sources": model["sources"],
        }
        files[name]["fit"] = _error(Parameters(name, model["model"], Engine(**engine)), levels)
    files.update(_layouts(data["layouts"], files))
    return files


def _error(parameters: Parameters, levels: list[Published]) -> dict[str, float]:
    """Return the relative errors of the simulated study against the published one."""
    pairs = [(rates(still(parameters), level), level) for level in levels]
    rate = [abs(got[0] / level.rate - 1) for got, level in pairs if level.rate]
    p99 = [abs(got[1] / level.p99 - 1) for got, level in pairs]
    return {
        "points": float(len(levels)),
        "rate_points": float(len(rate)),
        "rate_error_mean": round(float(np.mean(rate)), 3),
        "rate_error_max": round(float(np.max(rate)), 3),
        "p99_error_mean": round(float(np.mean(p99)), 3),
    }


def _layouts(layouts: Any, files: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    base = files[layouts["base"]]["engine"]
    # 1 / ratio = (x * fixed + y * sequence * n / 2 + kv / 2) / (fixed + sequence * n + kv)
    rows, wanted = [], []
    for count, ratio in layouts["ratios"]:
        fixed, half = (
            base["step"] + base["experts"] * (1 - (1 - base["expert_share"]) ** tokens)
            for tokens in (count, count / 2)
        )
        kv, sequence = base["kv_token"] * 1000 * count, base["sequence"] * count
        whole = fixed + sequence + kv
        rows.append([half / whole, sequence / 2 / whole])
        wanted.append(1 / ratio - kv / 2 / whole)
    (x, y), residual = nnls(np.array(rows), np.array(wanted))
    made = {}
    for name, layout in layouts["sets"].items():
        power = layout["scale"]
        engine = {
            **base,
            "step": float(f"{base['step'] * x**power:.4g}"),
            "experts": float(f"{base['experts'] * x**power:.4g}"),
            "sequence": float(f"{base['sequence'] * y**power:.4g}"),
            "prefill_token": layout["prefill_token"],
            "kv_tokens": layout["kv_tokens"],
            **layouts["engine"],
        }
        made[name] = {
            "model": layouts["model"],
            "engine": engine,
            "replicas": layout["replicas"],
            "gpus_per_replica": layout["gpus_per_replica"],
            **layouts["spread"],
            "sources": layouts["sources"],
            "fit": {
                "points": float(len(layouts["ratios"])),
                "ratio_residual": round(float(residual), 3),
                "step_factor": round(float(x), 3),
                "sequence_factor": round(float(y), 3),
            },
        }
    return made


def text(content: dict[str, Any]) -> str:
    """Return a parameter file's text."""
    head = "---\n# Written by `python -m engine_simulator fit` from ../published.yml: edit that.\n"
    return head + dumped(content)


def write() -> None:
    """Write the parameter sets again."""
    for name, content in fitted().items():
        (PARAMETERS / f"{name}.yml").write_text(text(content), encoding="utf-8")
