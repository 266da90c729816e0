# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whatever a host answers: no other host's file, server, plan or share of requests changes."""

import json
from unittest.mock import MagicMock

import pytest
from ansible.errors import AnsibleActionFail
from ansible_collections.apiary.instinct.plugins.action import plan as plan_action
from ansible_collections.apiary.instinct.plugins.action import rollout
from ansible_collections.apiary.instinct.plugins.plugin_utils.adapters import own_words
from ansible_collections.apiary.instinct.plugins.plugin_utils.documents import to_document
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from apiary.app.runner_events import EventLog
from support.each import each
from support.hostile import (
    HOSTILE,
    NAME,
    OTHERS,
    Fleet,
    answer,
    files_of,
    places,
    release,
    replaced,
    text_of,
    with_plan,
)
from support.topology.simulated import simulated_evidence

UNIT = f"apiary-{NAME}-0.service"


@pytest.fixture(scope="module")
def fleet(tmp_path_factory):
    return Fleet(tmp_path_factory.mktemp("controller") / "artifacts")


def nested(depth):
    value = []
    for _level in range(depth):
        value = [value]
    return value


def plan_with(units):
    """The plan of the answer, with replicas of these units."""
    plan = answer()["plan"]
    first = plan["replicas"][0]
    return {**plan, "replicas": [{**first, "unit": unit} for unit in units]}


FOREIGN = [
    "gpu-002-0",
    "gpu-002-0.service",
    "apiary-other-0.service",
    f"apiary-{NAME}-0.service\n",
    f"x{UNIT}",
    f"apiary-{NAME}-gpu-002-0.service",
    f"apiary-{NAME}-00.service",
    f"apiary-{NAME}-64.service",
    f"apiary-{NAME}-99999999999999999999.service",
    f"apiary-{NAME}-\u0663.service",
    f"apiary-{NAME}--1.service",
    f"apiary-{NAME}-0;shutdown sessions.service",
    "apiary-../gpu-002-0.service",
    "../../gpu-002/plan.json",
    "\x1b]0;PWNED\x07-0.service",
    "--host=gpu-002",
    "",
    "a" * 100_000,
]
WRONG = [None, True, -1, 10**400, "x", [], [None], {"x": "y"}, nested(60)]


@each(FOREIGN, lambda unit: ascii(unit)[:60])
def test_a_unit_that_is_not_its_own_is_refused(unit, fleet):
    lock = {"owner": "ann", "since": "today", "out": [unit]}
    for changes in (
        {"plan": plan_with([UNIT, unit])},
        {"lock": lock},
        {"plan": plan_with([unit]), "serving": [unit], "lock": lock},
    ):
        for back in (False, True):
            named, refusal = fleet.change(answer(**changes), back)
            fleet.unharmed(named)
            assert "ROLLOUT-PLAN" in refusal
    # What it says to serve beside its plan is nothing.
    named, _refusal = fleet.change(answer(serving=[unit, UNIT]))
    fleet.unharmed(named)
    named, refusal = fleet.maintain({**answer(serving=[unit]), "__serves_name": NAME})
    fleet.unharmed(named)
    assert "ROLLOUT-PLAN" in refusal


def test_an_honest_host_names_its_servers_and_is_recorded(fleet):
    for back in (False, True):
        named, refusal = fleet.change(answer(), back)
        assert refusal == ""
        assert set(named) == {f"{HOSTILE}-0", f"{HOSTILE}-1"}
    named, refusal = fleet.maintain({**answer(), "__serves_name": NAME})
    assert (named, refusal) == ([f"{HOSTILE}-0", f"{HOSTILE}-1"], "")
    fleet.unharmed(named)


