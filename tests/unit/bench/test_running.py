# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a load host is asked to run, whether it can begin, and what plans say of what serves."""

import dataclasses
import hashlib
import json

import pytest
from ansible_collections.apiary.instinct.plugins.module_utils.load import prompts as bench_prompts
from ansible_collections.apiary.instinct.plugins.plugin_utils.bench import place
from ansible_collections.apiary.instinct.plugins.plugin_utils.bench.run import (
    drive,
    preflight,
    session,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.bench.run import level as running
from ansible_collections.apiary.instinct.plugins.plugin_utils.bench.types import (
    Load,
    Raw,
    Target,
    Workload,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.documents import (
    dumps,
    to_document,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.findings import ApiaryError
from hypothesis import given
from hypothesis import strategies as some

from support.bench.raw import self_test
from support.demo import demo_plan

WORKLOAD = Workload("500/100", 500, 100)
TARGET = Target(("http://a:8000", "http://b:8000"), "a/b", ("http://a:8000/metrics",), "/models/a")
HOST = {"name": "load-1", "kernel": "6.8", "cores": 8, "load": [0, 0, 0], "numa_balancing": "0",
        "numa_cpus": {"0": "0-3", "1": "4-7"}}  # fmt: skip


def load(concurrency=64, **changes):
    fields = {"phase": "scaling", "workload": WORKLOAD, "requests": 640, "concurrency": concurrency}
    return Load(**{**fields, **changes})


@pytest.mark.parametrize(
    ("concurrency", "urls", "cores", "shards"),
    [
        (1, 1, 64, 1),
        (200, 1, 64, 1),
        (201, 1, 64, 2),
        (1000, 1, 64, 5),
        (1000, 1, 2, 2),  # no more than cores
        (64, 2, 64, 2),  # every address is asked
        (500, 2, 64, 4),  # a multiple of them
        (1, 2, 64, 1),  # but no process without a stream
        (3, 8, 64, 3),
    ],
)
def test_a_load_is_cut_over_processes(concurrency, urls, cores, shards):
    assert running.shard_count(load(concurrency), urls, cores) == shards


def test_an_open_load_is_cut_by_its_tokens():
    open_load = load(None, request_rate=100.0, requests=6000)
    assert running.shard_count(open_load, 1, 64) == 3  # 10,000 tok/s
    assert running.shard_count(open_load, 2, 64) == 4
    few = load(None, request_rate=1000.0, requests=5)
    assert running.shard_count(few, 1, 64) == 5
    assert running.shard_count(few, 2, 64) == 4


@given(
    some.integers(1, 5000), some.integers(1, 70), some.integers(1, 256), some.sampled_from([1, 3])
)
def test_no_process_is_without_a_stream(concurrency, urls, cores, parts):
    shards = running.shard_count(load(concurrency, requests=50000), urls, cores, parts)
    assert 1 <= shards <= max(1, concurrency)
    if concurrency >= urls * parts:
        assert shards % (urls * parts) == 0
    assert shards <= max(urls * parts, cores + urls * parts)


def test_a_request_has_everything_but_secrets():
    client = running.Client("vllm", "0.32.0", ("/opt/vllm/bin/vllm",), cores=64)
    requested = running.request_of(load(), TARGET, client, None)
    assert len(requested["shards"]) == 2
    first, second = (one["argv"] for one in requested["shards"])
    assert first[:3] == ["/opt/vllm/bin/vllm", "bench", "serve"]
    assert first[first.index("--base-url") + 1] == "http://a:8000"
    assert second[second.index("--base-url") + 1] == "http://b:8000"
    assert first[first.index("--result-dir") + 1] == "@DIR@"
    assert requested["load"] == to_document(load())
    test = requested["self_test"]["shards"][0]["argv"]
    assert test[test.index("--base-url") + 1] == "@MOCK@"
    assert "secrets" not in requested
    json.dumps(requested)


def test_fewer_streams_than_addresses_ask_only_some():
    requested = running.request_of(
        load(1), TARGET, running.Client("vllm", "0.32.0", cores=64), None
    )
    assert len(requested["shards"]) == 1


def test_the_self_test_has_the_times_between_tokens_of_the_level_before():
    def times(*itls):
        shard = {"itls": [list(itls)]}
        return running.mock_times(Raw({}, "vllm", None, (), (shard,), "", 1.0))

    assert running.mock_times(None) == (0.1, 0.03)
    assert times(0.04, 0.05, 0.06) == (0.1, 0.05)
    assert times(3.0) == (0.1, 0.2)
    assert times() == (0.1, 0.03)


def test_the_self_test_is_short():
    short = running.mock_load(load(64, workload=Workload("x", 5600, 1000), warmups=64))
    assert (short.concurrency, short.requests, short.warmups) == (64, 256, 0)
    assert short.workload.output_tokens == 64
    assert running.mock_load(load(1, requests=20)).requests == 8


def test_a_container_gets_the_key_by_name_and_is_removed():
    client = running.Client("vllm", "0.32.0", image="vllm/vllm@sha256:1", engine="podman", cores=8)
    one, _two = running.request_of(load(), TARGET, client, None)["shards"]
    words = one["argv"]
    assert words[:3] == ["podman", "run", "--rm"]
    assert words[words.index("-e") + 1] == "OPENAI_API_KEY"
    assert "/models/a:/models/a:ro" in words
    assert words[words.index("--entrypoint") + 1 :][:4] == ["vllm", client.image, "bench", "serve"]
    assert one["after"] == ["podman", "rm", "-f", "@NAME@-0"]


def test_a_level_that_hangs_has_an_end():
    assert running.limit_seconds(load(64)) == 1200
    assert running.limit_seconds(load(64, requests=64)) == 900
    assert running.limit_seconds(load(None, request_rate=1.0, requests=600)) == 1200


def test_a_client_is_kept_to_nodes_without_replicas():
    assert running.free_cpus({"0": "0-3", "1": "4-7"}, busy=(2,)) == (4, 5, 6, 7)
    assert running.free_cpus({"0": "0-3"}, busy=(2,)) == ()


def inspected(**changes):
    server = {
        "url": "http://a:8000",
        "model": "a/b",
        "models": [200, json.dumps({"data": [{"id": "a/b"}, {"id": "adapter"}]})],
        "version": [200, json.dumps({"version": "0.32.0+rocm"})],
        "completion": [200, json.dumps({"usage": {"prompt_tokens": 4}})],
    }
    whole = {"metrics": {}, "client": {"exit": 0, "text": "INFO …\n0.32.0\n"}, "host": HOST}
    whole |= {name: changes.pop(name) for name in list(changes) if name in whole}
    return {**whole, "servers": [{**server, **changes}]}


def test_a_sound_server_is_taken_as_it_is():
    seen = preflight.evaluate_inspection(inspected(), "", "vllm")
    assert (seen.model, seen.version, seen.client_version) == ("a/b", "0.32.0+rocm", "0.32.0")
    assert seen.findings == ()


@pytest.mark.parametrize(
    ("code", "changes"),
    [
        ("BENCH-UNREACHABLE", {"models": [None, "ConnectionRefusedError: …"]}),
        ("BENCH-UNREACHABLE", {"models": [503, ""]}),
        ("BENCH-UNREACHABLE", {"completion": [500, "no"]}),
        ("BENCH-UNREACHABLE", {"completion": [None, "timed out"]}),
        ("BENCH-KEY", {"models": [401, ""]}),
        ("BENCH-MODEL", {"models": [200, '{"data": [{"id": "other"}]}']}),
        ("BENCH-MODEL", {"models": [200, "<html>"]}),
        ("BENCH-USAGE", {"completion": [200, '{"choices": []}']}),
        ("BENCH-METRICS", {"metrics": {"http://a:8000/metrics": False}}),
        ("BENCH-CLIENT", {"client": {"exit": None, "text": "vllm: not found"}}),
        ("BENCH-CLIENT", {"client": {"exit": 1, "text": "Traceback 1.2.3"}}),
        ("BENCH-CLIENT", {"client": {"exit": 0, "text": ""}}),
    ],
)
def test_what_keeps_a_benchmark_from_beginning_is_one_finding(code, changes):
    with pytest.raises(ApiaryError) as refusal:
        preflight.evaluate_inspection(inspected(**changes), "a/b", "vllm")
    assert [one.code for one in refusal.value.findings] == [code]
    assert refusal.value.findings[0].severity == "error"


def test_servers_of_different_models_are_no_target():
    inspection = inspected()
    other = {**inspection["servers"][0], "models": [200, '{"data": [{"id": "c/d"}]}']}
    with pytest.raises(ApiaryError, match="BENCH-MODEL: http://a:8000, http://a:8000"):
        preflight.evaluate_inspection(
            {**inspection, "servers": [*inspection["servers"], other]}, "", "builtin"
        )


def test_another_client_than_the_server_is_told():
    seen = preflight.evaluate_inspection(
        inspected(client={"exit": 0, "text": "0.31.0"}), "", "vllm"
    )
    assert [one.code for one in seen.findings] == ["BENCH-CLIENT-VERSION"]
    known = preflight.evaluate_inspection(inspected(client=None), "", "vllm", "0.31.0")
    assert known.findings == seen.findings
    assert (
        preflight.evaluate_inspection(inspected(client=None), "", "vllm", "0.32.0").findings == ()
    )
    silent = preflight.evaluate_inspection(inspected(version=[404, ""]), "", "vllm")
    assert [one.code for one in silent.findings] == ["BENCH-SERVER-VERSION"]


def raw_of(requested, **changes):
    fields = {
        "load": requested["load"],
        "backend": "vllm",
        "version": "0.32.0",
        "argv": [],
        "shards": [{"completed": 1, "itls": [[0.05]]}],
        "started": "2026-11-22T05:00:00Z",
        "seconds": 1.0,
        "exit_codes": [0],
    }
    return {**fields, **changes}


class LoadHost:
    """Hands back what bench_run would, and keeps what it was asked."""

    def __init__(self, **changes):
        self.server = {}
        self.requested, self.changes, self.late = [], changes, 0.001

    def __call__(self, request):
        self.requested.append(request)
        if request["do"] == "inspect":
            return inspected(**self.server)
        tested = None
        if request["self_test"]:
            tested = to_document(self_test(self.late))
        return raw_of(request, self_test=tested, **self.changes)


def session_of(where, **client):
    return session.Session(TARGET, running.Client("vllm", None, **client), where)


def test_a_session_takes_over_what_servers_and_client_say():
    one = session_of(LoadHost())
    one.begin()
    assert one.client.version == "0.32.0"
    assert one.client.cores == 8


def test_the_client_is_kept_from_the_replicas():
    one = session_of(LoadHost(), apart_from=(5,))
    one.begin()
    assert one.client.cpus == (0, 1, 2, 3)
    assert one.client.cores == 4
    crowded = session_of(LoadHost(), apart_from=(0, 5))
    crowded.begin()
    assert [finding.code for finding in crowded.findings] == ["BENCH-NUMA"]


def test_equal_levels_are_tested_once_and_carry_the_result():
    where = LoadHost()
    one = session_of(where, cores=64)
    one.begin()
    first = one.run(load(64))
    again = one.run(load(64, repeat=1))
    other = one.run(load(128))
    levels = [request["self_test"] for request in where.requested[1:]]
    assert [test is None for test in levels] == [False, True, False]
    assert first.self_test == again.self_test == other.self_test
    assert levels[2]["itl_seconds"] == 0.05  # of the level before


def test_a_self_test_that_failed_is_made_again():
    where = LoadHost()
    one = session_of(where, cores=64)
    one.begin()
    where.late = 0.05
    first = one.run(load(64))
    where.late = 0.001
    again = one.run(load(64, repeat=1))
    one.run(load(64, repeat=2))
    assert [request["self_test"] is None for request in where.requested[1:]] == [False, False, True]
    assert first.self_test != again.self_test


def test_an_engine_that_is_gone_is_no_fault_of_the_client():
    """Its client then measures nothing either: the level fails, and the protocol sees what is."""
    where = LoadHost(shards=[{}], exit_codes=[1], log="Connection refused")
    one = session_of(where)
    one.begin()
    where.server = {"models": [None, "ConnectionRefusedError"]}
    with pytest.raises(ApiaryError) as refusal:
        one.run(load())
    assert [finding.code for finding in refusal.value.findings] == ["BENCH-UNREACHABLE"]


def test_what_vllms_client_cannot_send_the_builtin_one_sends():
    where = LoadHost()
    one = session_of(where)
    one.begin()
    chat = Workload("chat", 500, 100, "sessions", 4, 200, turns=3)
    for repeat in (0, 1):
        one.run(load(8, workload=chat, repeat=repeat))
    assert [requested["backend"] for requested in where.requested[1:]] == ["builtin", "builtin"]
    assert "load.client" in str(where.requested[1]["shards"][0]["argv"])
    assert [finding.code for finding in one.findings] == ["BENCH-BUILTIN"]


def test_a_client_that_nobody_knows_is_refused_before_any_level():
    one = session.Session(TARGET, running.Client("vllm", "0.1.0"), LoadHost())
    with pytest.raises(ApiaryError, match="BENCH-VERSION"):
        one.begin()


def test_a_client_whose_version_is_given_is_not_requested_for_it():
    requested = running.inspection_of(TARGET, running.Client("vllm", None))["client"]
    assert requested == ["vllm", "--version"]
    assert running.inspection_of(TARGET, running.Client("vllm", "0.32.0"))["client"] == []


def test_another_engine_run_needs_a_restart():
    one = session_of(LoadHost())
    one.begin()
    one.run(load())
    with pytest.raises(session.NextEngineRun) as wanted:
        one.run(load(engine_run=1))
    assert wanted.value.engine_run == 1
    engine_runs = []
    one.restart = engine_runs.append
    one.run(load(engine_run=1))
    one.run(load(engine_run=1, repeat=1))
    assert engine_runs == [1]


def test_a_client_that_measures_nothing_ends_the_benchmark():
    log = "== shard-0 ==\nLoading\nOSError: no tokenizer at /x\n"
    one = session_of(LoadHost(shards=[{}], exit_codes=[1], log=log))
    one.begin()
    with pytest.raises(session.Unable) as stopped:
        one.run(load())
    (finding,) = stopped.value.refusal.findings
    assert finding.code == "BENCH-RUN"
    assert "no tokenizer at /x" in finding.message


def test_a_level_that_hangs_is_no_reason_to_end_it():
    one = session_of(LoadHost(shards=[{}], exit_codes=[124]))
    one.begin()
    with pytest.raises(ApiaryError, match="BENCH-TIMEOUT"):
        one.run(load())


def test_too_few_cores_are_told_once():
    one = session_of(LoadHost())
    one.begin()
    one.run(load(10000, requests=100000))
    one.run(load(20000, requests=200000))
    assert [finding.code for finding in one.findings] == ["BENCH-CORES"]


def test_raw_results_are_kept_by_key(tmp_path):
    kept = drive.RawStore(tmp_path / "raw")
    raw = Raw(to_document(load()), "vllm", None, (("vllm",),), ({"a": 1},), "now", 1.0)
    assert kept.get(load().key) is None
    name = kept.put(load().key, raw)
    assert kept.get(load().key) == raw
    assert (tmp_path / name).read_bytes()[:2] == b"\x1f\x8b"
    first = (tmp_path / name).read_bytes()
    kept.put(load().key, raw)
    assert (tmp_path / name).read_bytes() == first
    (tmp_path / name).write_bytes(first[:40])
    with pytest.raises(ApiaryError, match="BENCH-RAW"):
        kept.get(load().key)


def test_a_level_that_is_measured_again_keeps_what_it_was_before(tmp_path):
    kept = drive.RawStore(tmp_path / "raw")
    for log in ("one", "two", "three"):
        kept.put("a-1.5", Raw(to_document(load()), "vllm", None, (), (), "now", 1.0, log=log))
    assert kept.get("a-1.5").log == "three"
    assert [kept.get(f"a-1.5.attempt-{number}").log for number in (0, 1)] == ["one", "two"]


def test_what_was_begun_is_counted_on_disk(tmp_path):
    kept = drive.RawStore(tmp_path / "raw")
    assert [kept.begin("a"), kept.begin("a"), kept.begin("b")] == [0, 1, 0]
    assert drive.RawStore(tmp_path / "raw").begin("a") == 2
    assert not (tmp_path / "raw").exists()
    (tmp_path / drive.BEGUN).write_text("[]")
    with pytest.raises(ApiaryError, match="BENCH-RAW"):
        kept.begin("a")


def test_another_attempt_sends_other_prompts():
    """With every client: nothing of the first attempt may be in the engine's cache."""
    for backend, version in (("vllm", "0.32.0"), ("builtin", None)):
        client = running.Client(backend, version, cores=8)
        first, second = (
            running.request_of(load(attempt=attempt), TARGET, client, None) for attempt in (0, 1)
        )
        assert first["shards"] != second["shards"]
        assert second["load"]["attempt"] == 1
    assert load(attempt=1).key == load().key
    assert bench_prompts.seed_of(to_document(load())) != (
        bench_prompts.seed_of(to_document(load(attempt=1)))
    )


def test_a_raw_result_that_cannot_be_kept_is_one_finding(tmp_path):
    (tmp_path / "raw").write_text("")
    raw = Raw(to_document(load()), "vllm", None, (), (), "now", 1.0)
    with pytest.raises(ApiaryError, match="FILE-UNWRITABLE"):
        drive.RawStore(tmp_path / "raw").put("x", raw)


def test_a_plan_says_what_serves():
    plan = demo_plan()
    text = dumps(plan)
    served = place.served_by([(plan, text)])
    assert served.environment["plan_hash"] == hashlib.sha256(text.encode()).hexdigest()
    assert served.environment["layout"] == "DP2/TP4/EP4"
    assert served.gpus == sum(len(replica.gpus) for replica in plan.replicas)
    assert served.ports == tuple(replica.port for replica in plan.replicas)
    both = place.served_by([(plan, text), (dataclasses.replace(plan, host="z"), text)])
    assert both.hosts == 2
    assert both.environment["hosts"] == [plan.host, "z"]
    assert both.gpus == 2 * served.gpus
