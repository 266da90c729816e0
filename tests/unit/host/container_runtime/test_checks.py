# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What no resource shows: rival files, nodes and their groups; what would restart Docker."""

import json

import pytest
from ansible_collections.apiary.instinct.plugins.module_utils.evidence.host import (
    without_credentials,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.host.container_runtime import (
    Settings,
    decide,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.host.container_runtime.engine import (
    DAEMON_JSON,
    SPECIFICATION,
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


def test_a_second_file_of_the_same_devices(gpus):
    evidence = right(gpus)
    rival = {"/run/cdi/amd.yaml": "cdiVersion: 0.6.0\nkind: amd.com/gpu\n"}
    check = failing(drifted(evidence, rival))["CONTAINER-CDI-RIVAL", SPECIFICATION]
    assert (check.found, check.severity) == ("/run/cdi/amd.yaml", "warning")


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
    ("owners", "told"), [("", "no /dev/kfd"), ("/dev/kfd 660 0 104\n", "no /dev/dri/renderD")]
)
def test_nodes_that_are_missing_are_named(gpus, owners, told):
    found = failing(drifted(right(gpus), {}, {"device_owners": said(owners)}))
    assert list(found) == [("CONTAINER-GROUP", NODES)]
    assert found["CONTAINER-GROUP", NODES].remedy
    assert told in found["CONTAINER-GROUP", NODES].found


@pytest.mark.parametrize("mode", ["Permissive", "Disabled", "Enforcing"])
def test_selinux_counts_where_it_enforces(gpus, mode):
    told = {
        "selinux_mode": said(f"{mode}\n"),
        "selinux_boolean": said("container_use_devices --> on\n"),
    }
    assert decide(Settings(), host(gpus, commands=told)).selinux is None


def test_selinux_that_forbids_devices_is_turned(gpus):
    told = {"selinux_mode": said("Enforcing\n"), "selinux_boolean": said("x --> off\n")}
    assert decide(Settings(), host(gpus, commands=told)).selinux == "container_use_devices"


def changes_settings(evidence, **settings):
    """Whether containers that run would be beneath a Docker that restarts."""
    evidence.commands["docker_containers"] = said("1a2b\n")
    return "CONTAINER-RUNNING" in refused(evidence, engine="docker", **settings)


def test_a_setting_that_left_daemon_json_would_restart_docker(gpus):
    evidence = right(gpus, docker="28.0")
    daemon = json.loads(evidence.files[DAEMON_JSON])
    del daemon["features"]
    assert changes_settings(drifted(evidence, {DAEMON_JSON: json.dumps(daemon)}))


def test_settings_of_others_in_daemon_json_are_theirs(gpus):
    evidence = right(gpus, docker="28.0")
    daemon = {**json.loads(evidence.files[DAEMON_JSON]), "dns": ["10.0.0.1"]}
    assert not changes_settings(drifted(evidence, {DAEMON_JSON: json.dumps(daemon)}))


def test_a_password_in_an_address_is_neither_compared_nor_shown(gpus):
    """Evidence has *** in its place, in whatever part of the file it is."""
    proxy = "http://user:hunter2@proxy.example.com:3128"
    settings = {"docker_settings": {"proxies": {"http-proxy": proxy, "x": [proxy]}}}
    evidence = host(gpus, docker="28.0")
    right = applied(evidence, decide(Settings(engine="docker", **settings), evidence))
    text = right.files[DAEMON_JSON]
    assert "hunter2" in text
    right.files[DAEMON_JSON] = without_credentials(text)
    assert not changes_settings(right, **settings)
    # Whoever collected it may not have masked it.
    other = text.replace("proxy.example", "else.example")
    changed = drifted(right, {DAEMON_JSON: other})
    assert changes_settings(changed, **settings)
    findings = decide(Settings(engine="docker", **settings), changed).findings
    assert "hunter2" not in repr(findings)
