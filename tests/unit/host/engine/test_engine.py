# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which engines a host is brought, which it keeps, and which go."""

import json

import pytest
from ansible_collections.apiary.instinct.plugins.plugin_utils.deployment import EngineSpec
from ansible_collections.apiary.instinct.plugins.plugin_utils.documents import from_document
from ansible_collections.apiary.instinct.plugins.plugin_utils.evidence.types import (
    CommandOutput,
    Evidence,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.host.engine import Settings, decide

PINS = f"vllm==0.33.0 \\\n    --hash=sha256:{'a' * 64}\n"
IMAGE = f"registry.example/vllm@sha256:{'b' * 64}"


def evidence(named="", records=(), gfx=None, driver=None):
    """Return what a host printed: what its plans name, its engines, its GPUs' target."""
    files = {
        f"/var/lib/apiary/engines/{number}.json": record
        if isinstance(record, str)
        else json.dumps(record)
        for number, record in enumerate(records)
    }
    if gfx:
        files["/sys/class/kfd/kfd/topology/nodes/2/properties"] = f"simd_count 1216\n{gfx}\n"
    if driver:
        files["/sys/module/amdgpu/version"] = f"{driver}\n"
    output = CommandOutput(("grep",), 0 if named else 1, named, "", 0.0)
    return Evidence("gpu-001", "", "", {"engines_named": output}, files)


def wheels(directory, **more):
    return {"kind": "wheels", "name": directory, "complete": True, **more}


def names(plan):
    return [
        (each["kind"], each.get("path") or each.get("reference"), each.get("state", "present"))
        for each in plan.resources
        if each["kind"] != "packages"
    ]


def test_an_engine_with_pins_is_installed_beside_those_that_releases_name():
    requested = EngineSpec("0.33.0", "/opt/vllm/0.33.0/bin/vllm")
    records = [wheels("/opt/vllm/0.31.0"), wheels("/opt/vllm/0.32.0"), wheels("/opt/vllm/0.33.0")]
    named = '"executable": "/opt/vllm/0.32.0/bin/vllm"\n"image": "x"\n'
    settings = Settings((requested,), {"0.33.0": PINS}, packages=("python3-venv",))
    plan = decide(settings, evidence(named, records))
    assert names(plan) == [
        ("wheels", "/opt/vllm/0.33.0", "present"),
        ("wheels", "/opt/vllm/0.31.0", "absent"),
    ]
    assert plan.resources[0] == {"kind": "packages", "names": ["python3-venv"]}


def test_an_engine_without_pins_is_the_operator_s():
    plan = decide(Settings((EngineSpec("0.33.0"),)), evidence())
    assert plan.resources == ()
    assert plan.findings == ()


def test_images_by_digest_are_pulled_and_by_tag_are_not():
    engines = [
        EngineSpec("0.33.0", image=IMAGE, runtime="quadlet"),
        EngineSpec("0.33.0", image="registry.example/vllm:latest", runtime="docker"),
    ]
    old = {"kind": "image", "name": f"old@sha256:{'c' * 64}", "program": "docker"}
    plan = decide(Settings(tuple(engines)), evidence('"image": "else"\n', [old]))
    assert names(plan) == [("image", IMAGE, "present"), ("image", old["name"], "absent")]
    assert plan.resources[0]["program"] == "podman"


def test_nothing_goes_where_the_host_does_not_say_what_it_runs():
    silent = Evidence("gpu-001", "", "", {}, evidence(records=[wheels("/opt/vllm/0.1")]).files)
    assert decide(Settings(), silent).resources == ()


def test_all_of_the_role_s_making_goes_when_it_is_absent():
    named = '"executable": "/opt/vllm/0.32.0/bin/vllm"\n'
    settings = Settings((EngineSpec("0.32.0"),), {"vllm": PINS}, state="absent")
    plan = decide(settings, evidence(named, [wheels("/opt/vllm/0.32.0")]))
    assert names(plan) == [("wheels", "/opt/vllm/0.32.0", "absent")]


@pytest.mark.parametrize(
    "line", ["torch==2.9.0", "--extra-index-url=https://elsewhere", "-e .", "vllm --hash=md5:0"]
)
def test_a_requirement_without_a_hash_is_refused(line):
    plan = decide(Settings(requirements={"0.33.0": f"# pins\n{PINS}{line}\n"}), evidence())
    (finding,) = plan.findings
    assert finding.code == "ENGINE-UNPINNED"
    assert finding.severity == "error"
    assert line in finding.message


@pytest.mark.parametrize(
    ("built", "state"),
    [
        (["gfx942:sramecc+", "gfx950"], "pass"),
        (["gfx950"], "fail"),
        (None, None),
        ("x", None),
    ],
)
def test_a_build_is_compared_with_the_gpus(built, state):
    records = [wheels("/opt/vllm/0.33.0", facts={"gfx": built})]
    checks = decide(Settings(), evidence("x", records, "gfx_target_version 90402")).checks
    assert [check.state for check in checks] == ([state] if state else [])


@pytest.mark.parametrize(
    ("rocm", "driver", "state"),
    [
        ("7.2.53211-e1a6bc5663", "6.16.13", "pass"),
        ("7.2.53211", "6.12.12", "pass"),
        ("7.2.53211", "7.1.3", "fail"),  # of 31.50, which came with ROCm 10
        ("10.0.0", "6.12.12", "fail"),
        ("7.2.53211", "6.99.1", "unknown"),
        ("7.2.53211", None, None),  # the kernel's own
        ("5.7.1", "6.16.13", None),
        (None, "6.16.13", None),
        ({"a": 1}, "6.16.13", None),
    ],
)
def test_a_builds_rocm_is_compared_with_the_driver(rocm, driver, state):
    records = [wheels("/opt/vllm/0.33.0", facts={"rocm": rocm})]
    checks = decide(Settings(), evidence("x", records, driver=driver)).checks
    assert [(check.code, check.state) for check in checks] == (
        [("ENGINE-DRIVER", state)] if state else []
    )


@pytest.mark.parametrize(
    ("given", "facts", "states"),
    [
        ({"aiter": "0.1.26", "rocm": "7.2.3"}, {"aiter": "0.1.26+rocm7", "rocm": "7.2.5"}, "pp"),
        ({"aiter": "0.1.24"}, {"aiter": "0.1.26"}, "f"),
        ({"rocm": "7.1"}, {"rocm": "7.2.53211"}, "f"),
        ({}, {"aiter": "0.1.26", "rocm": "7.2.53211"}, "f"),  # no rule knows its AITER
        ({"aiter": "0.1.26"}, {"aiter": None}, ""),
    ],
)
def test_what_a_deployment_says_of_its_stack_is_compared_with_what_is_there(given, facts, states):
    requested = EngineSpec("0.33.0", "/opt/vllm/0.33.0/bin/vllm", **given)
    records = [wheels("/opt/vllm/0.33.0", facts=facts)]
    checks = decide(Settings((requested,)), evidence("x", records)).checks
    assert [check.code for check in checks] == ["ENGINE-STACK"] * len(states)
    assert sorted(check.state[0] for check in checks) == sorted(states)


def test_an_image_of_upstream_s_needs_not_say_its_stack():
    requested = EngineSpec("0.33.0", image=IMAGE, runtime="quadlet")
    record = {"kind": "image", "program": "podman", "name": IMAGE, "facts": {"aiter": "0.1.26"}}
    assert decide(Settings((requested,)), evidence("x", [record])).checks == ()


@pytest.mark.parametrize(
    "record",
    [
        "{",
        "[]",
        {"name": 7, "kind": "wheels"},
        wheels("etc"),
        {"kind": "image", "name": "x", "program": "rm"},
        {"kind": "directory", "name": "/etc"},
    ],
)
def test_a_record_that_is_not_ours_removes_nothing(record):
    assert decide(Settings(), evidence("x", [record])).resources == ()


def test_settings_come_as_a_deployment_has_them():
    engine = {"version": "0.33.0", "args": {"a": 1}, "image": None}
    document = {"requested": [engine], "secrets": {"pip_config": "[global]"}}
    settings = from_document(Settings, document, "engine")
    requested = decide(
        Settings(settings.requested, {"vllm": PINS}, secrets=settings.secrets), evidence()
    )
    (resource,) = requested.resources
    assert (resource["path"], resource["pip_config"]) == ("/opt/vllm", "pip_config")
    assert "[global]" not in json.dumps(requested.resources)
