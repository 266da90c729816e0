# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Tunings of a small model on a small host, and worlds in which they are carried out."""

from __future__ import annotations

import dataclasses
import json
import random
from collections.abc import Callable, Mapping
from typing import Any

from ansible_collections.apiary.instinct.plugins.plugin_utils.bench.types import Interval, Workload
from ansible_collections.apiary.instinct.plugins.plugin_utils.deployment import Layout
from ansible_collections.apiary.instinct.plugins.plugin_utils.documents import (
    dumps,
    from_document,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.model.config import read_config
from ansible_collections.apiary.instinct.plugins.plugin_utils.slo import Limit
from ansible_collections.apiary.instinct.plugins.plugin_utils.tune import steps
from ansible_collections.apiary.instinct.plugins.plugin_utils.tune.types import (
    Budget,
    Outcome,
    Question,
    Trial,
    Tune,
)

from support.engines import SMALL, deployment
from support.topology.topologies import host

ARCHITECTURE = read_config(SMALL, "config.json")
# Four GPUs: DP4/TP1, DP2/TP2, DP1/TP4 and what leaves GPUs free.
TOPOLOGY = host([range(4)], [range(4)])
CURRENT = Layout(4, 1)
SLO = (Limit("ttft", "p90", 2.0), Limit("tpot", "p90", 0.05))
WORKLOAD = Workload("500/100", 500, 100)


def question(**changes: Any) -> Question:
    """Return a question about the small model, without knobs unless they are named."""
    requested = dataclasses.replace(
        deployment("lab/small", version="0.32.0", max_model_len=4096), layout=CURRENT
    )
    budget = Budget(**{"layouts": 4, "trials": None, **changes.pop("budget", {})})
    plain: dict[str, Any] = {"slo": SLO, "knobs": {}, "hosts": ("a",), **changes}
    return Question(requested, WORKLOAD, budget=budget, **plain)


def begun(findings: tuple[Any, ...] = (), **changes: Any) -> Tune:
    """Return a tuning at its beginning."""
    return steps.begin(question(**changes), ARCHITECTURE, TOPOLOGY, findings=findings)


@dataclasses.dataclass
class World:
    """Scores by candidate, spread by ``noise`` between engine runs and shifted by host.

    ``rate`` gives a candidate's true score; ``events`` an outcome other than a measurement, by
    trial. One trial always ends in the same way, however often and in which order it is run.
    """

    rate: Callable[[str], float]
    noise: float = 0.02
    seed: int = 0
    hosts: Mapping[str, float] = dataclasses.field(default_factory=dict)
    events: Callable[[Trial], Outcome | None] = lambda trial: None
    bracket: float = 1.02

    def run(self, trial: Trial) -> Outcome:
        """Return how a trial ends."""
        event = self.events(trial)
        if event is not None:
            return event
        luck = random.Random(f"{self.seed} {trial.id}").gauss(1.0, self.noise)
        rate = self.rate(trial.candidate) * self.hosts.get(trial.host, 1.0) * max(0.1, luck)
        path = f"{trial.id}/bench.json"
        score, most = Interval(3, rate), rate * self.bracket
        within = 4 * rate if trial.kind != "alike" else None
        return Outcome("measured", score, most, path=path, seconds=60, within=within)


def saved(state: Tune) -> Tune:
    """Return a tuning as it is read again from its file."""
    return from_document(Tune, json.loads(dumps(state)), "tune.json")


def carried_out(state: Tune, world: World, hosts: tuple[str, ...] = ("a",)) -> Tune:
    """Return a tuning with its choice; fails where it does not come to one."""
    for _step in range(steps.most(state, len(hosts)) + 1):
        trials = steps.assign(state, hosts)
        if not trials:
            break
        for trial in trials:
            state = steps.record(state, trial, world.run(trial))
    assert state.choice is not None
    return state
