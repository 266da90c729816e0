# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

import json

import pytest
from ansible_collections.apiary.instinct.plugins.plugin_utils.documents import dumps, to_document
from ansible_collections.apiary.instinct.plugins.plugin_utils.findings import ApiaryError
from click import UsageError
from click.testing import CliRunner

from apiary.host.place_command import place_command
from support.demo import demo_plan
from support.topology.topologies import MI325X_BUSES, bdf, interleaved_hives, mi325x


def gpus(*indices):
    return [bdf(MI325X_BUSES[index]) for index in indices]


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Run `apiary place` on the demo's host; its exit code, stdout and stderr."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "host.json").write_text(dumps(mi325x()))
    (tmp_path / "lost.json").write_text(dumps(mi325x(missing=[1])))
    (tmp_path / "plan.json").write_text(dumps(demo_plan()))

    def call(*arguments, stdin=None):
        done = CliRunner().invoke(
            place_command, arguments, input=stdin, standalone_mode=False, catch_exceptions=False
        )
        return done.return_value, done.stdout, done.stderr

    return call


def lines(*requests):
    return "".join(json.dumps(request) + "\n" for request in requests)


def topology(**more):
    return to_document(mi325x(**more))


def test_sizes_may_differ_and_gpus_be_required(run):
    _code, out, _err = run(
        "host.json", "--sizes", "2,4", "--require", f"1:{gpus(1)[0]},{gpus(0)[0]}", "--json"
    )
    document = json.loads(out)
    assert [share["gpus"] for share in document["replicas"]] == [gpus(4, 5), gpus(0, 1, 2, 3)]


def test_a_person_reads_what_stays_free_and_what_was_beaten(run):
    _code, out, _err = run("host.json", "--tp", "4")
    assert "no cut as requested costs less" in out
    assert "runner-up: " in out
    assert f"free: {' '.join(gpus(4, 5, 6, 7))}" in out
    assert "TP4 × 1 (1 on one NUMA node), TP2 × 2 (2 on one NUMA node)" in out


def test_keep_holds_what_can_stay(run):
    _code, out, err = run("lost.json", "--tp", "2", "--replicas", "2", "--keep", "plan.json")
    assert "PLACE-MOVED" in err
    _code, out, err = run("host.json", "--tp", "4", "--replicas", "2", "--keep", "plan.json")
    assert err == ""
    assert gpus(0)[0] in out


def test_a_fleet_is_a_line_a_host(run):
    interleaved = to_document(interleaved_hives())
    code, out, err = run(
        "--jsonl",
        stdin=lines(
            {"topology": topology(), "sizes": [4, 2]},
            {"topology": interleaved, "sizes": [4, 4]},
            {"topology": topology(), "sizes": [1, 4], "exclude": gpus(5, 6, 7)},
            {"topology": topology(), "sizes": [2], "require": [gpus(6)]},
        ),
    )
    answers = [json.loads(line) for line in out.splitlines()]
    assert (code, err) == (0, "")
    assert [[share["gpus"] for share in answer["replicas"]] for answer in answers] == [
        [gpus(0, 1, 2, 3), gpus(4, 5)],
        [gpus(0, 2, 3, 7), gpus(1, 4, 5, 6)],
        [gpus(4), gpus(0, 1, 2, 3)],
        [gpus(4, 6)],
    ]
    for answer in answers:
        costs = [share["cost"] for share in answer["replicas"]]
        assert answer["cost"] == [sum(column) for column in zip(*costs, strict=True)]
        assert answer["findings"] == []


def test_the_device_plugins_cost_is_one_number(run):
    _code, out, _err = run(
        "--jsonl", "--cost", "device-plugin", stdin=lines({"topology": topology(), "sizes": [4, 2]})
    )
    answer = json.loads(out)
    assert [share["cost"] for share in answer["replicas"]] == [240, 40]
    assert answer["cost"] == 280


