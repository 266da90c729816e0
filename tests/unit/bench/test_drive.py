# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The loop: every raw result is kept before it is evaluated, and an interrupted run goes on."""

import json
from collections import Counter
from dataclasses import replace

import pytest
from ansible_collections.apiary.instinct.plugins.plugin_utils.bench.command import seed_of
from ansible_collections.apiary.instinct.plugins.plugin_utils.bench.run import drive as drives
from ansible_collections.apiary.instinct.plugins.plugin_utils.bench.types import (
    Bench,
    Load,
    Raw,
    Requested,
    Target,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.documents import (
    dumps,
    from_document,
    to_document,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.findings import ApiaryError, error

from support.bench.analytic_engine import SLO, WORKLOAD, Analytic
from support.bench.raw import scrape, shard

ASKED = Requested(
    WORKLOAD, slo=SLO, phases=("baseline", "scaling", "slo"), most=64, search_by="concurrency"
)
TARGET = Target(("http://127.0.0.1:8000",), "tiny")


class Kept(dict):
    """A store that keeps JSON texts, as files would be."""

    again = False

    def __init__(self):
        super().__init__()
        self.begun = Counter()

    def begin(self, key):
        self.begun[key] += 1
        return self.begun[key] - 1

    def get(self, key):
        return from_document(Raw, json.loads(self[key]), key) if key in self else None

    def put(self, key, raw):
        assert self.again or key not in self, "measured twice"
        self[key] = dumps(raw)
        return self.name(key)

    def name(self, key):
        return f"raw/{key}.json"


class Host:
    """A load host: it counts what it runs, and fails or is interrupted where it is told to."""

    def __init__(self, fails=(), interrupt_at=None):
        self.ran, self.fails, self.interrupt_at = [], fails, interrupt_at

    def __call__(self, load):
        if self.interrupt_at is not None and len(self.ran) == self.interrupt_at:
            raise KeyboardInterrupt
        self.ran.append(load)
        if load.concurrency in self.fails:
            raise error("BENCH-HOST", load.key, "the connection was refused")
        return Raw(to_document(load), "fake", "1", (), (), "2026-11-22T05:00:00Z", 1.0)


def evaluate(raw, slo, name=None):
    """Evaluate a raw result by the analytic engine."""
    assert slo == SLO
    return Analytic().level(from_document(Load, raw.load, name))


def drive(host, store, requested=ASKED, **more):
    environment = more.pop("environment", {})
    settings = {name: value for name, value in ({"evaluate": evaluate} | more).items() if value}
    driver = drives.Drive(requested, host, store, **settings)
    bench = driver.bench("x", "2026", TARGET, environment)
    assert driver.stopped is None
    return bench


def test_a_benchmark_has_everything_and_names_its_files():
    host, store = Host(), Kept()
    bench = drive(host, store, environment={"layout": "TP8"})

    assert bench.environment == {"layout": "TP8"}
    assert bench.searches[0].best == 64
    assert [level.load for level in bench.levels] == host.ran
    assert [level.raw for level in bench.levels] == [store.name(load.key) for load in host.ran]
    assert from_document(Bench, json.loads(dumps(bench)), "x") == bench


@pytest.mark.parametrize("at", [0, 1, 5, 9])
def test_an_interrupted_run_goes_on_where_it_ended(at):
    whole = drive(Host(), Kept())
    first, second, store = Host(interrupt_at=at), Host(), Kept()
    with pytest.raises(KeyboardInterrupt):
        drive(first, store)
    bench = drive(second, store)

    assert bench == whole
    assert [load.key for load in (*first.ran, *second.ran)] == [
        level.load.key for level in whole.levels
    ]


def test_a_finished_run_is_only_judged_again():
    store = Kept()
    whole = drive(Host(), store)
    again = Host(interrupt_at=0)

    assert drive(again, store) == whole


class Cached(Host):
    """A load host before one run of an engine, which knows every prompt that it was ever sent."""

    def __init__(self, known, **more):
        super().__init__(**more)
        self.known = known

    def __call__(self, load):
        prompts = seed_of(load, 0)
        hit = prompts in self.known
        self.known.add(prompts)  # also those of a level that is then interrupted
        raw = super().__call__(load)
        requests = load.requests
        slots = min(load.concurrency, requests)
        return replace(
            raw,
            backend="builtin",
            shards=(shard(requests, slots, workload=WORKLOAD, itl=0.02 + 0.0003 * slots),),
            metrics=(scrape(requests, cached=WORKLOAD.input_tokens * requests * hit),),
        )


@pytest.mark.parametrize("at", [0, 1, 3])
def test_what_an_interrupted_level_sent_is_not_sent_again(at):
    known, store = set(), Kept()
    requested = replace(ASKED, phases=("scaling",), most=4)
    whole = drive(Cached(set()), Kept(), requested, evaluate=None)
    with pytest.raises(KeyboardInterrupt):
        drive(Cached(known, interrupt_at=at), store, requested, evaluate=None)
    bench = drive(Cached(known), store, requested, evaluate=None)

    assert {level.status for level in bench.levels} == {"OK"}
    attempts = [store.get(level.load.key).load["attempt"] for level in bench.levels]
    assert attempts == [int(place == at) for place in range(len(attempts))]
    assert bench == whole


def dying(raw):
    """The raw result of a level in whose middle the engine was killed."""
    (one,) = raw.shards
    errors = ["" if place < 20 else "Connection refused" for place in range(len(one["errors"]))]
    one = {**one, "errors": errors, "completed": 20, "failed": len(errors) - 20}
    return replace(raw, shards=(one,), metrics=())


class Killed(Cached):
    """Its engine is killed in the middle of the first level of 4, or of each where ``always``."""

    def __init__(self, always=False):
        super().__init__(set())
        self.always, self.dead = always, False

    def __call__(self, load):
        if self.dead:
            raise error("BENCH-UNREACHABLE", load.key, "does not answer")
        raw = super().__call__(load)
        if load.concurrency != 4 or load.phase == "warmup":
            return raw
        self.dead = True
        return dying(raw)


SCALED = replace(ASKED, phases=("scaling",), most=8)


def test_a_level_in_which_the_engine_died_is_measured_again():
    store = Kept()
    store.again = True
    ended = drive(Killed(), store, SCALED, evaluate=None)
    assert ended.levels[-2].status == "FAILED"
    assert [finding.code for finding in ended.findings] == ["BENCH-ENGINE-GONE"]
    bench = drive(Cached(set()), store, SCALED, evaluate=None)

    assert [level.load.concurrency for level in bench.levels if level.load.phase == "scaling"] == [
        1, 2, 4, 8,
    ]  # fmt: skip
    assert {level.status for level in bench.levels} == {"OK"}
    assert bench == drive(Cached(set()), Kept(), SCALED, evaluate=None)


def test_a_load_that_kills_the_engine_every_time_is_known_to_do_so():
    store = Kept()
    store.again = True
    for _start in range(3):
        drive(Killed(), store, SCALED, evaluate=None)
    host = Killed()
    bench = drive(host, store, SCALED, evaluate=None)

    assert [load.concurrency for load in host.ran if load.phase != "warmup"] == []
    assert bench.levels[-2].status == "FAILED"
    assert "BENCH-ENGINE-GONE" not in [finding.code for finding in bench.findings]


def test_requests_that_fail_under_a_living_engine_are_a_result():
    def refusing(load):
        raw = Cached(set())(load)
        if load.concurrency != 4 or load.phase == "warmup":
            return raw
        (one,) = raw.shards
        count = len(one["errors"])
        errors = ["" if place % 3 else "503" for place in range(count)]
        answered = errors.count("")
        one = {**one, "errors": errors, "completed": answered, "failed": count - answered}
        return replace(raw, shards=(one,), metrics=())

    store = Kept()
    first = drive(refusing, store, SCALED, evaluate=None)
    assert "FAILED" in [level.status for level in first.levels]
    assert drive(Cached(set(), interrupt_at=0), store, SCALED, evaluate=None) == first


@pytest.mark.parametrize(
    ("changes", "again"),
    [
        ({"exit_codes": (1,)}, True),
        ({"cpu_seconds": 1e6}, True),
        ({"slots": 1}, False),  # BENCH-CONCURRENCY: it is the level's own, and was lengthened
    ],
)
def test_what_is_invalid_by_circumstances_is_measured_again(changes, again):
    def spoiled(load):
        raw = Cached(set())(load)
        if load.concurrency != 2 or load.phase == "warmup":
            return raw
        if "slots" in changes:
            return replace(raw, shards=(shard(load.requests, 1, workload=WORKLOAD),))
        return replace(raw, **changes)

    store = Kept()
    store.again = True
    drive(spoiled, store, SCALED, evaluate=None)
    host = Cached(set())
    bench = drive(host, store, SCALED, evaluate=None)
    assert (2 in [load.concurrency for load in host.ran]) is again
    assert ({level.status for level in bench.levels} == {"OK"}) is again


def test_an_earlier_engine_run_is_not_measured_in_a_later_one():
    def spoiled(load):
        raw = Cached(set())(load)
        return replace(raw, exit_codes=(1,)) if load.concurrency == 2 else raw

    store = Kept()
    first = drive(spoiled, store, SCALED, evaluate=None)
    assert drive(Cached(set(), interrupt_at=0), store, SCALED, evaluate=None, engine_run=1) == first


def test_what_restarts_engines_is_requested_before_a_load_is_begun():
    class NextLifeError(Exception):
        pass

    def ready(load):
        raise NextLifeError

    store = Kept()
    with pytest.raises(NextLifeError):
        drive(Host(), store, ready=ready)
    assert store.begun == {}


def test_a_host_that_fails_leaves_what_was_measured():
    """The protocol is cut, and its levels say what they can."""

    def host(load):
        if load.concurrency == 4 and load.phase == "scaling":
            gone(load)
        return Cached(set())(load)

    def gone(load):
        raise drives.Unable(error("BENCH-HOST", "load-1", "is gone"))

    driver = drives.Drive(SCALED, host, Kept())
    bench = driver.bench("x", "2026", TARGET, {})
    assert driver.stopped.findings[0].code == "BENCH-HOST"
    assert [level.load.concurrency for level in bench.levels][-2:] == [1, 2]
    assert [finding.code for finding in bench.findings] == ["BENCH-HOST"]


def test_a_raw_result_is_kept_before_it_is_judged():
    store = Kept()

    def broken(raw, slo, name=None):
        assert name in store
        raise error("BENCH-RESULT", name, "keys are missing")

    bench = drive(Host(), store, evaluate=broken)

    assert [level.status for level in bench.levels] == ["FAILED"]
    assert bench.levels[0].findings[0].code == "BENCH-RESULT"
    assert bench.levels[0].raw == store.name(bench.levels[0].load.key)


def test_a_level_that_cannot_be_run_fails_and_the_protocol_goes_on():
    host = Host(fails=(32,))
    bench = drive(host, Kept())

    failed = [level for level in bench.levels if level.status == "FAILED"]
    assert {level.load.concurrency for level in failed} == {32}
    assert failed[0].findings[0].message == "the connection was refused"
    assert failed[0].raw is None
    assert (bench.searches[0].best, bench.searches[0].fails) == (31, 32)


def test_a_failed_level_is_run_again_by_the_next_run():
    store = Kept()
    drive(Host(fails=(32,)), store)
    host = Host()
    bench = drive(host, store)

    assert 32 in [load.concurrency for load in host.ran]
    assert bench.searches[0].best == 64


def test_a_level_that_nothing_answered_is_measured_again_by_the_next_run():
    dead = [True]

    def by_engine(raw, slo, name=None):
        engine = Analytic(dead=bool(raw.log))
        return engine.level(from_document(Load, raw.load, name))

    def host(load):
        raw = Host()(load)
        return replace(raw, log="refused") if dead[0] and load.phase != "warmup" else raw

    store = Kept()
    store.again = True
    first = drive(host, store, evaluate=by_engine)
    assert [level.load.concurrency for level in first.levels if level.status == "FAILED"]
    dead[0] = False
    assert drive(host, store, evaluate=by_engine) == drive(Host(), Kept())


def test_a_host_that_is_gone_is_one_finding():
    bench = drive(Host(fails=(8,)), Kept())

    assert [finding.code for finding in bench.findings] == ["BENCH-ENGINE-GONE"]
    assert bench.searches == ()


def test_results_of_another_load_with_that_name_are_refused():
    store = Kept()
    drive(Host(), store)
    key = next(iter(store))
    data = json.loads(store[key])
    data["load"]["workload"]["input_tokens"] = 101
    store[key] = json.dumps(data)

    with pytest.raises(ApiaryError, match="BENCH-RESUME"):
        drive(Host(), store)


def test_what_is_no_refusal_passes_untouched():
    class NextLifeError(Exception):
        pass

    def host(load):
        raise NextLifeError

    with pytest.raises(NextLifeError):
        drive(host, Kept())


def test_a_store_that_cannot_keep_ends_the_run():
    class Full(Kept):
        def put(self, key, raw):
            raise error("FILE-UNWRITABLE", key, "no space left")

    with pytest.raises(ApiaryError, match="FILE-UNWRITABLE"):
        drive(Host(), Full())


def test_progress_is_told_before_and_after_each_level():
    reported, store = [], Kept()
    drive(Host(), store, progress=reported.append)

    assert [step.level is None for step in reported[:4]] == [True, False, True, False]
    assert [step.done for step in reported[:4]] == [0, 0, 1, 1]
    assert not any(step.replayed for step in reported)
    reported.clear()
    drive(Host(), store, progress=reported.append)
    assert all(step.replayed for step in reported)
