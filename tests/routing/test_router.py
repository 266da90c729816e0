# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Routers with the role's defaults: two of them agree, and nothing is lost by what operators do."""

import contextlib
import json
import threading
import time
from pathlib import Path

import pytest

from .conftest import ROUTERS, VARIABLES, ask, playbook

PORT = 8080
LEFT, TAKEN = "gpu-001-0", "gpu-001-1"
SESSIONS = [{"X-Session-Id": f"session-{number}"} for number in range(60)]
CONFIGURATION = "/etc/haproxy/haproxy.cfg"
STATES = "/usr/libexec/apiary/haproxy.py"


def replicas(router, count=20):
    """The replicas that answer requests without a session."""
    return {ask(router, PORT, {})[1]["replica"] for _number in range(count)}


@pytest.mark.parametrize("name", ROUTERS)
def test_the_router_runs_the_distributions_haproxy_with_our_limits(routers, name):
    host = routers[name]
    assert host.service("haproxy").is_running
    assert host.service("haproxy").is_enabled
    assert host.run("haproxy -c -q -f %s", CONFIGURATION).rc == 0
    assert host.run("systemd-analyze verify --man=no haproxy.service").rc == 0
    assert host.file("/etc/haproxy/apiary/router.json").mode == 0o600


def test_a_configuration_that_was_there_is_kept(routers):
    kept = routers["router-002"].file(f"/var/lib/apiary/originals{CONFIGURATION}")
    assert "somebody else" in kept.content_string


def test_both_routers_send_a_session_to_the_same_replica():
    places = [
        [ask(router, PORT, {}, headers=session)[1]["replica"] for session in SESSIONS]
        for router in ROUTERS
    ]
    assert places[0] == places[1]
    assert set(places[0]) == {LEFT, TAKEN}


def test_a_reload_ends_no_request(routers):
    answers = []
    requests = [
        threading.Thread(
            target=lambda: answers.append(ask("router-001", PORT, {"seconds": 1.5})[0])
        )
        for _number in range(8)
    ]
    for one in requests:
        one.start()
    routers["router-001"].check_output("systemctl reload haproxy")
    assert [ask("router-001", PORT, {})[0] for _number in range(50)] == [200] * 50
    for one in requests:
        one.join()
    assert answers == [200] * 8


def test_what_a_router_cannot_run_leaves_the_former_configuration(routers):
    """One is told to serve TLS without a certificate, the other at a port that is taken."""
    first, second = (routers[name] for name in ROUTERS)
    before = [host.file(CONFIGURATION).sha256sum for host in (first, second)]
    second.check_output("systemd-run --unit=squatter python3 -m http.server 8088")
    second.check_output(
        "timeout 20 sh -c 'until curl -s http://127.0.0.1:8088 >/dev/null; do sleep 0.1; done'"
    )
    wrong = {
        "router_tls_enabled": "{{ inventory_hostname == 'router-001' }}",
        # A first port moves nobody; a deployment's own is one's word for it.
        "router_ports": "{{ {} if inventory_hostname == 'router-001' else {'qwen3-235b': 8088} }}",
    }
    try:
        refused = playbook("router", "-e", json.dumps(wrong), check=False)
    finally:
        second.check_output("systemctl stop squatter")
    assert refused.returncode != 0
    assert "ROUTER-CONFIG" in refused.stdout
    assert "tls.pem" in refused.stdout
    assert "ROUTER-RELOAD" in refused.stdout
    assert [host.file(CONFIGURATION).sha256sum for host in (first, second)] == before
    assert [ask(name, PORT, {})[0] for name in ROUTERS] == [200, 200]
    assert first.check_output("ls /tmp | grep -c apiary-judge || true") == "0"


def test_a_drain_waits_for_what_is_in_work_and_outlives_reload_restart_and_playbook(routers):
    session = next(
        one for one in SESSIONS if ask(ROUTERS[0], PORT, {}, headers=one)[1]["replica"] == TAKEN
    )
    started, answers = time.monotonic(), []
    request = threading.Thread(
        target=lambda: answers.append(
            ask(ROUTERS[0], PORT, {"seconds": 4}, headers=session, seconds=20)
        )
    )
    request.start()
    told = playbook("drain", "-e", "target=gpu-001", "-e", "replica=1")
    # The playbook ends after the request, not with it.
    assert answers, told.stdout
    assert time.monotonic() > started + 4
    assert answers[0][:2] == (200, {"replica": TAKEN, "authorization": None})
    assert "gpu-001: drained, 0 in work and 0 waiting at 2 routers" in told.stdout
    assert all(replicas(name) == {LEFT} for name in ROUTERS)

    # A host whose plan is gone is named and stays, as it is.
    with without_plan("gpu-001"):
        told = playbook("router")
    assert "ROUTER-HOST-KEPT: gpu-001" in told.stderr + told.stdout
    assert told.stdout.count("changed=0") == 2

    routers["router-001"].check_output("systemctl reload haproxy")
    routers["router-002"].check_output("systemctl restart haproxy")
    assert all(replicas(name) == {LEFT} for name in ROUTERS)
    routers["router-001"].check_output("systemctl kill --signal=KILL haproxy")
    routers["router-001"].check_output(
        "timeout 20 sh -c 'until python3 %s check; do sleep 0.1; done'", STATES
    )
    assert replicas("router-001") == {LEFT}

    playbook("undrain", "-e", "target=gpu-001")
    assert all(replicas(name) == {LEFT, TAKEN} for name in ROUTERS)


def test_what_a_dead_run_drained_comes_back_by_itself(routers):
    """As a rollout drains whose controller is then gone; the service is started at once."""
    playbook("drain", "-e", "target=gpu-001", "-e", "replica=1", "-e", "drain_deadline=1")
    playbook("drain", "-e", "target=gpu-001", "-e", "replica=0", "-e", "drain_force=true")
    for host in routers.values():
        assert host.run("systemctl is-active apiary-router.timer").rc == 0
        assert host.run("systemd-analyze security --threshold=30 apiary-router.service").rc == 0
        host.check_output("systemctl start apiary-router.service")
    try:
        # The one that was drained without an end is somebody's.
        assert all(replicas(name) == {TAKEN} for name in ROUTERS)
    finally:
        playbook("undrain", "-e", "target=gpu-001")


@contextlib.contextmanager
def without_plan(host):
    """Hide the plans of a host from the controller."""
    plans = Path(VARIABLES[host]["apiary_artifacts"]) / host
    moved = plans.with_name(f"{host}.moved")
    plans.rename(moved)
    try:
        yield
    finally:
        moved.rename(plans)