def test_a_bad_line_does_not_hold_up_the_others(run):
    code, out, _err = run(
        "--jsonl",
        stdin="{not json\n"
        + lines(
            {"topology": topology(), "sizes": [8, 8]},
            {"topology": topology(), "sizes": "four"},
            {"topology": {"gpus": 3}, "sizes": [1]},
            {"sizes": [1]},
            {"topology": topology(), "sizes": [8]},
        ),
    )
    answers = [json.loads(line) for line in out.splitlines()]
    assert code == 1
    codes = [[finding["code"] for finding in answer["findings"]] for answer in answers]
    assert codes == [
        ["FILE-SYNTAX"],
        ["PLACE-TOO-FEW-GPUS"],
        ["DOC-TYPE"],
        ["DOC-TYPE"],
        ["DOC-MISSING"],
        [],
    ]
    assert [answer["cost"] is None for answer in answers] == [True] * 5 + [False]
    assert "line 3" in answers[2]["findings"][0]["subject"]


def test_impossible_says_what_is_possible(run):
    code, out, _err = run(
        "--jsonl", stdin=lines({"topology": topology(missing=[3]), "sizes": [4, 4]})
    )
    (finding,) = json.loads(out)["findings"]
    assert code == 1
    assert finding["message"] == "TP4 × 2 impossible: it needs 8, 7 GPUs healthy"
    assert finding["remedy"].startswith(
        "Possible here: TP4 × 1 leaves 3 free; TP2 × 3 leaves 1 free"
    )


@pytest.mark.parametrize(
    "arguments",
    [
        ["host.json"],
        ["host.json", "--tp", "4", "--sizes", "4"],
        ["host.json", "--sizes", "4,x"],
        ["host.json", "--tp", "4", "--require", "x"],
        ["--jsonl", "host.json"],
        [],
    ],
)
def test_wrong_usage(run, arguments):

    with pytest.raises(UsageError):
        run(*arguments)


def test_more_topologies_than_one_kind(run):
    """A topology without a host's name is called by its line."""
    bare = {key: value for key, value in topology().items() if key not in ("host", "schema")}
    _code, out, _err = run("--jsonl", stdin=lines({"topology": bare, "sizes": [8]}))
    assert json.loads(out)["host"] == "line 1"


def test_the_findings_of_the_host_are_told_too(run, tmp_path):
    """A cut on part of a host is not a good one, however exact."""
    damaged = topology() | {
        "findings": [
            {
                "code": "TOPO-TRUNCATED",
                "severity": "error",
                "subject": "gpu-001",
                "message": "part of it is missing",
                "remedy": "capture it whole",
                "source": None,
            }
        ]
    }
    (tmp_path / "cut.json").write_text(json.dumps(damaged))
    code, _out, err = run("cut.json", "--tp", "4")
    assert code == 1
    assert "TOPO-TRUNCATED" in err


def test_a_number_of_5000_digits_does_not_stop_the_fleet(run):
    endless = '{"topology": {}, "sizes": [' + "9" * 5000 + "]}\n"
    code, out, _err = run("--jsonl", stdin=endless + lines({"topology": topology(), "sizes": [8]}))
    answers = [json.loads(line) for line in out.splitlines()]
    assert (code, len(answers)) == (1, 2)
    assert answers[0]["findings"][0]["code"] == "FILE-SYNTAX"


def doubled(document, part):
    return document | {part: [*document[part], document[part][0]]}


def with_link(**changes):
    document = topology()
    return document | {"links": [document["links"][0] | changes, *document["links"][1:]]}


@pytest.mark.parametrize(
    ("document", "says"),
    [
        (doubled(topology(), "gpus"), "is there 2 times"),
        (doubled(topology(), "links"), "is there twice"),
        (with_link(a="0000:ff:00.0"), "ends at no GPU"),
        (with_link(a=gpus(1)[0], b=gpus(1)[0]), "leads back"),
        (with_link(weight=-15), "negative"),
    ],
)
def test_a_topology_that_cannot_be_is_refused(run, tmp_path, document, says):
    _code, out, _err = run("--jsonl", stdin=lines({"topology": document, "sizes": [2]}))
    (finding,) = json.loads(out)["findings"]
    assert finding["code"] == "TOPO-INVALID"
    assert says in finding["message"]
    (tmp_path / "bad.json").write_text(json.dumps(document))
    with pytest.raises(ApiaryError, match="TOPO-INVALID"):
        run("bad.json", "--tp", "2")
