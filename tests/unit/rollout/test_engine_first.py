# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A rollout brings every host's engine before it drains the first one."""

from pathlib import Path

import yaml

ROLLOUT = Path(__file__).parents[3] / "playbooks/rollout.yml"


def test_an_engine_that_cannot_be_had_ends_the_rollout_before_a_replica_is_drained():
    plays = yaml.safe_load(ROLLOUT.read_text(encoding="utf-8"))
    engine, gate = (
        next(place for place, play in enumerate(plays) if words in str(play.get("tasks")))
        for words in ("apiary.instinct.engine", "tasks/rollout_gate.yml")
    )
    assert engine < gate
    # All hosts at once, and no host goes on where one failed.
    assert plays[engine]["hosts"] == plays[gate]["hosts"]
    assert "serial" not in plays[engine]
    assert plays[engine]["any_errors_fatal"] is True
