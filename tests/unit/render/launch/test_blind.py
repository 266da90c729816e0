# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What nobody may overlook: keys that HTTP can't have, a prober that fails, a deaf manager."""

import socket
import threading

import pytest
from ansible_collections.apiary.instinct.plugins.module_utils.finding import ApiaryError
from ansible_collections.apiary.instinct.plugins.plugin_utils.render.host import output
from ansible_collections.apiary.instinct.plugins.plugin_utils.render.host.client import (
    Answer,
    Client,
    Prober,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.render.host.supervise import (
    Supervisor,
)


@pytest.mark.parametrize("key", ["s3cr3t\rkey", "s3cr3t\n\x85", "s3cr3t\x00key", "s3cr3t€"])
def test_a_key_that_no_header_can_have_is_refused_and_not_shown(supervise, tmp_path, key):
    (tmp_path / "VLLM_API_KEY").write_bytes(key.encode())
    replica = supervise(
        spec={"secrets": ("VLLM_API_KEY",)}, environment={"CREDENTIALS_DIRECTORY": str(tmp_path)}
    )
    assert replica.ended() == 78
    assert "REPLICA-NO-SECRET" in replica.error
    assert "s3cr3t" not in replica.error
    assert "Traceback" not in replica.error


def test_a_key_written_on_windows_works(supervise, tmp_path):
    (tmp_path / "VLLM_API_KEY").write_bytes(b"s3cr3t\r\n")
    replica = supervise(
        key="s3cr3t",
        spec={"secrets": ("VLLM_API_KEY",)},
        environment={"CREDENTIALS_DIRECTORY": str(tmp_path)},
    )
    replica.message("READY=1")


@pytest.mark.parametrize("key", ["s3cr3t\r", "s3cr3t€"])
def test_a_question_that_cannot_be_asked_is_no_answer(make_context, key):
    with socket.create_server(("127.0.0.1", 0)) as server:
        client = Client(make_context(port=server.getsockname()[1]), key)
        answer = client.ask("GET", "/health", 1)
    assert answer.status == 0
    assert answer.body in ("ValueError", "UnicodeEncodeError")


class Broken:
    """A client that fails as nobody thought of."""

    def healthy(self):
        raise RuntimeError("Bearer s3cr3t")


class Lives:
    """An engine that lives."""

    status = None

    def reap(self):
        pass


@pytest.mark.parametrize("headless", [False, True])
def test_a_prober_that_fails_ends_the_replica(make_context, headless):
    context = make_context(headless=headless)
    context.life["start"]["poll_seconds"] = 0
    prober = Prober(context, Broken())
    prober.start()
    prober.join(10)
    with pytest.raises(ApiaryError, match="RuntimeError") as raised:
        Supervisor(context, [])._next(Lives())
    assert raised.value.findings[0].code == "REPLICA-HUNG"
    assert "s3cr3t" not in str(raised.value)


@pytest.mark.parametrize("page", ["vllm:num_requests_running\n", "vllm:num_requests_running x\n"])
def test_metrics_that_nobody_can_read_are_no_answer(make_context, monkeypatch, page):
    client = Client(make_context(), None)
    monkeypatch.setattr(client, "ask", lambda *_words: Answer(200, page))
    assert client.load() is None


@pytest.fixture
def manager(tmp_path):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(str(tmp_path / "notify"))
        listening.settimeout(120)
        yield listening


@pytest.fixture
def notifier(manager, tmp_path, monkeypatch):
    monkeypatch.setattr(output, "PATIENCE_SECONDS", 1)
    made = output.Notifier({"NOTIFY_SOCKET": str(tmp_path / "notify")})
    with made._socket:
        yield made


def everything(manager):
    """All that waits to be read."""
    manager.setblocking(False)
    found = []
    try:
        while True:
            found.append(manager.recv(4096).decode())
    except BlockingIOError:
        manager.setblocking(True)
        return found


def test_ready_arrives_though_the_manager_read_nothing_for_a_while(manager, notifier):
    # More than net.unix.max_dgram_qlen
    for number in range(2000):
        notifier.send(STATUS=number)
    notifier.tell(READY=1)
    assert "READY=1" not in everything(manager)
    notifier.send(WATCHDOG=1)
    assert everything(manager) == ["READY=1", "WATCHDOG=1"]
    notifier.send(WATCHDOG=1)
    assert everything(manager) == ["WATCHDOG=1"]


def test_a_manager_that_reads_late_gets_it_at_once(manager, notifier):
    for number in range(2000):
        notifier.send(STATUS=number)
    read = []
    late = threading.Timer(0.3, lambda: read.extend(everything(manager)))
    late.start()
    notifier.tell(STOPPING=1)
    late.join()
    assert "STOPPING=1" in [*read, *everything(manager)]