def test_units_that_repeat_inflate_no_share(fleet):
    named, refusal = fleet.change(answer(plan=plan_with([UNIT] * 60)))
    assert "ROLLOUT-PLAN" in refusal
    # Sixty different ones are of the right shape, and count no more than routers have.
    many = [f"apiary-{NAME}-{index}.service" for index in range(60)]
    reported = answer(plan=plan_with(many), serving=many)
    routed = [{"__router": "router-1", "servers": fleet.servers()}]
    common = {"artifacts": str(fleet.artifacts)}
    answers = {"rollout_info": reported, "converge": {"resources": []}}
    inspected = fleet.run(
        rollout, answers, event="inspect", deployment=NAME, release="rollback",
        results=routed, **common,
    )  # fmt: skip
    order = fleet.run(
        rollout, {}, {"__inspected": inspected}, event="order", hosts=[HOSTILE],
        pool=[HOSTILE, *OTHERS], allow_outage=True, allow_unhealthy=True, **common,
    )  # fmt: skip
    assert order["rollout"]["replicas"] == len(fleet.servers())
    fleet.unharmed(named)


def other_name(name):
    """A release that calls its deployment so, in all the places that it has."""

    def change(plan):
        plan["deployment"]["name"] = name
        plan["target"] = f"apiary-{name}.target"
        for index, replica in enumerate(plan["replicas"]):
            replica["unit"] = f"apiary-{name}-{index}.service"

    changed = with_plan(change)
    changed["deployment"] = name
    content = text_of(changed["files"])
    path = f"/etc/apiary/{name}/plan.json"
    changed["files"].append({"path": path, "mode": "0644", "content": content})
    return changed


def heavier(plan):
    for replica in plan["replicas"]:
        replica["kv_tokens"] = 1000 * (replica["kv_tokens"] or 1000)


def moved(plan):
    plan["replicas"][0]["port"] = 22


def outside(path):
    changed = release()
    changed["files"] = [{**item, "path": path} for item in changed["files"]]
    return changed


RELEASES = {
    **{
        f"named {name!r:.30}": other_name(name)
        for name in (
            f"../gpu-002/{NAME}",
            "../../../..",
            "..",
            "/etc/cron.d",
            "alpha",
            "a\nb",
            "x" * 300,
            "",
        )
    },
    "another host's": release("gpu-002"),
    "another host's text": release(files=files_of("gpu-002")),
    "heavier": with_plan(heavier),
    "another port": with_plan(moved),
    "another's path": outside(f"/etc/apiary/{NAME}/../../gpu-002/plan.json"),
    "no plan": release(files=[]),
    "no JSON": with_plan(lambda _plan: "}{"),
    "nested": with_plan(lambda _plan: nested(500)),
    "kinds of its own": release(units={"kind": "command", "argv": ["true"], "services": "x"}),
    "an id of its own": release(id_=f"../../{NAME}"),
    "no id": release(id_=""),
}


@each(sorted(RELEASES))
def test_a_release_of_its_own_is_nobody_elses_plan(case, fleet):
    for back in (False, True):
        named, refusal = fleet.change(answer(release=RELEASES[case]), back)
        fleet.unharmed(named)
        if case not in ("kinds of its own",) and not back:
            assert refusal


def test_a_plan_that_nobody_decided_is_restored_and_not_followed(fleet):
    reported = answer(release=with_plan(heavier))
    assert "ROLLOUT-UNRECORDED" in fleet.change(reported)[1]
    # The way back of a failed change: the host serves it, routers share requests as before.
    named, refusal = fleet.change(reported, back=True)
    assert refusal == ""
    fleet.unharmed(named)


def test_an_operator_may_accept_what_this_controller_has_no_record_of(tmp_path):
    fleet = Fleet(tmp_path / "artifacts")
    (tmp_path / "artifacts/fleet/ledger" / f"{HOSTILE}.json").unlink()
    assert "ROLLOUT-UNRECORDED" in fleet.change(answer())[1]
    assert len(fleet.router().pools[0].servers) == 6
    assert fleet.change(answer(), accept=True)[1] == ""
    assert len(fleet.router().pools[0].servers) == 8


