# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What is tuned and what stays on a host; a trial step by step, and what it reports."""

import json

import pytest
from ansible_collections.apiary.instinct.plugins.plugin_utils.findings import ApiaryError
from ansible_collections.apiary.instinct.plugins.plugin_utils.tune import trial as trials
from ansible_collections.apiary.instinct.plugins.plugin_utils.tune.host import scope
from ansible_collections.apiary.instinct.plugins.plugin_utils.tune.types import Outcome


def plan_of(name, ports=(8000, 8001), **engine):
    return {
        "deployment": {
            "name": name,
            "listen_address": "0.0.0.0",
            "engine": {"executable": "/opt/vllm/bin/vllm", "image": "i", **engine},
        },
        "replicas": [
            {"unit": f"apiary-{name}-{n}.service", "port": port} for n, port in enumerate(ports)
        ],
        "target": f"apiary-{name}.target",
    }


A, B, C = (plan_of(name) for name in "abc")
LOAD = {"workload": "32/4", "load": 8}


def evidence(*plans):
    files = {f"/etc/apiary/{one['deployment']['name']}/plan.json": json.dumps(one) for one in plans}
    return {"files": {**files, "/etc/hostname": "x"}}


def test_what_runs_counts_as_it_runs_and_the_rest_as_it_is_planned():
    running_c = plan_of("c", (9000,))
    own = scope("h", [A, B, C], evidence(A, running_c), name="a", **LOAD)
    assert own.deployment == A["deployment"]
    assert [one["name"] for one in own.others] == ["b", "c"]
    assert [one["name"] for one in own.waiting] == ["b"]
    assert own.running == (running_c,)
    assert own.planned == (B,)


def test_the_only_deployment_need_not_be_named():
    assert scope("h", [A], {}, **LOAD).deployment["name"] == "a"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"workload": ""}, "tune_workload is not set"),
        ({"load": ""}, "neither tune_slo nor tune_concurrency"),
        ({}, "it serves a, b; tune_deployment is not set"),
        ({"name": "x"}, "tune_deployment is x"),
    ],
)
def test_what_is_missing_is_refused_by_name(changes, words):
    with pytest.raises(ApiaryError, match=words) as refusal:
        scope("h", [A, B], {}, **{**LOAD, **changes})
    assert refusal.value.findings[0].code == "TRIAL-ASKED"


def trial(load_host="load-1", **deployment):
    return {
        "deployment": {**A["deployment"], **deployment},
        "load_host": load_host,
        "rules": {"a": 1},
    }


def begun(given=None, key_file=None):
    return trials.planned("h", "10.0.0.1", given or trial(), {"plans": [B, A]}, key_file, "17")


def test_the_measurement_is_of_the_replicas_from_where_the_load_comes():
    bench = begun().bench
    assert bench["urls"] == ["http://10.0.0.1:8000", "http://10.0.0.1:8001"]
    assert bench["metrics"] == [f"{url}/metrics" for url in bench["urls"]]
    assert (bench["client_cpus"], bench["gpu_metrics"], bench["key_file"]) == (None, "none", None)
    assert bench["rules"] == {"a": 1}
    assert (bench["command"], bench["image"]) == (["/opt/vllm/bin/vllm"], None)


def test_a_host_that_loads_itself_keeps_the_client_apart():
    bench = begun(trial("h", secrets=["VLLM_API_KEY"])).bench
    assert bench["urls"][0] == "http://127.0.0.1:8000"
    assert (bench["client_cpus"], bench["gpu_metrics"]) == ("apart", "sysfs")
    assert bench["key_file"] == "/etc/apiary/a/credentials/VLLM_API_KEY"
    assert begun(trial("h", secrets=["VLLM_API_KEY"]), key_file="/k").bench["key_file"] == "/k"


def test_a_containers_client_is_the_image_unless_a_command_is_named():
    engine = {**A["deployment"]["engine"], "runtime": "quadlet"}
    bench = begun(trial(engine=engine)).bench
    assert (bench["image"], bench["container_engine"]) == ("i", "podman")
    assert begun({**trial(engine=engine), "command": ["x"]}).bench["image"] is None


def outcome(progress, measured=None, starts="s", journal=""):
    path = "short/bench.json" if measured else ""
    return trials.outcome_of(progress, measured or {}, starts, journal, "load-1", path)


def test_what_the_candidate_does_not_decide_is_lost():
    refusal = {"failed": True, "msg": "error: FIT-NO-ROOM: no room\n  remedy: y"}
    unplanned = trials.planned("h", "h", trial(), refusal, None, "17")
    assert outcome(unplanned) == Outcome("lost", cause="error: FIT-NO-ROOM: no room")
    unprepared = trials.failed(begun(), {"results": [{}, {"failed": True, "msg": "no user"}]})
    assert outcome(unprepared) == Outcome("lost", cause="no user")
    serves = trials.serving(begun(), {"changed": True}, "s")
    assert serves.units == ["apiary-a-0.service", "apiary-a-1.service"]
    gone = outcome(serves, {"unreachable": True, "msg": "timeout"})
    assert gone == Outcome("lost", cause="the load host load-1 could not be reached")


def test_a_clients_version_is_read_from_what_it_measured():
    levels = [
        {"client": {"backend": "builtin"}},
        {"client": {"backend": "vllm", "version": "0.33.0"}},
    ]
    assert trials.client_version({"levels": levels}) == "0.33.0"
    assert trials.client_version({}) is None
