# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A host's GPUs are loaded where it is new or came back from repair, and by AMD's thresholds."""

from dataclasses import replace
from pathlib import Path

import pytest
from ansible_collections.apiary.instinct.plugins.plugin_utils.acceptance.accept import (
    accept,
    burn_in,
    due,
    to_measure,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.acceptance.types import (
    TESTS,
    Acceptance,
    Measured,
    Ran,
    Settings,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.documents import knowledge
from ansible_collections.apiary.instinct.plugins.plugin_utils.findings import explanation
from ansible_collections.apiary.instinct.plugins.plugin_utils.host.types import Check

from support.topology.simulated import simulated_evidence

OUTPUTS = Path(__file__).with_name("outputs")
NEW = Settings(burn_in="new", tests=TESTS)
EARLIER, NOW = "2026-11-01T08:00:00Z", "2026-11-28T08:00:00Z"


@pytest.fixture(scope="module")
def idle():
    """The bundle of a host on which nothing serves."""
    bundle = simulated_evidence()
    bundle["commands"].pop("replicas", None)
    return bundle


@pytest.fixture(scope="module")
def gpus(idle):
    return accept(idle).gpus


def policy(name, served=False):
    return Settings(burn_in=name, served=served)


def failed(host, code, when):
    return Acceptance(host, when, False, (Check(code, host, "fail", "x", "y"),))


def test_a_host_without_any_record_is_new(idle):
    assert due(idle, policy("new"), None, None).startswith("neither a burn-in nor an acceptance")
    # One that was stopped for this, by maintain.yml, has served.
    assert due(idle, policy("new", served=True), None, None) == ""


def test_one_with_a_record_of_its_gpus_is_not(idle, gpus):
    good = Acceptance("vm", EARLIER, True, (), gpus=gpus)
    assert due(idle, policy("new"), good, None) == ""
    assert due(idle, policy("new"), None, good) == ""
    assert due(idle, policy("new"), good, replace(good, collected_at=NOW)) == ""


def test_the_policy_may_say_never_or_always(idle, gpus):
    good = Acceptance("vm", EARLIER, True, (), gpus=gpus)
    assert due(idle, policy("never"), None, None) == ""
    assert due(idle, policy("always"), good, None) == "acceptance_burn_in is always"


def test_a_failed_one_is_repeated(idle, gpus):
    bad = Acceptance("vm", EARLIER, False, (), gpus=gpus)
    assert due(idle, policy("new"), bad, None) == "its last burn-in failed"


def test_a_replaced_gpu_is_named_and_one_in_another_slot_is_none(idle, gpus):
    one = gpus[3]
    other = Acceptance("vm", EARLIER, True, (), gpus=("a", *gpus[:3], *gpus[4:]))
    assert due(idle, policy("new"), other, None) == f"GPUs are new in it: {one}"
    assert due(idle, policy("new"), replace(other, gpus=gpus[::-1]), None) == ""


def test_what_a_repair_ends_calls_for_another(idle, gpus):
    good = Acceptance("vm", EARLIER, True, (), gpus=gpus)
    broken = failed("vm", "ACCEPT-UNCORRECTABLE", NOW)
    assert (
        due(idle, policy("new"), good, broken) == "its last acceptance found ACCEPT-UNCORRECTABLE"
    )
    assert due(idle, policy("new"), good, failed("vm", "ACCEPT-DRIFT", NOW)) == ""
    # An acceptance is a record as well, whatever it found.
    assert due(idle, policy("new"), None, failed("vm", "ACCEPT-DRIFT", NOW)) == ""
    assert (
        due(idle, policy("new"), None, broken) == "its last acceptance found ACCEPT-UNCORRECTABLE"
    )
    assert due(idle, policy("new"), replace(good, collected_at=NOW), replace(broken)) == ""


def test_what_a_repair_ends_is_documented():
    for code in knowledge("acceptance/tests.yml")["burn_in"]["repairs"]:
        assert explanation(code)


def test_a_host_that_serves_is_left_alone(idle):
    unit = {"argv": ["x"], "exit": 0, "stderr": "", "seconds": 0.1}
    unit["stdout"] = "apiary-qwen3-0.service loaded active running x\n"
    busy = {**idle, "commands": {**idle["commands"], "replicas": unit}}
    assert due(busy, policy("new"), None, None) == ""
    assert due(busy, policy("always"), None, None) == ""
    wanted = to_measure(busy, replace(NEW, burn_in="always"))
    assert (wanted.runs, [one.code for one in wanted.refused]) == ((), ["ACCEPT-BUSY"])
    assert not burn_in(busy, NEW, Measured(), wanted.refused).accepted


def test_a_host_without_gpus_has_nothing_to_load():
    bundle = simulated_evidence()
    bundle["files"] = {k: v for k, v in bundle["files"].items() if "kfd" not in k}
    bundle["commands"], bundle["links"] = {}, {}
    assert due(bundle, policy("always"), None, None) == ""


def test_all_programs_share_the_time_of_a_burn_in(idle):
    wanted = to_measure(idle, NEW)
    assert {run["test"] for run in wanted.runs} == set(TESTS)
    assert (wanted.run_seconds, wanted.seconds) == (900, 3600)
    assert to_measure(idle, Settings(tests=TESTS)).seconds is None


def test_rvs_of_rocm_extras_gets_its_libraries_and_its_own_configuration(idle):
    (gst,) = [run for run in to_measure(idle, NEW).runs if run["name"] == "gst"]
    conf = "/opt/rocm/extras-10/share/rocm-validation-suite/conf/MI325X/gst_single.conf"
    (attempt,) = [each for each in gst["attempts"] if each["needs"] == conf]
    first, libraries, *words = attempt["argv"]
    assert (first, words) == ("env", ["/opt/rocm/extras-10/bin/rvs", "-c", conf])
    assert libraries.startswith("LD_LIBRARY_PATH=/opt/rocm/extras-10/lib:")
    (a2a,) = [run for run in to_measure(idle, NEW).runs if run["name"] == "a2a"]
    assert a2a["attempts"][0] == {"argv": ["TransferBench", "a2a"], "needs": None}
    assert a2a["attempts"][2]["needs"] == "/opt/rocm/extras-10/bin/TransferBench"


def ran(name, text):
    return Ran("rccl", name, ("all_reduce_perf",), 0, text, 60.0)


def test_only_what_was_run_decides_and_amds_threshold_is_said(idle, gpus):
    idle = {**idle, "files": {**idle["files"]}}
    idle["files"]["/sys/class/drm/card0/device/ras/gfx_err_count"] = "ue: 1\nce: 0\n"
    text = (OUTPUTS / "rccl.txt").read_text()
    judged = burn_in(idle, NEW, Measured(runs=(ran("all_reduce", text),)), ())
    assert (judged.accepted, judged.gpus) == (True, gpus)
    assert "pass: vm: rccl all_reduce: 311.28 GB/s" in "\n".join(judged.summary())
    assert "at least 304 GB/s" in "\n".join(judged.summary())
    slow = Measured(runs=(ran("all_reduce", text.replace("311.28", "171.28")),))
    judged = burn_in(idle, NEW, slow, ())
    assert not judged.accepted
    assert [one.code for one in judged.findings] == ["ACCEPT-RCCL"]


def test_nothing_to_load_them_with_speaks_against_no_host(idle):
    missing = Ran("rvs", "gst", installed=False, error="not installed: rvs not found")
    judged = burn_in(idle, NEW, Measured(runs=(missing,)), ())
    assert (judged.accepted, judged.findings) == (True, ())
    assert judged.summary()[1:] == ("not installed: rvs gst (rocm_burn_in: what AMD packages)",)
