# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The one shape of a finding: facts from code, explanations from the catalogue."""

from __future__ import annotations

import json
import pickle
import re
from dataclasses import replace

import pytest
from ansible_collections.apiary.instinct.plugins.module_utils import finding as module
from ansible_collections.apiary.instinct.plugins.plugin_utils import adapters, findings
from ansible_collections.apiary.instinct.plugins.plugin_utils.documents import (
    from_document,
    to_document,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.findings import Finding
from ansible_collections.apiary.instinct.plugins.plugin_utils.fleet import survey
from ansible_collections.apiary.instinct.plugins.plugin_utils.fleet.ledger import (
    Asked,
    Entry,
    Ledger,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.fleet.report.build import fleet_report
from ansible_collections.apiary.instinct.plugins.plugin_utils.fleet.report.types import HostInput
from ansible_collections.apiary.instinct.plugins.plugin_utils.fleet.types import HostFacts, Survey

from apiary.app import runner_events
from apiary.app.runner import Ended
from apiary.fleet.report.page import fleet_page
from apiary.rollout.records import host_outcomes

NOW = "2026-11-22T09:15:00Z"
VALUES = {"holder": "apiary-chat-0.service"}
ENTRIES = {
    "X-PLAIN": {"severity": "warning", "remedy": "Do it.", "source": "the manual"},
    "X-VALUES": {"severity": "error", "accepted": "warning", "remedy": "Set {name} of {subject}."},
}


@pytest.fixture(autouse=True)
def _catalogue():
    module.use_catalogue(ENTRIES.get)
    yield
    module.use_catalogue(findings.explanation)


def test_severity_remedy_and_source_are_the_catalogues():
    found = Finding("X-PLAIN", "host", "is wrong")
    assert str(found) == "warning: X-PLAIN: host: is wrong\n  remedy: Do it."
    assert found.source == "the manual"
    assert Finding("X-PLAIN", "host", "is wrong", source="a log").source == "a log"


def test_values_and_the_subject_fill_the_remedy():
    assert Finding("X-VALUES", "h", "m", name="size").remedy == "Set size of h."


def test_only_what_the_catalogue_lets_be_accepted_is_milder():
    assert Finding("X-VALUES", "h", "m", accepted=True, name="n").severity == "warning"
    assert Finding("X-PLAIN", "h", "m", accepted=True).severity == "warning"
    assert Finding("X-VALUES", "h", "m", accepted=False, name="n").severity == "error"


def test_what_could_not_be_read_is_info():
    assert Finding("X-VALUES", "h", "m", unknown=True, name="n").severity == "info"


def test_a_host_gives_facts_and_the_controller_explains_them():
    module.use_catalogue({}.get)
    told = Finding("X-VALUES", "h", "m", accepted=True, name=3)
    assert str(told) == "X-VALUES: h: m"
    module.use_catalogue(ENTRIES.get)
    explained = Finding.from_facts(told.facts())
    assert explained == Finding("X-VALUES", "h", "m", accepted=True, name="3")
    assert explained.facts() == told.facts()


@pytest.mark.parametrize(
    "facts",
    [
        {"code": "X-PLAIN", "subject": "h"},
        {"code": 1, "subject": "h", "message": "m"},
        {"code": "X-PLAIN", "subject": "h", "message": "m", "source": 5},
        {"code": "X-PLAIN", "subject": "h", "message": "m", "values": [1]},
    ],
)
def test_facts_that_are_none_are_refused(facts):
    with pytest.raises(ValueError, match="as texts"):
        Finding.from_facts(facts)


def test_a_host_cannot_replace_what_a_finding_says_of_itself():
    facts = {"code": "X-PLAIN", "subject": "h", "message": "m", "values": {"severity": "info"}}
    assert Finding.from_facts(facts) == Finding("X-PLAIN", "h", "m")


def test_a_document_keeps_the_words_of_who_wrote_it():
    told = {
        "code": "X-PLAIN",
        "severity": "info",
        "subject": "h",
        "message": "m",
        "remedy": "Another.",
        "source": None,
    }
    assert to_document(from_document(Finding, told, "file")) == told


def test_it_is_passed_on_about_something_else_and_in_other_words():
    found = Finding("X-PLAIN", "h", "m")
    other = found.about("i").reworded(remedy="Ask.")
    assert (other.subject, other.remedy, found.subject) == ("i", "Ask.", "h")
    assert pickle.loads(pickle.dumps(other)) == other  # noqa: S301 - our own


def test_a_module_ends_with_its_findings_as_data():
    class Module:
        def fail_json(self, **result):
            raise SystemExit(result)

    refusal = findings.error("X-PLAIN", "h", "m")
    with pytest.raises(SystemExit) as ended:
        module.fail(Module(), refusal, Finding("X-VALUES", "i", "n", name="o"), done=["a"])
    result = ended.value.code
    assert result["msg"] == "X-PLAIN: h: m\nX-VALUES: i: n"
    assert [one["code"] for one in result["findings"]] == ["X-PLAIN", "X-VALUES"]
    assert result["done"] == ["a"]


def test_the_catalogue_is_read_by_the_entry():
    entry = findings.explanation("DOC-MISSING")
    assert entry["severity"] == "error"
    assert findings.explanation("NO-SUCH-CODE") is None


def failure_of(finding):
    """Return what a module ends with, on a host that has no catalogue."""

    class Module:
        def fail_json(self, **result):
            raise SystemExit(result)

    module.use_catalogue({}.get)
    with pytest.raises(SystemExit) as ended:
        module.fail(Module(), Finding(finding.code, finding.subject, finding.message, **VALUES))
    module.use_catalogue(findings.explanation)
    return {"failed": True, **json.loads(json.dumps(ended.value.code))}


def of_page(report):
    """Return (code, severity, subject, remedy) of what the fleet's page shows of its one host."""
    data = re.search(
        r'<script type="application/json" id="data">(.*?)</script>', fleet_page(report)
    )
    document = json.loads(data[1])
    shown = document["pool"][document["hosts"]["h"]["findings"]]
    return [tuple(one[name] for name in ("code", "severity", "subject", "remedy")) for one in shown]


@pytest.mark.parametrize(
    ("code", "subject"),
    [
        ("WEIGHTS-FETCH-HASH", "model-1.safetensors"),
        ("HOST-UNIT", "haproxy.service"),
        ("REPLICA-GPU-TAKEN", "GPU 0000:05:00.0"),
        ("ROLLOUT-IN-PROGRESS", "chat"),
    ],
)
def test_a_failure_of_a_host_reads_the_same_wherever_it_is_shown(code, subject):
    module.use_catalogue(findings.explanation)
    expected = Finding(code, subject, "is another", **VALUES)
    shape = (code, expected.severity, subject, expected.remedy)
    assert "{" not in expected.remedy
    raw = failure_of(expected)
    assert "remedy" not in json.dumps(raw)

    in_terminal = adapters.completed(raw, "converge")
    assert in_terminal["msg"] == str(expected)
    assert in_terminal["findings"] == [to_document(expected)]

    report = {"role": "rocm", "changed": False, "diff": [], "steps": [], **raw}
    (concern,) = survey.evaluate([survey.Concern("rocm")], [report], "h")
    assert concern.findings == (expected,)
    surveyed = Survey("h", "2026-11-22T09:00:00Z", True, HostFacts(), (concern,))
    assert shape in of_page(fleet_report([HostInput("h", survey=surveyed)], NOW))

    log = runner_events.EventLog()
    data = {"host": "h", "task": "Converge", "res": in_terminal}
    log({"event": "runner_on_failed", "event_data": data})
    ended = Ended(2, "failed", {"h": {"failures": 1}}, log.failed(), touched=frozenset({"h"}))
    outcome = host_outcomes(["h"], ended, None, None, False)["h"]
    assert outcome.findings == (expected,)
    entry = Entry("r", 1, "ann", "ops", Asked("site"), NOW, NOW, "failed", "", "Converge")
    ledger = Ledger("h", (replace(entry, findings=outcome.findings),))
    kept = from_document(Ledger, to_document(ledger), "ledger")
    assert shape in of_page(fleet_report([HostInput("h", ledger=kept)], NOW))


def test_a_host_s_severity_counts_where_the_catalogue_has_it():
    told = {"code": "X-VALUES", "subject": "h", "message": "m", "remedy": "Ask.", "source": None}
    module.use_catalogue(findings.explanation)
    drained = {**told, "code": "ROUTER-DRAIN-TIMEOUT", "severity": "warning"}
    assert findings.from_host(drained).severity == "warning"
    assert findings.from_host({**drained, "severity": "info"}).severity == "error"
