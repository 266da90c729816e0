# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Draining a router's servers, against a socket that answers as HAProxy does."""

import socket
import socketserver
import tempfile
import threading
from functools import partial
from pathlib import Path

import pytest
from ansible_collections.apiary.instinct.plugins.modules import router_servers

from support.modules import run_module

COLUMNS = "be_id be_name srv_id srv_name srv_addr srv_op_state srv_admin_state srv_fqdn srv_port"
BITS = {"ready": 0, "drain": 8, "maint": 1}


class Router:
    """A router's servers: each [state, sessions, queued]; a session ends at each look."""

    def __init__(self, servers):
        self.servers = servers
        self.commands = []

    def answer(self, command):
        words = command.split()
        if words[:2] == ["set", "server"]:
            self.commands.append(command)
            if words[2] not in self.servers:
                return "No such server.\n"
            self.servers[words[2]][0] = words[4]
            return "\n"
        if command == "show stat":
            rows = ["# pxname,svname,qcur,scur,status"]
            for key, one in self.servers.items():
                status = {"ready": "UP", "drain": "DRAIN", "maint": "MAINT"}[one[0]]
                rows.append(f"{key.replace('/', ',')},{one[2]},{one[1]},{status}")
                one[1] = max(0, one[1] - 1) if one[0] != "ready" else one[1]
            return "\n".join(rows) + "\n"
        rows = [
            f"4 {key.replace('/', ' 1 ')} 10.0.0.1 2 {BITS[one[0]]} - 8000"
            for key, one in self.servers.items()
        ]
        return f"1\n# {COLUMNS}\n" + "\n".join(rows) + "\n"


@pytest.fixture
def routed(capsys):
    """A router with two replicas of one deployment and one of another, and the module over it."""
    router = Router({"a/gpu-1-0": ["ready", 3, 0], "a/gpu-1-1": ["ready", 0, 0]})
    router.servers["b/gpu-1-0"] = ["ready", 0, 0]
    router.servers["a/gpu-11-0"] = ["ready", 0, 0]

    class Handler(socketserver.StreamRequestHandler):
        def handle(self):
            self.wfile.write(router.answer(self.rfile.readline().decode().strip()).encode())

    # Paths of sockets have no more than 107 characters.
    with tempfile.TemporaryDirectory(prefix="apiary-") as short:
        directory = Path(short)
        lines = [
            f"backend {key.split('/')[0]}\n  server {key.split('/')[1]} 10.0.0.1:8000\n"
            for key in router.servers
        ]
        (directory / "haproxy.cfg").write_text("".join(lines))
        with socketserver.ThreadingUnixStreamServer(str(directory / "s"), Handler) as server:
            threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
            router.state_file = directory / "state"
            yield (
                router,
                partial(
                    run_module,
                    router_servers,
                    capsys,
                    socket=str(directory / "s"),
                    configuration=str(directory / "haproxy.cfg"),
                    state_file=str(router.state_file),
                ),
            )
            server.shutdown()


def test_a_drained_server_has_ended_what_it_had(routed):
    router, run = routed
    told = run(deployment="a", servers=["gpu-1-0"], state="drain")
    assert told["changed"]
    assert told["finished"]
    assert told["servers"]["a/gpu-1-0"]["sessions"] == 0
    assert router.commands == ["set server a/gpu-1-0 state drain"]
    assert told["diff"] == {"before": "a/gpu-1-0: ready\n", "after": "a/gpu-1-0: drain\n"}
    assert " gpu-1-0 " in router.state_file.read_text()


def test_a_second_run_changes_nothing(routed):
    router, run = routed
    run(deployment="a", servers=["gpu-1-0"], state="drain")
    assert run(deployment="a", servers=["gpu-1-0"], state="drain")["changed"] is False
    assert len(router.commands) == 1


def test_check_mode_tells_and_sets_nothing(routed):
    router, run = routed
    told = run(servers=["gpu-1-0"], state="drain", check_mode=True)
    assert told["changed"]
    assert told["diff"]["after"] == "a/gpu-1-0: drain\nb/gpu-1-0: drain\n"
    assert router.commands == []
    assert not router.state_file.exists()


def test_a_host_is_all_its_replicas_in_every_backend_and_no_other_host(routed):
    router, run = routed
    told = run(hosts=["gpu-1"], state="drain", wait=False)
    assert sorted(told["servers"]) == ["a/gpu-1-0", "a/gpu-1-1", "b/gpu-1-0"]
    assert router.servers["a/gpu-11-0"][0] == "ready"


def test_what_is_left_after_the_time_has_a_finding(routed):
    router, run = routed
    router.servers["a/gpu-1-0"][1:] = [1000, 2]
    told = run(deployment="a", servers=["gpu-1-0"], state="drain", timeout=0)
    assert told["finished"] is False
    assert told["queued"] == 2
    assert told["findings"][0]["code"] == "ROUTER-DRAIN-TIMEOUT"
    assert router.servers["a/gpu-1-0"][0] == "drain"


def test_a_server_comes_back_and_its_saved_state_goes(routed):
    router, run = routed
    run(deployment="a", servers=["gpu-1-0"], state="drain")
    told = run(deployment="a", servers=["gpu-1-0"], state="ready")
    assert told["servers"]["a/gpu-1-0"]["up"]
    assert router.servers["a/gpu-1-0"][0] == "ready"
    assert "gpu-1-0" not in router.state_file.read_text()


def test_looking_changes_nothing(routed):
    router, run = routed
    told = run()
    assert told["changed"] is False
    assert told["sessions"] == 3
    assert router.commands == []


def test_a_server_that_is_not_there_is_named(routed):
    _router, run = routed
    told = run(deployment="a", servers=["gpu-9-0"], state="drain")
    assert told["failed"]
    assert "ROUTER-SERVER-UNKNOWN: backend a: has no gpu-9-0; it has a/gpu-1-0" in told["msg"]
    left = run(deployment="a", servers=["gpu-9-0"], state="drain", missing="ignore")
    assert left["changed"] is False
    assert left["finished"]


def test_a_router_that_is_down_is_named(routed, tmp_path):
    _router, run = routed
    told = run(socket=str(tmp_path / "none"), state="drain")
    assert "ROUTER-SOCKET" in told["msg"]
    assert "remedy" in told["msg"]


def test_a_router_that_hangs_is_not_waited_for(routed, tmp_path, monkeypatch):
    _router, run = routed
    with tempfile.TemporaryDirectory(prefix="apiary-") as short, socket.socket(socket.AF_UNIX) as s:
        s.bind(f"{short}/s")
        s.listen()
        monkeypatch.setattr(router_servers.haproxy.ask, "__defaults__", ("", 0.1))
        assert "ROUTER-SOCKET" in run(socket=f"{short}/s")["msg"]
