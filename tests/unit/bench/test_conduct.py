# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A whole benchmark in its directory: of what it is, by which rules, and whether it answers."""

import json
from dataclasses import replace

import pytest
from ansible_collections.apiary.instinct.plugins.plugin_utils.bench.run import conduct
from ansible_collections.apiary.instinct.plugins.plugin_utils.bench.run.level import Client
from ansible_collections.apiary.instinct.plugins.plugin_utils.bench.run.session import Session
from ansible_collections.apiary.instinct.plugins.plugin_utils.bench.types import (
    Bench,
    Load,
    Requested,
    Target,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.documents import (
    from_document,
    to_document,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.findings import ApiaryError, error
from ansible_collections.apiary.instinct.plugins.plugin_utils.slo import Limit

from support.bench.raw import WORKLOAD, raw, scrape, self_test, shard

URL = "http://127.0.0.1:8000"
HOST = {"name": "load-1", "kernel": "6.8", "cores": 8, "load": [0, 0, 0], "numa_balancing": "0",
        "numa_cpus": {"0": "0-7"}}  # fmt: skip
ASKED = Requested(WORKLOAD, phases=("scaling",), concurrency=(8,))
PLANNED = {"plan_hash": "a", "engine": {"name": "vllm", "version": "0.32.0", "image": "x@1"}}
TARGET = Target((URL,), "tiny", (f"{URL}/metrics",), gpus=8, hosts=1)


class Host:
    """A load host before one engine; ``change`` gets each level's load and raw result."""

    def __init__(self, version="0.32.0", change=None):
        self.version, self.change, self.requested = version, change, []

    def __call__(self, request):
        self.requested.append(request["do"])
        if request["do"] == "inspect":
            served = json.dumps({"data": [{"id": "tiny"}]})
            answer = json.dumps({"usage": {"prompt_tokens": 3}})
            server = {
                "url": URL,
                "models": [200, served],
                "completion": [200, answer],
                "version": [200, json.dumps({"version": self.version})],
            }
            return {"servers": [server], "metrics": {}, "client": None, "host": HOST}
        load = from_document(Load, request["load"], "load")
        made = raw(
            load,
            (shard(load.requests, load.concurrency, workload=load.workload),),
            backend="builtin",
            metrics=(scrape(load.requests),) if request["metrics"] else (),
            self_test=self_test() if request["self_test"] else None,
        )
        return to_document(self.change(load, made) if self.change else made)


def measured(place, host=None, requested=ASKED, target=TARGET, environment=PLANNED, **more):
    rules, own = more.pop("rules", {}), more.pop("own_seed", False)
    restart = {name: more.pop(name) for name in ("restart",) if name in more}
    client = Client("builtin", **({"version": None, "command": ()} | more))
    session = Session(target, client, host or Host(), **restart)
    order = conduct.Order("small", requested, place / "out", environment, rules, own_seed=own)
    return conduct.conduct(order, session)


def codes(bench):
    return [finding.code for finding in bench.findings]


def kept(place):
    return from_document(Bench, json.loads((place / "out/bench.json").read_text()), "bench.json")


def test_a_sound_benchmark_has_nothing_said_against_it(tmp_path):
    bench = measured(tmp_path)
    assert codes(bench) == []
    assert {level.status for level in bench.levels} == {"OK"}
    assert kept(tmp_path) == bench


def test_the_version_that_serves_is_published_whatever_the_plan_says(tmp_path):
    bench = measured(tmp_path, Host("0.31.0"))
    assert bench.environment["engine"] == {
        "name": "vllm", "version": "0.31.0", "image": "x@1", "planned_version": "0.32.0",
    }  # fmt: skip
    assert codes(bench) == ["BENCH-PLAN-VERSION"]


def test_a_build_s_own_suffix_is_no_other_version(tmp_path):
    bench = measured(tmp_path, Host("0.32.0+rocm700"))
    assert codes(bench) == []
    assert bench.environment["engine"]["version"] == "0.32.0+rocm700"


def test_replaced_rules_are_in_the_result_and_told(tmp_path):
    bench = measured(tmp_path, rules={"requests_least": 120})
    assert bench.environment["rules"] == {"requests_least": 120}
    assert codes(bench) == ["BENCH-THRESHOLD", "BENCH-UNPROVEN"]
    assert "requests_least=120" in bench.findings[0].message


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"target": replace(TARGET, metrics=())}, "BENCH-UNCHECKED"),
        ({"self_test": False}, "BENCH-UNTESTED"),
    ],
)
def test_what_could_not_be_checked_is_not_to_be_published(tmp_path, changes, message):
    bench = measured(tmp_path, **changes)
    (finding,) = bench.findings
    assert finding.code == "BENCH-UNPROVEN"
    assert message in finding.message
    assert {level.status for level in bench.levels} == {"OK"}


