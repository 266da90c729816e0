# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whether a host may be tuned on, and why an engine failed."""

from pathlib import Path

import pytest
import yaml
from ansible_collections.apiary.instinct.plugins.plugin_utils.bench.types import (
    Bench,
    Level,
    Load,
    Requested,
    Target,
    Workload,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.documents import to_document
from ansible_collections.apiary.instinct.plugins.plugin_utils.findings import (
    ApiaryError,
    Finding,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.tune.host import TUNING, prepare
from ansible_collections.apiary.instinct.plugins.plugin_utils.tune.trial import (
    Progress,
    cause,
    outcome_of,
)

UNITS = ("apiary-x-0.service", "apiary-x-1.service")
# What rollout_info returns of a host.
BARE = {"serving": [], "stopped": [], "plan": None, "current": None, "lock": None}
SERVES = BARE | {"serving": UNITS, "plan": {"deployment": {}}, "current": "r1"}
READY, DRAINED = {"state": "ready"}, {"state": "drain"}


def prepared(info, *routers, dead=False, **options):
    """What is to be done, routers having these servers each."""
    answers = [{f"x/{name}": server for name, server in each.items()} for each in routers]
    return prepare("a", "x", info, answers, dead=dead, **options)


def locked(info, owner, **more):
    return info | {"lock": {"owner": owner, **more}}


def refused(*seen, **options):
    with pytest.raises(ApiaryError) as refusal:
        prepared(*seen, **options)
    (finding,) = refusal.value.findings
    return finding.code


def test_a_host_that_serves_nothing_is_taken_and_left_with_nothing():
    ready = prepared(BARE)
    assert (ready.drain, ready.out, ready.restore, ready.resumed) == ((), (), "nothing", False)


def test_a_host_that_serves_is_refused_unless_that_is_wanted():
    assert refused(SERVES) == "TRIAL-SERVES"
    taken = prepared(SERVES, serving=True)
    assert taken.restore == "release"
    assert [(one.code, one.severity) for one in taken.findings] == [("TRIAL-SERVES", "warning")]


def test_behind_routers_what_counts_is_whether_they_send_requests():
    routed = {"a-0": DRAINED, "a-1": READY, "b-0": READY}
    assert refused(SERVES, routed) == "TRIAL-SERVES"
    taken = prepared(SERVES, routed, serving=True)
    assert taken.drain == taken.out == (UNITS[1],)
    drained = {"a-0": DRAINED, "a-1": DRAINED}
    # A server that any router has ready is ready.
    assert prepared(SERVES, drained, routed, drained, serving=True).drain == (UNITS[1],)
    # A trial would bring up what is down, and what no plan has.
    assert refused(SERVES | {"serving": UNITS[:1]}, routed) == "TRIAL-SERVES"
    assert prepared(SERVES | {"serving": ()}, routed, serving=True).drain == (UNITS[1],)
    # Who drained it brings it back, not we.
    assert prepared(SERVES, drained).out == ()


def test_what_somebody_stopped_is_left_stopped():
    assert prepared(SERVES | {"serving": (), "stopped": UNITS}).stopped
    # A replica that failed, or still starts, is to serve; so is one whose neighbour serves.
    assert not prepared(SERVES | {"serving": ()}).stopped
    half = SERVES | {"serving": UNITS[:1], "stopped": UNITS[1:]}
    assert not prepared(half, serving=True).stopped
    assert not prepared(BARE).stopped


OURS = f"{TUNING}ann@here, process 1"


def test_an_interrupted_run_leaves_what_it_found_to_the_next():
    """What is up by then is a trial's, and what is down may be a trial's end."""
    assert prepared(locked(SERVES, OURS, stopped=True), dead=True).stopped
    between = locked(SERVES | {"serving": (), "stopped": UNITS}, OURS)
    assert not prepared(between, dead=True).stopped


def test_a_host_without_a_release_could_not_be_brought_back():
    bare = SERVES | {"current": None}
    assert refused(bare) == "TRIAL-NO-RELEASE"
    # Also where its first rollout died: what it left serves.
    died = locked(bare, "ann@here, process 1")
    assert refused(died, dead=True, take_over=True) == "TRIAL-NO-RELEASE"


@pytest.mark.parametrize(
    ("owner", "dead"),
    [
        ("ann@here, process 1", False),
        ("ann@here, process 1", True),  # a rollout left it half done
        (OURS, False),
    ],
)
def test_the_lock_of_another_run_is_respected(owner, dead):
    assert refused(locked(BARE, owner), dead=dead) == "TRIAL-LOCKED"
    assert prepared(locked(BARE, owner), dead=dead, take_over=True).resumed


def test_what_an_interrupted_tuning_drained_comes_back():
    left = locked(SERVES, OURS, out=UNITS)
    ready = prepared(left, {"a-0": DRAINED, "a-1": DRAINED}, dead=True)
    assert (ready.resumed, ready.out, ready.drain) == (True, UNITS, ())
    # Without routers, too: what serves is what that run was measuring.
    assert prepared(left | {"current": None}, dead=True).restore == "nothing"


STARTED = """\
(EngineCore pid=12) INFO 11-22 05:00:00 [core.py:1] Initializing a V1 LLM engine
(EngineCore pid=12) ERROR 11-22 05:00:01 [core.py:9] EngineCore failed to start.
(EngineCore pid=12) ERROR 11-22 05:00:01 [core.py:9] Traceback (most recent call last):
(EngineCore pid=12) ERROR 11-22 05:00:01 [core.py:9]   File "core.py", line 1, in run
(EngineCore pid=12) ERROR 11-22 05:00:01 [core.py:9] ValueError: Free memory on device cuda:0 \
(1.0/256.0 GiB) on startup is less than desired GPU memory utilization (0.9, 230.4 GiB).
(APIServer pid=9) RuntimeError: Engine core initialization failed. See root cause above. Failed \
core proc(s): {'EngineCore': 1}
error: REPLICA-ENGINE-DIED: apiary-x-0: the engine exited with status 1 before it answered
  remedy: see the engine's lines above in this journal, and dmesg for its GPUs
"""


def test_the_cause_is_the_finding_and_the_root_of_it():
    told = cause(STARTED)
    assert told.startswith("REPLICA-ENGINE-DIED: apiary-x-0: the engine exited with status 1")
    assert "cause gpu_memory_taken: 1.0 of 256.0 GiB" in told
    assert "See root cause above" not in told


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (
            "torch.OutOfMemoryError: HIP out of memory.",
            "cause gpu_memory: out of GPU memory",
        ),
        (
            "ERROR 11-22 05:00:00 [x.py:1] Worker proc VllmWorker-1 died unexpectedly",
            "its first error: Worker proc VllmWorker-1 died unexpectedly",
        ),
        (
            "vllm serve: error: unrecognized arguments: --x",
            "cause arguments: the release does not know --x",
        ),
        (
            "<3>error: REPLICA-WEIGHTS: /srv: no config.json",
            "REPLICA-WEIGHTS: /srv: no config.json",
        ),
        ("INFO 11-22 05:00:00 [x.py:1] all is well", "the task said so"),
    ],
)
def test_what_counts_as_a_cause(line, said):
    assert cause(line, "the task said so") == (said or line)


