# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Every check is green on a right host, and each drift is one failed check with its remedy."""

import copy

import pytest
from ansible_collections.apiary.instinct.plugins.plugin_utils.acceptance.accept import accept
from ansible_collections.apiary.instinct.plugins.plugin_utils.acceptance.types import Settings
from ansible_collections.apiary.instinct.plugins.plugin_utils.findings import Finding
from ansible_collections.apiary.instinct.plugins.plugin_utils.host.types import Check, ConcernPlan
from ansible_collections.apiary.instinct.plugins.plugin_utils.render.replicas import render_systemd

from support.demo import demo_plan
from support.topology.simulated import simulated_evidence

CARD = "/sys/class/drm/card0/device"


def said(stdout):
    return {"argv": ["x"], "exit": 0, "stdout": stdout, "stderr": "", "seconds": 0.1}


@pytest.fixture(scope="module")
def right():
    """The bundle of a host that serves the demo's plan."""
    bundle = simulated_evidence()
    plan = demo_plan()
    units = "".join(f"{one.unit} loaded active running x\n" for one in plan.replicas)
    ports = "".join(f"LISTEN 0 1 0.0.0.0:{one.port} 0.0.0.0:*\n" for one in plan.replicas)
    bundle["commands"] |= {
        "replicas": said(units),
        "listening": said(ports),
        "kernel_log": said("[1.0] amdgpu 0000:05:00.0: amdgpu: SMU is initialized\n"),
    }
    bundle["files"] |= {item.path: item.content for item in render_systemd(plan)}
    bundle["files"] |= {f"{CARD}/ras/umc_err_count": "ue: 0\nce: 4\n"}
    bundle["files"] |= {f"{CARD}/hwmon/hwmon1/power1_cap": "1000000000\n"}
    return bundle


@pytest.fixture
def host(right):
    return copy.deepcopy(right)


def entry(before, after):
    return {"before_header": "/etc/x", "after_header": "/etc/x", "before": before, "after": after}


def failed(judged):
    checks = {check.code for check in judged.checks if check.state == "fail"}
    return checks | {complaint.code for complaint in judged.complaints}


def test_a_right_host_is_accepted(host):
    judged = accept(host, Settings(gpus=8, strict=True))
    assert failed(judged) == set()
    assert judged.accepted
    assert judged.findings == ()
    assert {"ACCEPT-TOPOLOGY", "ACCEPT-UNIT-FILE", "ACCEPT-PORT"} <= {
        check.code for check in judged.checks
    }
    assert len(judged.summary()) == 1


UNIT = demo_plan().replicas[0].unit


@pytest.mark.parametrize(
    ("part", "name", "value", "code"),
    [
        ("commands", "replicas", said(""), "ACCEPT-REPLICA"),
        ("commands", "listening", said("LISTEN 0 1 0.0.0.0:22 0.0.0.0:*\n"), "ACCEPT-PORT"),
        ("commands", "kernel_log", said("amdgpu: GPU reset begin!\n"), "ACCEPT-KERNEL-LOG"),
        ("files", f"/etc/systemd/system/{UNIT}", "[Service]\n", "ACCEPT-UNIT-FILE"),
        ("files", "/etc/apiary/qwen3-235b/plan.json", "{", "ACCEPT-PLAN"),
        ("files", f"{CARD}/ras/gfx_err_count", "ue: 1\nce: 0\n", "ACCEPT-UNCORRECTABLE"),
        ("files", f"{CARD}/hwmon/hwmon1/power1_cap", "750000000\n", "ACCEPT-POWER-CAP"),
    ],
)
def test_a_drift_is_named_with_its_remedy(host, part, name, value, code):
    host[part][name] = value
    judged = accept(host, Settings(gpus=8, strict=True))
    assert failed(judged) == {code}
    assert not judged.accepted
    assert all(one.remedy for one in judged.findings)
    assert code in "\n".join(judged.summary())


def test_a_replica_that_is_down_says_why(host):
    cause = "REPLICA-ENGINE-DIED: x: the engine exited with status 1: cause port: a port is in use"
    host["commands"]["replicas"] = said("")
    host["commands"]["replica_status"] = said(f"Id={UNIT}\nStatusText={cause}\n\nId=a\n")
    down = [check for check in accept(host).checks if check.code == "ACCEPT-REPLICA"]
    assert down[0].found == f"not running: {cause}"
    assert down[1].found == "not running"