def test_what_was_decided_before_is_known(tmp_path):
    """A release of two changes ago is one that this controller decided."""
    fleet = Fleet(tmp_path / "artifacts")
    first = text_of(files_of(HOSTILE))
    for port in (8100, 8200):
        document = json.loads(first)
        document["replicas"][0]["port"] = port
        text = json.dumps(document)
        fleet.run(plan_action, {}, serves=text, dest=str(fleet.artifacts / HOSTILE))
    assert fleet.change(answer())[1] == ""
    fleet.unharmed([])


@each([(name, value) for name in answer() for value in WRONG], str)
def test_an_answer_of_the_wrong_kind_harms_nobody(name, value, fleet):
    for back in (False, True):
        fleet.unharmed(fleet.change(answer(**{name: value}), back)[0])
    fleet.unharmed(fleet.maintain({**answer(**{name: value}), "__serves_name": NAME})[0])


@each([f"../{OTHERS[0]}", "..", "a\nb", "other", "", "x" * 300])
def test_a_deployment_of_any_name_is_maintained_for_its_host_alone(name, fleet):
    fleet.unharmed(fleet.maintain({**answer(), "__serves_name": name})[0])


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.sampled_from(FOREIGN),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data(), value=values, back=st.booleans())
def test_no_answer_harms_another(fleet, data, value, back):
    honest = answer()
    path = data.draw(st.sampled_from(sorted(places(honest), key=str)))
    reported = replaced(honest, path, value)
    if isinstance(reported, dict):
        fleet.unharmed(fleet.change(reported, back)[0])
        fleet.unharmed(fleet.maintain({**reported, "__serves_name": NAME})[0])


CONVERGED = [
    {"resources": []},
    {"resources": [{"resource": f"replicas {NAME}", "changed": True}]},
    {
        "resources": [
            {
                "resource": f"replicas {NAME}",
                "changed": True,
                "result": {"restarted": FOREIGN, "started": FOREIGN, "secrets": [None]},
            }
        ]
    },
]


@each(CONVERGED, lambda one: str(one)[:60])
def test_what_converge_says_names_nobody_else(converged, fleet):
    for back in (False, True):
        named, _refusal = fleet.change(answer(), back, converged)
        fleet.unharmed(named)


def evidence(**changes):
    return {**simulated_evidence(), **changes}


def planned(fleet, found):
    """Decide the host's plan from evidence, save it, and have it be what the host serves."""
    deployment = to_document(json.loads(text_of(files_of(HOSTILE)))["deployment"])
    dest = str(fleet.artifacts / HOSTILE)
    try:
        fleet.run(plan_action, {}, deployment=deployment, evidence=found, dest=dest)
    except AnsibleActionFail as refusal:
        return str(refusal)
    return ""


EVIDENCE = {
    "another's name": evidence(host="gpu-002"),
    "a path": evidence(host="../gpu-002"),
    "an escape": evidence(host="\x1b]0;PWNED\x07"),
    "a plan of another": evidence(
        files={**simulated_evidence()["files"], "/etc/apiary/../gpu-002/plan.json": "{}",
               f"/etc/apiary/{NAME}/plan.json": text_of(files_of("gpu-002"))}
    ),
    "no commands": evidence(commands=[]),
    "no files": evidence(files={}),
    "wrong commands": evidence(commands={"amd_smi_list": {"stdout": 1}}),
    "deep": evidence(files={"/sys/x": nested(300)}),
    "large": evidence(files={"/sys/x": "x" * (9 * 2**20)}),
    "many": evidence(links={f"/{number}": "" for number in range(900_000)}),
}  # fmt: skip


@each(sorted(EVIDENCE))
def test_evidence_is_its_hosts_alone(case, tmp_path_factory):
    fleet = Fleet(tmp_path_factory.mktemp("controller") / "artifacts")
    refusal = planned(fleet, EVIDENCE[case])
    fleet.unharmed([])
    assert ("PROBE-SIZE" in refusal) == (case in ("large", "many"))
    if case in ("another's name", "a path", "an escape"):
        assert refusal == ""
        saved = json.loads((fleet.artifacts / HOSTILE / "plan.json").read_text())
        assert saved["host"] == HOSTILE


