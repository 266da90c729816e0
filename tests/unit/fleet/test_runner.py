# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What is made of ansible-runner's events, and how hosts come out of a run by them."""

import pytest
from ansible import constants
from ansible_collections.apiary.instinct.plugins.plugin_utils.documents import to_document
from ansible_collections.apiary.instinct.plugins.plugin_utils.findings import ApiaryError, Finding
from ansible_collections.apiary.instinct.plugins.plugin_utils.fleet.runs import outcome_of

from apiary.app.runner import arguments, playbook_path, refuse_prompts
from apiary.app.runner_events import EventLog


def event(kind, host, task="Task", **result):
    return {"event": kind, "event_data": {"host": host, "task": task, "res": result}}


def stats(**counts):
    return {"event": "playbook_on_stats", "event_data": counts}


FINDING = Finding("ROCM-DKMS-BUILD", "amdgpu", "the kernel module does not build")
REFUSED = {"msg": str(FINDING), "findings": [to_document(FINDING)]}


def heard(*events):
    found = EventLog()
    for one in events:
        found(one)
    return found


def test_a_failure_with_findings_is_the_reason_though_another_came_first():
    found = heard(
        event("runner_on_failed", "h01", "First", msg="non-zero return code"),
        event("runner_on_failed", "h01", "Told", **REFUSED),
        event("runner_on_failed", "h01", "Last", msg="left out"),
        stats(failures={"h01": 1}, ok={"h01": 3}),
    ).failed()
    assert found["h01"].task == "Told"
    assert found["h01"].findings == (FINDING,)


def test_who_got_over_it_has_not_failed():
    found = heard(
        event("runner_on_failed", "h01", msg="tried"),
        event("runner_on_unreachable", "h02", msg="no route"),
        stats(ok={"h01": 3}, rescued={"h01": 1}, dark={"h02": 1}),
    ).failed()
    assert set(found) == {"h02"}
    assert found["h02"].kind == "unreachable"


def test_of_a_loop_the_first_item_that_failed_says_why():
    found = heard(
        event("runner_item_on_failed", "h01", **REFUSED),
        event("runner_item_on_failed", "h01", msg="another"),
        event("runner_on_failed", "h01", msg="All items completed", results=[]),
        stats(failures={"h01": 1}),
    ).failed()
    assert found["h01"].findings == (FINDING,)


def test_without_counts_all_that_failed_counts():
    assert set(heard(event("runner_on_failed", "h01", msg="x")).failed()) == {"h01"}


def test_what_ansible_would_not_print_is_not_kept():
    well = event("runner_on_ok", "h01", changed=True, content="a secret", invocation={"a": 1})
    badly = event("runner_on_failed", "h01", msg="no", invocation={"module_args": {}}, diff="x")
    heard(well, badly)
    assert well["event_data"]["res"] == {"changed": True}
    assert badly["event_data"]["res"] == {"msg": "no"}


@pytest.mark.parametrize(
    ("counts", "told", "aside", "touched", "expected"),
    [
        ({"ok": 3}, None, False, True, "done"),
        ({"ok": 3, "failures": 1}, None, False, True, "failed"),
        ({"ok": 3, "failures": 1}, None, True, True, "quarantined"),
        ({"dark": 1}, None, False, True, "unreachable"),
        ({"ok": 3, "failures": 1}, "rolled back", True, True, "rolled back"),
        ({"ok": 3, "failures": 1}, "failed", True, True, "quarantined"),
        ({"ok": 3}, "waiting", False, True, "waiting"),
        ({"ok": 3}, "begun", False, True, "failed"),
        ({}, None, False, True, "interrupted"),
        ({}, None, False, False, "waiting"),
    ],
)
def test_how_a_host_came_out(counts, told, aside, touched, expected):
    by_host = {"h01": counts} if counts else {}
    said = {"h01": told} if told else {}
    assert outcome_of("h01", by_host, said, aside, touched) == expected


def test_playbooks_are_found_by_name_and_by_path(tmp_path):
    assert playbook_path("site").name == "site.yml"
    mine = tmp_path / "site"
    mine.write_text("[]")
    assert playbook_path(str(mine)) == mine
    with pytest.raises(ApiaryError) as refusal:
        playbook_path("nothing")
    assert refusal.value.findings[0].code == "FLEET-PLAYBOOK"


def test_options_are_those_of_ansible_playbook():
    words = arguments(
        inventory=["a", "b"], limit="@l", extra=["@v"], check=True, diff=True, tags="t", forks=5
    )
    assert " ".join(words) == "-i a -i b --limit @l -e @v --tags t --forks 5 --check --diff"


@pytest.mark.parametrize("name", ["ASK_PASS", "BECOME_ASK_PASS", "ASK_VAULT_PASS"])
def test_a_password_that_nobody_would_be_asked_for_is_refused(monkeypatch, name):
    """ansible-playbook would wait for it at ansible-runner's terminal, for ever."""
    refuse_prompts()
    monkeypatch.setattr(constants, f"DEFAULT_{name}", True)
    with pytest.raises(ApiaryError) as refusal:
        refuse_prompts()
    assert refusal.value.findings[0].code == "FLEET-PROMPT"