def test_a_missing_file_is_named(host):
    del host["files"][f"/etc/systemd/system/{UNIT}"]
    assert failed(accept(host)) == {"ACCEPT-UNIT-FILE"}


def test_fewer_gpus_than_asked_for(host):
    judged = accept(host, Settings(gpus=16))
    assert failed(judged) == {"ACCEPT-GPU-COUNT"}
    assert not judged.accepted


def test_what_the_topology_complains_of_is_a_failed_check(host):
    for path in [path for path in host["files"] if "0000:05:00.0/current_link_width" in path]:
        host["files"][path] = "8\n"
    judged = accept(host)
    assert failed(judged) == {"TOPO-PCIE-LINK"}
    assert judged.accepted
    assert not accept(host, Settings(strict=True)).accepted


def test_a_log_that_may_not_be_read_is_unknown_and_forbids_nothing(host):
    host["commands"]["kernel_log"] |= {"exit": 1, "stdout": ""}
    judged = accept(host)
    assert judged.accepted
    assert {one.severity for one in judged.findings} == {"info"}


def test_a_guest_has_no_power_cap(host):
    host["commands"]["virtualization"] = said("kvm\n")
    host["files"][f"{CARD}/hwmon/hwmon1/power1_cap"] = "1000000\n"
    assert "ACCEPT-POWER-CAP" not in {check.code for check in accept(host).checks}


def test_a_roles_failed_check_and_its_refusal_count(host):
    good = Check("ROCM-DEVICES", "gpu-001", "pass", "0", "0")
    drift = Check("ROCM-STREAM", "gpu-001", "fail", "1", "0", minor=True)
    plan = ConcernPlan(checks=(good, drift), findings=(Finding("ROCM-GFX", "gpu-001", "lacks"),))
    judged = accept(host, plans={"rocm": plan})
    assert failed(judged) == {"ROCM-STREAM", "ROCM-GFX"}
    assert [one.code for one in judged.findings] == ["ROCM-GFX", "ROCM-STREAM"]


def report(**differs):
    """What converge in check mode reports of one resource."""
    steps, diff = differs.get("steps", []), differs.get("diff", [])
    return {
        "role": "host_tuning",
        "resource": "file /etc/x",
        "changed": bool(steps or diff),
        "findings": [],
        "steps": steps,
        "diff": diff,
        **differs,
    }


@pytest.mark.parametrize(
    ("differs", "told"),
    [
        ({"steps": ["enable a.service"]}, "enable a.service"),
        ({"diff": [entry("1\n", "0\n")]}, "change /etc/x from 1 to 0"),
        ({"diff": [entry("", "0\n")]}, "write /etc/x"),
        ({"diff": [entry("1\n", "")]}, "remove /etc/x"),
        ({"diff": [entry("1\n" * 200, "0\n")]}, "change /etc/x"),
    ],
)
def test_what_a_run_would_change_is_a_drift(host, differs, told):
    judged = accept(host, reports=[report(**differs)])
    (check,) = [one for one in judged.checks if one.state == "fail"]
    assert (check.code, check.subject) == ("ACCEPT-DRIFT", "vm: file /etc/x")
    assert check.found == f"a run would {told}"
    assert "host_tuning" in check.remedy
    assert not judged.accepted


def test_a_role_that_would_change_nothing_passes(host):
    checks = accept(host, plans={"rocm": ConcernPlan()}).checks
    assert [one.state for one in checks if one.code == "ACCEPT-DRIFT"] == ["pass"]


def test_a_resource_that_cannot_be_inspected_is_told_by_its_own_finding(host):
    refused = {"code": "HOST-UNIT", "subject": "a.service", "message": "systemd has no such unit"}
    plans = {"host_tuning": ConcernPlan()}
    judged = accept(host, plans=plans, reports=[report(findings=[refused])])
    assert failed(judged) == {"HOST-UNIT"}
    assert "ACCEPT-DRIFT" not in {one.code for one in judged.checks}


def test_a_role_of_which_only_a_warning_is_reported_passes(host):
    warning = {"code": "WEIGHTS-HIDDEN", "subject": "/srv/models", "message": "holds 3 files"}
    plans = {"host_tuning": ConcernPlan()}
    checks = accept(host, plans=plans, reports=[report(findings=[warning])]).checks
    assert [one.state for one in checks if one.code == "ACCEPT-DRIFT"] == ["pass"]
