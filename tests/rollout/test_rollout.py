# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A change of one host with two replicas, its failure, and the way back.

What a change costs clients is asked under load, on more hosts: tests/loss.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from .conftest import UNITS


def test_what_is_asked_or_refused_changes_nothing(operator, deployment):
    before = operator.starts()
    unpublished = deployment()
    unpublished["model"]["path"] = "/srv/models/none"
    runs = ((["--check", "--diff"], deployment(max_num_seqs=96)), ([], unpublished))
    with ThreadPoolExecutor() as pool:
        asked, refused = pool.map(
            lambda run: operator.play("rollout", *run[0], deployment=run[1]), runs
        )
    assert asked.code == 0, asked.output
    first, second = (asked.output.index(f"replace {unit}: its unit") for unit in UNITS)
    assert first < second
    assert '+"96",' in asked.output.replace(" ", "")
    assert refused.code != 0
    assert "ROLLOUT-NO-WEIGHTS" in refused.output
    assert operator.starts() == before
    assert operator.locked() == ""


def test_an_outage_and_a_host_that_somebody_else_changes_are_refused(operator, deployment):
    before = operator.starts()
    whole_host = {"replicas": 1, "tensor_parallel_size": 8, "expert_parallel": True}
    operator.lock([])
    refused = operator.play("rollout", deployment={**deployment(), "layout": whole_host})
    assert refused.code != 0
    assert "ROLLOUT-OUTAGE" in refused.output
    assert "ROLLOUT-IN-PROGRESS" in refused.output
    assert "bob@elsewhere" in refused.output
    assert operator.starts() == before
    assert "bob@elsewhere" in operator.locked()


def test_one_flag_is_rolled_over_one_replica_at_a_time(operator, watched, deployment):
    """The run before it died after it had taken the first replica out of the routers."""
    operator.lock([UNITS[0]])
    with watched() as answers:
        done = operator.play(
            "rollout", "-e", "rollout_take_over=true", deployment=deployment(max_num_seqs=96)
        )
    assert done.code == 0, done.output
    assert operator.active() == ["active", "active"]
    for unit in UNITS:
        assert "--max-num-seqs 96" in operator.argv(unit)
    down = {up.index(False) for up in answers.seen if not all(up)}
    assert down == {0, 1}
    assert answers.nobody == []
    assert operator.locked() == ""


def test_a_release_that_cannot_start_goes_back_by_itself(operator, watched, deployment):
    before, release = operator.starts(), operator.current()
    broken = deployment(max_num_seqs=96)
    broken["engine"]["executable"] = "/opt/vllm/bin/missing"
    with watched() as answers:
        done = operator.play("rollout", deployment=broken)
    assert done.code != 0
    assert "REPLICA-NO-ENGINE" in done.output
    assert operator.active() == ["active", "active"]
    assert operator.current() == release
    # The second replica was never touched.
    assert operator.starts()[UNITS[1]] == before[UNITS[1]]
    assert operator.starts()[UNITS[0]] != before[UNITS[0]]
    assert answers.nobody == []
    quarantine = operator.document("quarantine.json")
    assert [one["code"] for one in quarantine["findings"]] == [
        "REPLICA-START-FAILED",
        "ROLLOUT-ROLLED-BACK",
    ]
    assert "REPLICA-START-FAILED" in quarantine["message"]
    assert operator.locked() == ""


def test_the_way_back_is_taken_once(operator, watched):
    """The release before was rolled out with other artifacts, as by another controller."""
    there, before = operator.current(), operator.starts()
    refused = operator.play("rollback")
    assert refused.code != 0
    assert "ROLLOUT-UNRECORDED" in refused.output
    assert operator.starts() == before
    with watched() as answers:
        back = operator.play("rollback", "-e", "rollback_unrecorded=true")
    assert back.code == 0, back.output
    assert operator.current() != there
    assert operator.active() == ["active", "active"]
    assert "--max-num-seqs 96" not in operator.argv(UNITS[0])
    assert answers.nobody == []


def test_an_interrupted_way_back_is_taken_up(operator):
    """The run died between the replica's start and its return to the routers."""
    operator.lock([UNITS[0]])
    operator.router("set server qwen3-235b/gpu-001-0 state drain")
    assert operator.taken_out() == ["gpu-001-0"]
    before = operator.starts()
    again = operator.play("rollback", "-e", "rollout_take_over=true")
    assert "already" in again.output
    assert f"bring back {UNITS[0]}" in again.output
    # Its return to the routers, and nothing else.
    assert (again.code, again.changed) == (0, 1), again.output
    assert operator.starts() == before
    assert operator.taken_out() == []
    assert operator.locked() == ""
