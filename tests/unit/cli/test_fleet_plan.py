# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""`apiary plan --inventory`: what is read, what is printed, and the exit code."""

import json
import os
import re
import signal
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import jsonschema
import pytest
from ansible_collections.apiary.instinct.plugins.plugin_utils.bench.types import Requested
from ansible_collections.apiary.instinct.plugins.plugin_utils.documents import dumps
from ansible_collections.apiary.instinct.plugins.plugin_utils.findings import Finding
from ansible_collections.apiary.instinct.plugins.plugin_utils.fleet.ledger import Applied, Ledger
from ansible_collections.apiary.instinct.plugins.plugin_utils.fleet.types import (
    Change,
    Quarantine,
    Survey,
)

from apiary.app.cli import main
from apiary.app.runner import Ended
from apiary.app.runner_events import Failed
from apiary.app.schemas import schema
from apiary.fleet import hosts as fleet_hosts
from apiary.fleet import plan as fleet_plan
from apiary.fleet.hosts import FleetHost, Hosts
from support.bench.analytic_engine import SLO, WORKLOAD
from support.surveys import (
    changing,
    digest,
    fleet,
    inventory_of,
    name_of,
    rack_of,
    settled,
    write_fleet,
)

PLAN = ["plan", "--inventory", "inventory.yml"]
ASKED = Requested(WORKLOAD, slo=SLO, phases=("baseline", "scaling", "slo"), engine_runs=3)
NOON = datetime(2026, 11, 22, 12, 0, 0, tzinfo=UTC)
CHANGE = Change("/etc/sysctl.d/zz-apiary.conf", "a = 1\n", "a = 2\n")