def test_nothing_known_is_said_as_such():
    assert cause("") == "nothing in its journal says why"


SERVED = Progress("measure", "17", starts="a\nb")


def ended(progress=SERVED, measured=None, starts="a\nb", journal=""):
    return outcome_of(progress, measured or {}, starts, journal, "load-1", "short/bench.json")


def test_only_what_the_candidate_decides_is_held_against_it():
    start = Progress("start", "17", "REPLICA-START-FAILED", failed=True)
    crashed = ended(start, journal=STARTED)
    assert crashed.status == "failed"
    assert "gpu_memory_taken" in crashed.cause
    assert ended(measured={"failed": True, "msg": "BENCH-CLIENT: x"}).status == "invalid"
    # Also where its benchmark went through: the numbers are of two engine runs.
    assert ended(starts="a\nc", journal=STARTED).status == "failed"
    # Killed from outside: only systemd says something.
    killed = "a.service: Main process exited, code=killed, status=9/KILL"
    told = ended(starts="a\nc", journal=f"INFO x\n{killed}\nINFO y")
    assert (told.status, told.cause) == ("failed", killed)
    assert ended(starts="a\nc").cause == "an engine ended while it was measured"


def benched(status):
    """A benchmark of one level that ended so."""
    load = Load("fixed", Workload("32/4", 32, 4), 80, concurrency=8)
    told = Finding.from_fields(
        code="BENCH-ERRORS",
        severity="error",
        subject="fixed",
        message="3 of 80 requests failed",
        remedy="look",
        source=None,
    )
    target = Target(("http://a:1",), "m", hosts=1)
    level = Level(load, status, None, findings=(told,))
    return to_document(
        Bench(
            "x",
            "2026-11-22T06:00:00Z",
            target,
            Requested(load.workload, phases=("fixed",)),
            (level,),
        )
    )


def test_requests_that_fail_are_the_engines_fault_only_where_it_says_so():
    failed = {"bench": benched("FAILED")}
    assert ended(measured=failed).status == "invalid"
    told = ended(measured=failed, journal=STARTED)
    assert told.status == "failed"
    assert "gpu_memory_taken" in told.cause


def tasks(items):
    """Yield tasks, those of blocks as well."""
    for one in items:
        inner = [item for part in ("block", "rescue", "always") for item in one.get(part, ())]
        yield from tasks(inner) if inner else [one]


def test_no_other_host_makes_the_tuned_one_unreachable():
    """Ansible takes the tuned host for dead otherwise, and does not bring it back."""
    files = sorted((Path(__file__).parents[3] / "playbooks/tasks").glob("tune_*.yml"))
    read = [one for file in files for one in tasks(yaml.safe_load(file.read_text()))]
    elsewhere = [one for one in read if one.get("delegate_to", "localhost") != "localhost"]
    assert len(elsewhere) > 1
    assert [one["name"] for one in elsewhere if not one.get("ignore_unreachable")] == []
