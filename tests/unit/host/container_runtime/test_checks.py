# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Every drift is a check that fails, names what was found and says what to do."""

import json

import pytest
from ansible_collections.apiary.instinct.plugins.module_utils.evidence.host import CREDENTIALS
from ansible_collections.apiary.instinct.plugins.plugin_utils.host.container_runtime import (
    Settings,
    decide,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.host.container_runtime.types import (
    CONTAINERS_CONF,
    DAEMON_JSON,
    PROGRAM,
    SERVICE,
    SPECIFICATION,
    UNIT,
)

from support.host.container import applied, failing, host, refused, said

NODES = "/dev/kfd, /dev/dri/renderD*"


def right(gpus, **machine):
    settings = {"engine": "docker"} if "docker" in machine else {}
    evidence = host(gpus, **machine)
    return applied(evidence, decide(Settings(**settings), evidence))


def drifted(evidence, files=None, commands=None):
    evidence.files.update(files or {})
    evidence.commands.update(commands or {})
    return evidence


def specification(evidence, **changes):
    return json.dumps({**json.loads(evidence.files[SPECIFICATION]), **changes})


def test_a_gpu_that_is_gone_is_named(gpus, one_less):
    stale = right(gpus).files[SPECIFICATION]
    found = failing(drifted(right(one_less), {SPECIFICATION: stale}))
    check = found["CONTAINER-CDI-DRIFT", SPECIFICATION]
    assert "device 0000:65:00.0, which the host does not have" in check.found
    assert check.expected == "the 7 GPUs of this host"
    assert "systemctl restart apiary-cdi" in check.remedy


def test_nodes_that_moved_are_named(gpus):
    evidence = right(gpus)
    moved = evidence.files[SPECIFICATION].replace("renderD129", "renderD140")
    found = failing(drifted(evidence, {SPECIFICATION: moved}))
    check = found["CONTAINER-CDI-DRIFT", SPECIFICATION]
    assert "device 0 differs in /dev/dri/renderD129, /dev/dri/renderD140" in check.found


@pytest.mark.parametrize(
    ("change", "code", "told"),
    [
        ({"kind": "nvidia.com/gpu"}, "CONTAINER-CDI-DRIFT", "devices of nvidia.com/gpu"),
        ({"cdiVersion": "0.6.0"}, "CONTAINER-CDI-VERSION", "CDI 0.6.0"),
        ({"devices": []}, "CONTAINER-CDI-INVALID", "has no devices"),
        ({"extra": 1}, "CONTAINER-CDI-INVALID", "extra is not known"),
    ],
)
def test_a_specification_that_is_wrong(gpus, change, code, told):
    evidence = right(gpus)
    found = failing(drifted(evidence, {SPECIFICATION: specification(evidence, **change)}))
    assert list(found) == [(code, SPECIFICATION)]
    assert told in found[code, SPECIFICATION].found


def test_a_specification_that_is_no_json(gpus):
    found = failing(drifted(right(gpus), {SPECIFICATION: "{"}))
    assert "not JSON" in found["CONTAINER-CDI-INVALID", SPECIFICATION].found


def test_groups_of_another_host_are_found(gpus):
    evidence = right(gpus, podman="5.4.2")
    other = evidence.files[SPECIFICATION].replace("104", "992")
    found = failing(drifted(evidence, {SPECIFICATION: other}))
    assert "other groups" in found["CONTAINER-CDI-DRIFT", SPECIFICATION].found


def test_a_second_file_of_the_same_devices(gpus):
    evidence = right(gpus)
    rival = {"/run/cdi/amd.yaml": "cdiVersion: 0.6.0\nkind: amd.com/gpu\n"}
    check = failing(drifted(evidence, rival))["CONTAINER-CDI-RIVAL", SPECIFICATION]
    assert (check.found, check.severity) == ("/run/cdi/amd.yaml", "warning")


@pytest.mark.parametrize(
    ("files", "commands", "failure"),
    [
        ({UNIT: "[Unit]\n"}, {}, ("CONTAINER-CONFIG", UNIT)),
        ({PROGRAM: "#!/bin/sh\n"}, {}, ("CONTAINER-CONFIG", PROGRAM)),
        ({CONTAINERS_CONF: "[containers]\n"}, {}, ("CONTAINER-CONFIG", CONTAINERS_CONF)),
        ({}, {"cdi_service": said("disabled\n", 1)}, ("CONTAINER-CDI-BOOT", SERVICE)),
        ({}, {"podman_version": said("", 127)}, ("CONTAINER-ENGINE-ABSENT", "podman")),
        (
            {},
            {"podman_version": said("podman version 4.1.0\n")},
            ("CONTAINER-ENGINE-OLD", "podman"),
        ),
        ({}, {"device_owners": said("")}, ("CONTAINER-GROUP", NODES)),
        ({}, {"device_owners": said("/dev/kfd 660 0 104\n")}, ("CONTAINER-GROUP", NODES)),
        (
            {},
            {"selinux_mode": said("Enforcing\n"), "selinux_boolean": said("x --> off\n")},
            ("CONTAINER-SELINUX", "container_use_devices"),
        ),
    ],
)
def test_each_drift_is_one_check_with_a_remedy(gpus, files, commands, failure):
    found = failing(drifted(right(gpus), files, commands))
    assert list(found) == [failure]
    assert found[failure].remedy


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (("104", "992"), "groups 104, 992"),
        (("660", "600"), "closed to them"),
    ],
)
def test_nodes_that_no_single_group_may_use(gpus, change, told):
    evidence = right(gpus)
    nodes = evidence.commands["device_owners"].stdout
    first, rest = nodes.split("\n", 1)
    evidence.commands["device_owners"] = said(f"{first.replace(*change)}\n{rest}")
    assert told in failing(evidence)["CONTAINER-GROUP", NODES].found