@pytest.fixture
def here(tmp_path, monkeypatch):
    """An empty directory at noon, on a terminal of 80 columns, without anybody's Ansible."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    for name in [name for name in os.environ if name.startswith("ANSIBLE_")]:
        monkeypatch.delenv(name)
    monkeypatch.setattr(fleet_plan, "now", lambda: NOON)
    monkeypatch.setattr(fleet_plan, "read_hosts", read_hosts)
    return tmp_path


def read_hosts(sources, limit=None, **_more):
    """The hosts of ``inventory_of`` as ansible-core, which takes a second, reads them."""
    assert sources == ("inventory.yml",)
    count = sum(
        int(last) - int(first) + 1
        for first, last in re.findall(r"gpu-\[(\d+):(\d+)\]", Path("inventory.yml").read_text())
    )
    names = [name_of(index) for index in range(count)]
    wanted = names if limit is None else re.split("[,:]", limit)
    found = [
        FleetHost(name, (f"rack_{rack_of(index)}",), rack_of(index), rack_of(index))
        for index, name in enumerate(names)
        if name in wanted
    ]
    return Hosts(tuple(found), count)


def hosts(*surveys, count=None):
    """Have the surveys of a fleet, and an inventory of that many hosts."""
    Path("inventory.yml").write_text(inventory_of(count or len(surveys)))
    write_fleet(Path("artifacts"), surveys)


def printed(capsys):
    """What was printed, without the spaces that fill lines."""
    out, err = capsys.readouterr()
    return "\n".join(line.rstrip() for line in out.splitlines()) + "\n", err


def offline(*more):
    return main([*PLAN, "--offline", *more])


def test_nothing_would_change(here, capsys):
    hosts(settled("gpu-0001"), settled("gpu-0002"))
    assert offline() == 0
    assert printed(capsys)[0].startswith("2 hosts: 0 would change, 2 would not\n")


def test_something_would_change(here, capsys):
    hosts(settled("gpu-0001"), changing(settled("gpu-0002"), "host_tuning", CHANGE))
    assert offline() == 3
    out, err = printed(capsys)
    assert "host_tuning/1  1 host  cause unknown\n  gpu-0002\n" in out
    assert f"{CHANGE.subject}  +1 -1" in out
    assert "a = 2" not in out
    assert "FLEET-PLAN-ONE-DOMAIN" in err
    assert offline("--diff") == 3
    assert "    -a = 1\n    +a = 2\n" in printed(capsys)[0]


def test_a_fleet_on_a_terminal(here, capsys, golden):
    hosts(*fleet(100))
    Path("artifacts/gpu-0090/quarantine.json").write_text(
        dumps(Quarantine("gpu-0090", "Serve", "disk full"))
    )
    assert offline() == 1
    out, err = printed(capsys)
    golden("fleet/plan.txt", out)
    golden("fleet/plan.err.txt", err)
    assert max(map(len, out.splitlines())) <= 80


def test_a_fleet_that_drifted(here, capsys, golden):
    surveys = [one for one in fleet(100) if one.reached]
    hosts(*surveys, count=100)
    for survey in surveys:
        applied = tuple(
            Applied(one.concern, "2026-11-20T09:00:00Z", "run-1", digest(one.concern))
            for one in survey.concerns
        )
        path = Path(f"artifacts/fleet/ledger/{survey.host}.json")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(dumps(Ledger(survey.host, applied=applied)))
    some = "gpu-0001,gpu-0002,gpu-0011,gpu-0052,gpu-0053,gpu-0060"
    assert offline("--drift", "--diff", "--limit", some) == 3
    golden("fleet/drift.txt", printed(capsys)[0])


def test_the_document_has_it_all(here, capsys):
    hosts(*fleet(100))
    assert offline("--json", "--out", "out/plan.json") == 1
    out, err = capsys.readouterr()
    document = json.loads(out)
    jsonschema.validate(document, schema("fleet-plan"))
    assert document == json.loads(Path("out/plan.json").read_text())
    assert document["totals"]["hosts"] == 100
    assert document["would_change"]
    assert {one["code"] for one in json.loads(err)["findings"]} >= {"FLEET-UNREACHABLE"}


def test_only_the_inventorys_hosts_count(here, capsys, monkeypatch):
    """Read by ansible-core, patterns and all."""
    monkeypatch.setattr(fleet_plan, "read_hosts", fleet_hosts.read_hosts)
    surveys = [settled(name_of(index)) for index in range(9)]
    hosts(*surveys[:8], changing(surveys[8], "rocm", CHANGE))
    assert offline() == 3
    assert "rack" not in printed(capsys)[1]
    assert offline("--limit", "rack_r001:!gpu-0002") == 0
    assert "7 hosts: 0 would change, 7 would not" in printed(capsys)[0]


def test_a_host_without_a_survey_is_an_error(here, capsys):
    hosts(settled("gpu-0001"), count=2)
    assert offline() == 1
    out, err = printed(capsys)
    assert "not seen: gpu-0002" in out
    assert "FLEET-PLAN-NO-SURVEY: gpu-0002: has no survey" in err


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("{", "FILE-SYNTAX"),
        ('{"schema": "apiary.survey/v9"}', "DOC-SCHEMA"),
        (dumps(settled("gpu-0007")), "FLEET-PLAN-NO-SURVEY"),
    ],
)
def test_a_survey_that_cannot_be_used_is_an_error(here, capsys, text, code):
    hosts(settled("gpu-0001"))
    Path("artifacts/gpu-0001/survey.json").write_text(text)
    assert offline() == 1
    assert code in printed(capsys)[1]


def test_an_unreadable_ledger_or_quarantine_is_told(here, capsys):
    hosts(settled("gpu-0001"))
    ledger = Path("artifacts/fleet/ledger/gpu-0001.json")
    ledger.parent.mkdir(parents=True)
    ledger.write_text("{")
    Path("artifacts/gpu-0001/quarantine.json").write_text("[")
    assert offline() == 1
    err = printed(capsys)[1]
    assert err.count("FILE-SYNTAX") == 2
    assert "FLEET-PLAN-QUARANTINED: gpu-0001" in err


def test_old_surveys_are_told_offline(here, capsys):
    hosts(replace(settled("gpu-0001"), collected_at="2026-11-20T12:00:00Z"))
    assert offline() == 0
    assert "FLEET-PLAN-SURVEY-OLD: gpu-0001" in printed(capsys)[1]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["plan"], "give DEPLOYMENT and EVIDENCE"),
        (["plan", "deployment.yml"], "give DEPLOYMENT and EVIDENCE"),
        (["plan", "deployment.yml", "evidence.json", "--limit", "x"], "--limit is for a fleet"),
        (["plan", "--drift"], "--drift is for a fleet"),
        ([*PLAN, "deployment.yml", "evidence.json"], "DEPLOYMENT is not for a fleet"),
        ([*PLAN, "--keep", "plan.json"], "--keep is not for a fleet"),
        ([*PLAN, "--offline", "--forks", "4"], "--forks is for a survey"),
        (["plan", "deployment.yml", "evidence.json", "-e", "a=1"], "--extra-vars is for a fleet"),
        ([*PLAN, "-e", "target=gpu-0001"], "--limit says which hosts"),
        ([*PLAN, "-e", "{a: [hunter2"], "no mapping of variables"),
    ],
)
def test_the_two_usages_do_not_mix(here, capsys, arguments, words):
    assert main(arguments) == 2
    err = capsys.readouterr().err
    assert words in err
    assert "hunter2" not in err


def survey_run(monkeypatch, write=(), failed=None, counts=True, output=""):
    """Stand in for ansible-runner: write these surveys, and tell of these failures."""
    asked = []

    def run(playbook, **options):
        asked.append((playbook, options))
        write_fleet(Path("artifacts"), write)
        for survey in write:
            for name in ("runner_on_start", "runner_on_ok"):
                options["on_event"]({"event": name, "event_data": {"host": survey.host}})
        for host in failed or {}:
            event = {"event": "runner_on_unreachable", "event_data": {"host": host}}
            options["on_event"](event)
        options["on_event"]({"event": "playbook_on_stats", "event_data": {}})
        told = {survey.host: {"ok": 1} for survey in write} if counts else {}
        return Ended(4 if failed else 0, "failed", told, failed or {}, output=output)

    monkeypatch.setattr(fleet_plan, "run_playbook", run)
    return asked


def at_noon(survey):
    return replace(survey, collected_at="2026-11-22T12:00:00Z")


def test_a_limit_goes_by_name_and_variables_go_along(here, monkeypatch):
    """A line of --limit @FILE is no expression: Ansible would find no host named a:b."""
    hosts(settled("gpu-0001"), settled("gpu-0002"), settled("gpu-0003"))
    Path("v.yml").write_text("a: 1")
    Path("password").write_text("x")
    asked = survey_run(monkeypatch, [at_noon(settled("gpu-0001")), at_noon(settled("gpu-0003"))])
    given = ["-e", "@v.yml", "-e", "b=2", "--vault-password-file", "password"]
    assert main([*PLAN, "--limit", "gpu-0001:gpu-0003", *given]) == 0
    ((_playbook, options),) = asked
    assert options["limit"] == ["gpu-0001", "gpu-0003"]
    assert options["extra"] == (f"@{Path('v.yml').absolute()}",)
    assert options["extra_vars"] == {"b": "2"}
    assert options["vault_password_files"] == ("password",)


def test_the_hosts_are_surveyed_first(here, capsys, monkeypatch):
    hosts(settled("gpu-0001"))
    changed = at_noon(changing(settled("gpu-0001"), "host_tuning", CHANGE))
    asked = survey_run(monkeypatch, [changed])
    assert main([*PLAN, "--limit", "gpu-0001", "--forks", "7"]) == 3
    ((playbook, options),) = asked
    assert playbook == "survey"
    assert (list(options["inventory"]), options["limit"]) == (["inventory.yml"], ["gpu-0001"])
    assert options["forks"] == 7
    assert not options["artifacts"].exists()
    assert "surveyed 2026-11-22T12:00:00Z\n" in printed(capsys)[0]


def test_a_survey_from_before_does_not_count(here, capsys, monkeypatch):
    hosts(settled("gpu-0001"), settled("gpu-0002"))
    survey_run(monkeypatch, [at_noon(settled("gpu-0001"))])
    assert main(PLAN) == 1
    out, err = printed(capsys)
    assert "not seen: gpu-0002" in out
    assert "gpu-0002: was not surveyed; its last survey is 3 h old" in err


def test_the_failure_of_the_survey_is_the_reason(here, capsys, monkeypatch):
    refusal = Finding.from_fields(
        code="HOST-PYTHON",
        severity="error",
        subject="gpu-0002",
        message="no Python",
        remedy="install it",
        source=None,
    )
    failed = {
        "gpu-0002": Failed("Survey", "no Python", (refusal,)),
        "gpu-0003": Failed("Survey", "No route\n to host", kind="unreachable"),
    }
    hosts(*(settled(f"gpu-000{number}") for number in (1, 2, 3)))
    survey_run(monkeypatch, [at_noon(settled("gpu-0001"))], failed)
    assert main(PLAN) == 1
    err = printed(capsys)[1]
    assert "HOST-PYTHON: gpu-0002: no Python" in err
    assert "FLEET-PLAN-NO-SURVEY: gpu-0003: No route to host" in err


def test_a_host_that_the_survey_calls_unreached_says_so_once(here, capsys, monkeypatch):
    dead = Finding.from_fields(
        code="FLEET-UNREACHABLE",
        severity="error",
        subject="gpu-0001",
        message="no route",
        remedy="look",
        source=None,
    )
    survey = Survey("gpu-0001", "2026-11-22T12:00:00Z", reached=False, findings=(dead,))
    hosts(settled("gpu-0001"))
    survey_run(monkeypatch, [survey], {"gpu-0001": Failed("Survey", "no route", (dead,))})
    assert main(PLAN) == 1
    assert printed(capsys)[1].count("FLEET-UNREACHABLE") == 1


def test_a_survey_that_comes_to_no_host_is_an_error(here, capsys, monkeypatch):
    hosts(settled("gpu-0001"))
    survey_run(monkeypatch, counts=False, output="ERROR! the role is missing")
    assert main(PLAN) == 1
    assert "FLEET-PLAN-FAILED: inventory.yml: the survey came to no host: ERROR! the role" in (
        capsys.readouterr().err
    )


def test_a_large_fleet_is_surveyed_in_parts(here, capsys, monkeypatch):
    """Hosts whose replicas span several are in one: each needs what the others told in its run."""
    monkeypatch.setattr(fleet_plan, "PART", 2)
    names = [name_of(index) for index in range(6)]
    surveys = [at_noon(settled(name)) for name in names]
    hosts(*surveys)
    found = [FleetHost(name, spans=name in (names[1], names[3], names[5])) for name in names]
    monkeypatch.setattr(fleet_plan, "read_hosts", lambda *_a, **_m: Hosts(tuple(found), 6))
    asked = survey_run(monkeypatch, surveys)
    assert main(PLAN) == 0
    assert [options["limit"] for _playbook, options in asked] == [
        [names[1], names[3], names[5]],
        [names[0], names[2]],
        [names[4]],
    ]
    assert len({options["artifacts"] for _playbook, options in asked}) == 3
    # To decide together is a task of each host; only the first part has hosts for it.
    skipped = [options["skip_tags"] for _playbook, options in asked]
    assert skipped == [None, "look_together", "look_together"]
    assert printed(capsys)[0].startswith("6 hosts: 0 would change, 6 would not\n")


def test_a_part_that_comes_to_no_host_loses_its_hosts(here, capsys, monkeypatch):
    monkeypatch.setattr(fleet_plan, "PART", 1)
    hosts(settled("gpu-0001"), settled("gpu-0002"))

    def run(_playbook, *, limit, **_options):
        if limit == ["gpu-0002"]:
            return Ended(1, "failed", {}, {}, output="ERROR! no memory")
        write_fleet(Path("artifacts"), [at_noon(settled("gpu-0001"))])
        return Ended(0, "successful", {"gpu-0001": {"ok": 1}}, {})

    monkeypatch.setattr(fleet_plan, "run_playbook", run)
    assert main(PLAN) == 1
    out, err = printed(capsys)
    assert "not seen: gpu-0002" in out
    assert "gpu-0002: the survey came to no host: ERROR! no memory" in err
    assert "gpu-0001" not in err


def test_an_interrupted_survey_ends_ansible_and_the_command(here, capsys, monkeypatch):
    hosts(settled("gpu-0001"))
    before = signal.getsignal(signal.SIGINT)

    def run(_playbook, *, stop, **_options):
        assert not stop()
        os.kill(os.getpid(), signal.SIGTERM)
        assert stop()
        return Ended(-15, "canceled", {}, {})

    monkeypatch.setattr(fleet_plan, "run_playbook", run)
    assert main(PLAN) == 130
    assert "aborted" in capsys.readouterr().err
    assert signal.getsignal(signal.SIGINT) is before
