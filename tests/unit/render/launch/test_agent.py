# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What routers are told of a replica, and when; the supervisor as a process."""

import contextlib
import os
import signal
import socket
import threading
import time

import pytest
from ansible_collections.apiary.instinct.plugins.module_utils.finding import ApiaryError
from ansible_collections.apiary.instinct.plugins.plugin_utils.render.host.agent import Agent

from support.waiting import await_true

from .conftest import free_port
from .test_process import quiet_complete


def told(port):
    """What the agent says; None where nobody listens."""
    try:
        with socket.create_connection(("127.0.0.1", port), 5) as asking:
            return asking.recv(100).decode()
    except OSError:
        return None


def test_down_while_it_starts_up_while_it_serves_down_before_the_engine_knows(supervise):
    port = free_port()
    replica = supervise(
        "--shutdown-timeout",
        "60",
        start_seconds=1,
        drains=True,
        spec={"agent_port": port, "drain_timeout_seconds": 20},
        change={"agent": {"interval_seconds": 2, "margin_seconds": 1}},
    )
    await_true(lambda: told(port) == "down\n")
    replica.message("READY=1")
    assert told(port) == "up\n"
    replica.stop()
    stopped = time.monotonic()
    await_true(lambda: told(port) != "up\n")
    assert told(port) == "down\n"
    # The routers that have not heard it yet still get answers.
    assert quiet_complete(replica.port, 1) == 200
    assert replica.ended() == 0
    assert time.monotonic() - stopped >= 3
    assert told(port) is None


def test_a_stop_that_no_router_cares_about_waits_for_none(supervise):
    replica = supervise(
        spec={"agent_port": free_port()},
        change={"agent": {"interval_seconds": 600, "margin_seconds": 1}},
    )
    replica.message("READY=1")
    replica.stop()
    assert replica.ended() == 0


def test_a_core_that_dies_is_told_at_once(supervise):
    port, name = free_port(), "fake-core"
    replica = supervise(
        core_name=name,
        outlives=600,
        spec={"agent_port": port},
        change={"core": {"names": [name], "grace_seconds": 6}},
    )
    replica.message("READY=1")
    assert told(port) == "up\n"
    os.kill(replica.core(), signal.SIGKILL)
    await_true(lambda: told(port) == "down\n")
    assert replica.process.poll() is None
    assert replica.ended() == 1


def test_a_hang_is_told_before_the_engine_ends(supervise):
    port = free_port()
    replica = supervise(
        spec={"agent_port": port, "hang_seconds": 0.5}, change={"core": {"grace_seconds": 3}}
    )
    replica.message("READY=1")
    os.kill(replica.core(), signal.SIGSTOP)
    said = []
    while (line := told(port)) is not None:
        said.append(line)
        time.sleep(0.02)
    assert replica.ended() == 1
    assert "REPLICA-HUNG" in replica.error
    assert said[-1] == "down\n"


def test_a_taken_agent_port_is_refused_for_now(supervise):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        replica = supervise(spec={"agent_port": port})
        assert replica.ended() == 75
    assert "REPLICA-PORT-BUSY" in replica.error
    assert str(port) in replica.error


@pytest.mark.parametrize("address", ["127.0.0.1", "0.0.0.0", "::", ""])
def test_wherever_the_engine_listens_the_agent_does(make_context, address):
    port = free_port()
    agent = Agent(make_context(listen_address=address, agent_port=port))
    # The place is taken; nobody answers, which HAProxy counts for nothing.
    assert told(port) is None
    agent.start()
    agent.up()
    assert told(port) == "up\n"
    agent.end()
    with pytest.raises(ApiaryError, match="cannot listen"):
        Agent(make_context(listen_address="192.0.2.1", agent_port=port))


def test_without_a_port_it_does_nothing(make_context):
    agent = Agent(make_context())
    agent.start()
    agent.up()
    assert agent.down() == 0
    agent.end()


def test_clients_that_talk_or_say_nothing_hold_nobody_up(make_context):
    port = free_port()
    agent = Agent(make_context(agent_port=port))
    agent.start()
    agent.up()
    with contextlib.ExitStack() as stack:
        for _number in range(30):
            idle = stack.enter_context(socket.create_connection(("127.0.0.1", port), 5))
            with contextlib.suppress(OSError):
                idle.sendall(b"x" * 100_000)
        assert told(port) == "up\n"
    assert agent.down() > 0
    agent.end()
    assert threading.active_count() < 10