@pytest.mark.parametrize(
    ("what", "changes"),
    [
        ("gpus", {"target": replace(TARGET, gpus=4)}),
        ("hosts", {"target": replace(TARGET, hosts=2)}),
        ("plan_hash", {"environment": PLANNED | {"plan_hash": "b"}}),
        ("engine_version", {"host": Host("0.33.0")}),
        ("image", {"environment": PLANNED | {"engine": {"version": "0.32.0", "image": "x@2"}}}),
    ],
)
def test_a_directory_s_results_are_not_relabelled(tmp_path, what, changes):
    measured(tmp_path)
    with pytest.raises(ApiaryError, match=f"BENCH-OTHER.*its {what}(, version)? is another"):
        measured(tmp_path, **changes)
    assert kept(tmp_path).target.gpus == 8


@pytest.mark.parametrize(
    ("url", "reported"),
    [
        ("http://user:planted@engine:8000", "engine"),
        ("http://planted@engine:8000", "engine"),
        ("ftp://engine", "ftp://engine"),
        ("engine:8000", "engine:8000"),
    ],
)
@pytest.mark.parametrize("field", ["urls", "metrics"])
def test_an_address_with_a_secret_is_refused_before_anything_is_written(
    tmp_path, field, url, reported
):
    host = Host()
    with pytest.raises(ApiaryError, match="BENCH-URL") as refusal:
        measured(tmp_path, host, target=replace(TARGET, **{field: (url,)}))
    assert "planted" not in str(refusal.value)
    assert refusal.value.findings[0].subject == reported
    assert host.requested == []
    assert not (tmp_path / "out").exists()


def test_each_new_directory_has_a_seed_of_its_own_and_keeps_it(tmp_path):
    seeds = []
    for name in ("a", "b", "a"):
        (tmp_path / name).mkdir(exist_ok=True)
        seeds.append(measured(tmp_path / name, own_seed=True).requested.seed)
    assert seeds[0] == seeds[2] != seeds[1]
    assert measured(tmp_path, requested=replace(ASKED, seed=7)).requested.seed == 7


def bad(load, made):
    return made if load.phase == "warmup" else replace(made, exit_codes=(1,))


def test_a_benchmark_of_which_only_the_warm_up_counts_is_an_error(tmp_path):
    bench = measured(tmp_path, Host(change=bad))
    statuses = {(level.load.phase == "warmup", level.status) for level in bench.levels}
    assert statuses == {(True, "OK"), (False, "INVALID")}
    assert "BENCH-NO-ANSWER" in codes(bench)
    assert kept(tmp_path).findings[0].severity == "error"


def test_a_search_that_did_not_end_is_an_error(tmp_path):
    def upper(load, made):
        return replace(made, exit_codes=(1,)) if load.phase == "slo" else made

    requested = replace(ASKED, slo=(Limit("ttft", "p90", 2.0),), phases=("scaling", "slo"), most=16)
    requested = replace(requested, search_by="concurrency")
    bench = measured(tmp_path, Host(change=upper), requested)
    assert not bench.searches
    assert "BENCH-NO-ANSWER" in codes(bench)


def test_what_was_measured_is_kept_where_the_engines_do_not_come_back(tmp_path):
    def refuse(_engine_run):
        raise error("BENCH-RESTART", "restart", "ended with 1")

    with pytest.raises(ApiaryError, match="BENCH-RESTART"):
        measured(tmp_path, requested=replace(ASKED, engine_runs=2), restart=refuse)
    bench = kept(tmp_path)
    assert {level.load.engine_run for level in bench.levels} == {0}
    assert codes(bench) == ["BENCH-RESTART"]


@pytest.mark.parametrize(
    "given",
    [
        {"request_rate": [float("inf")]},
        {"request_rate": [float("nan")]},
        {"request_rate": [0.0]},
        {"concurrency": [0]},
    ],
)
def test_loads_that_cannot_be_sent_are_refused(given):
    with pytest.raises(ApiaryError, match="BENCH-ASKED"):
        conduct.requested_of(given, "500/100", "", "requested")
