# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A host's change, event by event: what is out, what failed, how it ended."""

import pytest
from ansible_collections.apiary.instinct.plugins.plugin_utils.documents import to_document
from ansible_collections.apiary.instinct.plugins.plugin_utils.findings import ApiaryError
from ansible_collections.apiary.instinct.plugins.plugin_utils.rollout.events import (
    EVENTS,
    Event,
    progress_of,
    server_of,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.rollout.progress import (
    Progress,
    lost,
    note,
    outcome_word,
)

FIRST, SECOND = "apiary-x-0.service", "apiary-x-1.service"
LOOP = {"msg": "all items", "results": [{"ok": 1}, {"failed": True, "msg": "no start"}]}


def step(kind="replace", drain=(FIRST,), ask=(FIRST,), undrain=(FIRST,), later=()):
    told = {"kind": kind, "drain": drain, "ask": ask, "undrain": undrain, "later": later}
    return {name: list(value) if name != "kind" else value for name, value in told.items()} | {
        "reason": "",
        "drain_servers": [],
    }


def play(*events, now=None):
    """Return the progress after events, each (name, facts), through its document as in Ansible."""
    now = now or Progress()
    for name, facts in events:
        now = EVENTS[name](progress_of(to_document(now), "a"), Event("a", **facts))
    return now


def failure(task="Replace", result=None):
    return {"task": task, "result": result or LOOP}


def closing(now):
    with pytest.raises(ApiaryError) as refused:
        play(("close", {}), now=now)
    return [(finding.code, finding.subject) for finding in refused.value.findings]


BEGUN = (("wait", {}), ("begin", {}), ("locked", {}))


def test_what_leaves_is_out_until_it_returns():
    during = play(*BEGUN, ("draining", {"step": step()}))
    assert during.out == (FIRST,)
    after = play(("stepped", {"step": step(), "unreached": ["r1"]}), now=during)
    assert (after.out, after.late, after.unreached) == ((), (), ("r1",))


def test_what_waits_for_the_routers_is_late():
    waiting = step("swap", undrain=(), later=(FIRST,))
    now = play(*BEGUN, ("draining", {"step": waiting}), ("stepped", {"step": waiting}))
    # The lock names it still: an interrupted run has to bring it back.
    assert (now.out, now.late) == ((FIRST,), (FIRST,))
    assert play(("returning", {}), now=now).late == ()


def test_what_an_interrupted_run_left_out_is_out():
    now = play(("begin", {"lock": {"out": [SECOND]}}), ("draining", {"step": step()}))
    assert now.out == (SECOND, FIRST)
    returns = step("return", drain=(), ask=(SECOND,), undrain=(SECOND,))
    assert play(("stepped", {"step": returns}), now=now).out == (FIRST,)


def test_answers_before_are_retained_by_unit():
    good = {"__unit": FIRST, "answers": ["a"], "stable": True, "first_token_seconds": 0.1, "x": 1}
    now = play(("answered", {"results": [good, {"__unit": SECOND, "skipped": True}]}))
    assert now.before == {
        FIRST: {"answers": ["a"], "stable": True, "first_token_seconds": 0.1},
    }


def test_a_host_that_is_done_closes_in_silence():
    now = play(*BEGUN, ("done", {}), ("close", {}))
    assert (outcome_word(now), note(now, "a")) == ("done", "")


def test_the_first_item_of_a_loop_that_failed_says_why():
    now = play(*BEGUN, ("failed", failure()))
    assert now.locked
    assert (now.failure.task, now.failure.message) == ("Replace", "no start")


def test_a_failed_host_that_went_back_is_rolled_back_and_fails():
    now = play(*BEGUN, ("failed", failure()), ("returned", {"release": "r"}))
    assert (now.outcome, outcome_word(now)) == ("failed", "rolled back")
    assert now.way_back.code == "ROLLOUT-ROLLED-BACK"
    assert closing(now) == [("ROLLOUT-FAILED", "a")]


def test_a_host_that_went_back_because_others_failed_is_no_failure():
    now = play(*BEGUN, ("done", {}), ("returned", {"release": "r7"}), ("close", {}))
    assert outcome_word(now) == "rolled back"
    assert "serves release r7 again, because other hosts failed" in note(now, "a")


def test_a_host_without_a_way_back_is_stranded():
    now = play(
        *BEGUN,
        ("draining", {"step": step()}),
        ("failed", failure()),
        ("stranded", failure("Read the release", {"msg": "gone\nremedy"})),
    )
    assert (now.outcome, outcome_word(now), now.stranded) == ("failed", "failed", True)
    assert now.failure.message == "no start"
    assert f"(Read the release: gone); out of the routers: {FIRST}" in now.way_back.message
    assert closing(now) == [("ROLLOUT-ROLLBACK-FAILED", "a")]


def test_a_drain_that_a_router_retains_is_no_success():
    now = play(*BEGUN, ("stepped", {"step": step(), "unreached": ["r1"]}), ("done", {}))
    assert closing(now) == [("ROLLOUT-ROUTER-UNREACHABLE", "r1")]


def gate(budget, **outcomes):
    others = {host: Progress(outcome=outcome) for host, outcome in outcomes.items()}
    event = {"others": others, "batch": ["c", "d"], "failure_budget": budget}
    return play(("gate", event)).may_begin


def test_a_host_is_begun_while_the_failure_budget_lasts():
    assert gate(0, a="done", b="done", c="waiting")
    assert not gate(0, a="failed", c="waiting")
    assert gate(1, a="failed", c="waiting")


def test_a_host_of_an_earlier_batch_that_did_not_end_has_failed():
    assert not gate(0, a="begun", c="waiting")
    assert gate(0, c="begun", d="waiting")


def test_hosts_that_were_lost_are_named():
    hosts = {"a": Progress("begun"), "b": Progress("done"), "c": Progress("waiting")}
    assert lost(hosts).subject == "a"
    maintained = {**hosts, "a": Progress("begun", maintaining=True)}
    assert "while it was maintained" in lost(maintained).message
    assert lost({"b": Progress("done")}) is None


def test_servers_are_named_after_the_host_and_the_replica():
    assert server_of("gpu-001", "apiary-q-3-12.service") == "gpu-001-12"


def served(name="x", serving=(FIRST,), stopped=(), lock=None, node=None):
    units = [*serving, *stopped]
    plan = {"replicas": [{"unit": unit} for unit in units], "node": node}
    return {
        "__serves_name": name,
        "plan": plan,
        "serving": list(serving),
        "stopped": list(stopped),
        "lock": lock,
    }


def inspect(*documents, due=(), reboot=False):
    facts = {"results": list(documents), "due": list(due), "reboot": reboot, "owner": "c:/x"}
    return play(("maintain", {}), ("inspected", facts))


@pytest.mark.parametrize(
    ("due", "reboot", "lock", "todo", "stops"),
    [
        ([], False, None, False, ()),
        (["replicas"], False, None, True, ()),
        (["rocm"], False, None, True, (FIRST,)),
        ([], True, None, True, (FIRST,)),
        # What an earlier run of this controller left out of the routers comes back in this one.
        ([], False, {"owner": "other:/y, maintain.yml", "out": []}, True, ()),
        ([], False, {"owner": "bob@elsewhere", "out": []}, False, ()),
    ],
)
def test_what_maintaining_a_host_means(due, reboot, lock, todo, stops):
    now = inspect(served(lock=lock), due=due, reboot=reboot)
    assert (now.maintenance.todo, now.maintenance.stop) == (todo, stops)
    assert now.maintenance.owner == "c:/x, maintain.yml"


def test_replicas_that_span_hosts_are_not_maintained_alone():
    inspect(served(node={"size": 2}))
    with pytest.raises(ApiaryError, match="ROLLOUT-NODES"):
        inspect(served(node={"size": 2}), due=["rocm"])


def test_what_somebody_stopped_stays_so_and_what_we_stopped_starts():
    before = inspect(served(serving=(FIRST,), stopped=(SECOND,)), due=["rocm"])
    after = served(serving=(), stopped=(FIRST, SECOND))
    now = play(("changed", {"results": [after]}), now=before)
    assert now.maintenance.start == (FIRST,)
    ours = {"owner": "c:/x, maintain.yml", "out": [SECOND]}
    before = inspect(served(serving=(FIRST,), stopped=(SECOND,), lock=ours), due=["rocm"])
    assert before.maintenance.before[0].out == (FIRST, SECOND)
    assert play(("changed", {"results": [after]}), now=before).maintenance.start == (FIRST, SECOND)


def test_a_maintained_host_that_failed_away_stays_out():
    before = inspect(served(), due=["rocm"])
    for now, consequence in (
        (play(("failed", failure()), now=before), "nothing was changed"),
        (play(("leaving", {}), ("failed", failure()), now=before), "it stays out of the routers"),
    ):
        with pytest.raises(ApiaryError) as refused:
            play(("close", {}), now=now)
        assert refused.value.findings[0].message.endswith(consequence)