def test_a_host_with_more_memory_than_its_gpus_have_gets_no_more_requests(tmp_path):
    fleet = Fleet(tmp_path / "artifacts")
    found = simulated_evidence()
    for path, text in found["files"].items():
        if path.endswith("mem_info_vram_total"):
            found["files"][path] = str(int(text) * 1000)
        if "/mem_banks/" in path:
            found["files"][path] = text.replace("size_in_bytes ", "size_in_bytes 1000")
    assert planned(fleet, found) == ""
    weights = fleet.state()["weights"]
    shares = [weights[NAME, f"{host}-0"] for host in (HOSTILE, *OTHERS)]
    assert min(shares) > 0.9 * max(shares)


@each(["apiary_artifacts", "apiary_deployments", "rollout_max_unavailable", "__inspected"])
def test_facts_of_a_host_are_no_variables_of_ours(name):
    task_vars = {"inventory_hostname": HOSTILE, "ansible_facts": {name: "/", "os_family": "x"}}
    with pytest.raises(AnsibleActionFail, match="FLEET-FACTS"):
        run_with(rollout, task_vars)
    assert run_with(rollout, {**task_vars, "ansible_facts": {"os_family": "x"}})


def run_with(plugin, task_vars):
    task = MagicMock(args={"event": "wait"}, check_mode=False, async_val=0, diff=False)
    action = plugin.ActionModule(task, MagicMock(), MagicMock(), MagicMock(), MagicMock(), None)
    return action.run(task_vars={"hostvars": {}, **task_vars})


def test_a_module_says_nothing_but_its_result():
    facts = {"apiary_artifacts": "/", "discovered_interpreter_python": "/usr/bin/python3"}
    stats = {"data": {"apiary_outcomes": {"gpu-002": "failed"}}, "aggregate": True}
    told = own_words({"changed": True, "ansible_facts": facts, "ansible_stats": stats})
    found = {"discovered_interpreter_python": "/usr/bin/python3"}
    assert told == {"changed": True, "ansible_facts": found}
    assert own_words({"ansible_facts": None, "ansible_stats": stats}) == {}


def test_how_a_host_came_out_is_said_of_itself_by_the_playbook_alone():
    log = EventLog()

    def ok(host, action, outcomes):
        stats = {"data": {"apiary_outcomes": outcomes}, "aggregate": True}
        data = {"host": host, "task_action": action, "res": {"ansible_stats": stats}}
        log({"event": "runner_on_ok", "event_data": data})

    ok("gpu-002", "ansible.builtin.set_stats", {"gpu-002": "done"})
    ok(HOSTILE, "ansible.builtin.slurp", {"gpu-002": "failed", HOSTILE: "done"})
    ok(HOSTILE, "ansible.builtin.set_stats", {"gpu-002": "failed", HOSTILE: "failed"})
    artifact = {"apiary_outcomes": {"gpu-003": "failed"}}
    log({"event": "playbook_on_stats", "event_data": {"artifact_data": artifact}})
    assert log.custom == {"apiary_outcomes": {"gpu-002": "done", HOSTILE: "failed"}}


def test_a_run_on_the_controller_alone_says_whatever_it_found():
    def said(*hosts):
        log = EventLog()
        for host in hosts:
            log({"event": "runner_on_start", "event_data": {"host": host}})
        artifact = {"doctor_findings": [{"code": "DOC-UNKNOWN-FIELD"}]}
        log({"event": "playbook_on_stats", "event_data": {"artifact_data": artifact}})
        return log.custom

    assert said("localhost") == {"doctor_findings": [{"code": "DOC-UNKNOWN-FIELD"}]}
    assert said("localhost", HOSTILE) == said(HOSTILE) == said() == {}