def test_nodes_that_everybody_may_use_are_no_fault(gpus):
    assert failing(right(gpus, mode="666")) == {}


@pytest.mark.parametrize(
    ("mode", "state"), [("Permissive", "skip"), ("Disabled", "skip"), ("Enforcing", "pass")]
)
def test_selinux_counts_where_it_enforces(gpus, mode, state):
    told = {
        "selinux_mode": said(f"{mode}\n"),
        "selinux_boolean": said("container_use_devices --> on\n"),
    }
    plan = decide(Settings(), host(gpus, commands=told))
    (check,) = (one for one in plan.checks if one.code == "CONTAINER-SELINUX")
    assert check.state == state
    assert plan.selinux is None


def test_selinux_that_forbids_devices_is_turned(gpus):
    told = {"selinux_mode": said("Enforcing\n"), "selinux_boolean": said("x --> off\n")}
    assert decide(Settings(), host(gpus, commands=told)).selinux == "container_use_devices"


def test_a_setting_that_left_daemon_json_is_named(gpus):
    evidence = right(gpus, docker="28.0")
    daemon = json.loads(evidence.files[DAEMON_JSON])
    del daemon["features"]
    daemon["default-shm-size"] = "64m"
    found = failing(drifted(evidence, {DAEMON_JSON: json.dumps(daemon)}), engine="docker")
    check = found["CONTAINER-CONFIG", DAEMON_JSON]
    assert check.found == 'default-shm-size: "64m"'
    assert check.expected == 'default-shm-size: "16g"; features.cdi: true'


def test_settings_of_others_in_daemon_json_are_theirs(gpus):
    evidence = right(gpus, docker="28.0")
    daemon = {**json.loads(evidence.files[DAEMON_JSON]), "dns": ["10.0.0.1"]}
    assert failing(drifted(evidence, {DAEMON_JSON: json.dumps(daemon)}), engine="docker") == {}


def test_a_password_in_an_address_is_neither_compared_nor_shown(gpus):
    """Evidence has *** in its place, in whatever part of the file it is."""
    proxy = "http://user:hunter2@proxy.example.com:3128"
    settings = {
        "engine": "docker",
        "docker_settings": {"proxies": {"http-proxy": proxy, "x": [proxy]}},
    }
    evidence = host(gpus, docker="28.0", commands={"docker_containers": said("1a2b\n")})
    right = applied(evidence, decide(Settings(**settings), evidence))
    text = right.files[DAEMON_JSON]
    assert "hunter2" in text
    right.files[DAEMON_JSON] = CREDENTIALS.sub("***", text)
    assert failing(right, **settings) == {}
    assert refused(right, **settings) == {}
    del right.commands["docker_containers"]
    plan = decide(Settings(**settings), drifted(right, {DAEMON_JSON: "{}"}))
    (check,) = (one for one in plan.checks if one.subject == DAEMON_JSON)
    assert "http://***@proxy.example.com:3128" in check.expected
    assert "hunter2" not in repr(plan.checks) + repr(plan.findings)
    # Whoever collected it may not have masked it.
    other = text.replace("proxy.example", "else.example")
    found = failing(drifted(right, {DAEMON_JSON: other}), **settings)
    assert "http://***@else.example" in found["CONTAINER-CONFIG", DAEMON_JSON].found


def test_docker_that_is_down(gpus):
    evidence = drifted(right(gpus, docker="28.0"), {}, {"docker_service": said("failed\n", 3)})
    assert list(failing(evidence, engine="docker")) == [("CONTAINER-DOCKER-DOWN", "docker.service")]
