# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A change of one host with two replicas, its failure, and the way back."""

from __future__ import annotations

import json

import pytest

UNITS = ("apiary-qwen3-235b-0.service", "apiary-qwen3-235b-1.service")
LOCK = "/var/lib/apiary/rollout/qwen3-235b.lock"


@pytest.fixture
def other(deployment):
    """The deployment with one flag changed."""
    deployment["limits"]["max_num_seqs"] = 96
    return deployment


@pytest.fixture
def broken(deployment):
    """A deployment that is planned well and cannot start."""
    deployment["engine"]["executable"] = "/opt/vllm/bin/missing"
    return deployment


def test_check_mode_names_the_order_and_changes_nothing(operator, other):
    before = operator.starts()
    asked = operator.play("rollout", "--check", "--diff", deployment=other)
    assert asked.code == 0, asked.said
    first, second = (asked.said.index(f"replace {unit}: its unit") for unit in UNITS)
    assert first < second
    assert '+"96",' in asked.said.replace(" ", "")
    assert operator.starts() == before
    assert operator.shell(f"ls {LOCK}") == ""


def test_one_flag_is_rolled_over_one_replica_at_a_time(operator, watched, other):
    with watched() as answers:
        done = operator.play("rollout", deployment=other)
    assert done.code == 0, done.said
    assert operator.active() == ["active", "active"]
    for unit in UNITS:
        assert "--max-num-seqs 96" in operator.argv(unit)
    down = {up.index(False) for up in answers.seen if not all(up)}
    assert down == {0, 1}
    assert answers.nobody == []
    assert operator.shell(f"ls {LOCK}") == ""


def test_a_second_run_changes_nothing(operator, other):
    before = operator.starts()
    again = operator.play("rollout", deployment=other)
    assert (again.code, again.changed) == (0, 0)
    assert "nothing to change" in again.said
    assert operator.starts() == before


def test_what_an_interrupted_run_left_is_taken_up(operator, other):
    """The run died between the replica's start and its return to the routers."""
    lock = {
        "schema": "apiary.rollout-lock/v1",
        "owner": "bob@elsewhere",
        "since": "x",
        "out": [UNITS[0]],
    }
    text = json.dumps(lock).replace('"', '\\"')
    operator.shell(f'echo "{text}" > {LOCK}')
    before = operator.starts()
    done = operator.play("rollout", "-e", "rollout_take_over=true", deployment=other)
    assert done.code == 0, done.said
    assert f"bring back {UNITS[0]}" in done.said
    assert operator.starts() == before
    assert operator.shell(f"ls {LOCK}") == ""


def test_the_way_back_is_taken_once(operator, watched):
    there = operator.current()
    with watched() as answers:
        back = operator.play("rollback")
    assert back.code == 0, back.said
    assert operator.current() != there
    assert operator.active() == ["active", "active"]
    assert "--max-num-seqs 96" not in operator.argv(UNITS[0])
    assert answers.nobody == []
    again = operator.play("rollback")
    assert (again.code, again.changed) == (0, 0)
    assert "already" in again.said


def test_a_release_that_cannot_start_goes_back_by_itself(operator, watched, broken):
    before, release = operator.starts(), operator.current()
    with watched() as answers:
        done = operator.play("rollout", deployment=broken)
    assert done.code != 0
    assert "REPLICA-NO-ENGINE" in done.said
    assert operator.active() == ["active", "active"]
    assert operator.current() == release
    # The second replica was never touched.
    assert operator.starts()[UNITS[1]] == before[UNITS[1]]
    assert operator.starts()[UNITS[0]] != before[UNITS[0]]
    assert answers.nobody == []
    quarantine = operator.document("quarantine.json")
    assert [one["code"] for one in quarantine["findings"]] == ["ROLLOUT-ROLLED-BACK"]
    assert "REPLICA-START-FAILED" in quarantine["message"]
    assert operator.shell(f"ls {LOCK}") == ""


def test_a_host_that_somebody_else_changes_is_left_alone(operator, other):
    lock = {"schema": "apiary.rollout-lock/v1", "owner": "bob@elsewhere", "since": "x", "out": []}
    text = json.dumps(lock).replace('"', '\\"')
    operator.shell(f'mkdir -p /var/lib/apiary/rollout; echo "{text}" > {LOCK}')
    before = operator.starts()
    try:
        refused = operator.play("rollout", deployment=other)
        assert refused.code != 0
        assert "ROLLOUT-IN-PROGRESS" in refused.said
        assert "bob@elsewhere" in refused.said
        assert operator.starts() == before
    finally:
        operator.shell(f"rm -f {LOCK}")


def test_an_outage_is_refused(operator, deployment):
    deployment["layout"] = {"replicas": 1, "tensor_parallel_size": 8, "expert_parallel": True}
    before = operator.starts()
    refused = operator.play("rollout", deployment=deployment)
    assert refused.code != 0
    assert "ROLLOUT-OUTAGE" in refused.said
    assert operator.starts() == before


def test_weights_that_are_not_there_are_refused(operator, deployment):
    deployment["model"]["path"] = "/srv/models/none"
    before = operator.starts()
    refused = operator.play("rollout", deployment=deployment)
    assert refused.code != 0
    assert "ROLLOUT-NO-WEIGHTS" in refused.said
    assert operator.starts() == before
