# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Probing over SSH, against servers of paramiko in this process."""

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import threading

import jsonschema
import paramiko
import pytest

from apiary.app.cli import main
from apiary.app.schemas import schema
from apiary.host.ssh import probe as ssh
from support.host.ssh_server import BOUND, canned, key


def test_a_host_runs_the_collector(lab):
    lab.server("gpu-001")
    (probed,) = lab.probe("gpu-001")
    assert probed.failure is None
    assert probed.host == "gpu-001"
    jsonschema.validate(probed.bundle, schema("evidence"))


def test_an_unknown_host_key_is_refused(lab):
    lab.server("gpu-001", known=False)
    found = lab.finding("gpu-001")
    assert (found.code, found.subject) == ("PROBE-HOST-KEY", "gpu-001")
    assert "SHA256:" in found.message
    assert str(lab.known) in found.message


@pytest.mark.parametrize("value", ["no", "accept-new"])
def test_strict_checking_stays_whatever_ssh_config_says(lab, value):
    server = lab.server("gpu-001", known=False, config=f" StrictHostKeyChecking {value}\n")
    found = lab.finding("gpu-001")
    assert found.code == "PROBE-HOST-KEY"
    assert f"StrictHostKeyChecking {value} is not followed" in found.message
    assert server.logins == []


def test_a_changed_host_key_is_refused_before_any_login(lab, tmp_path):
    server = lab.server("gpu-001")
    server.host_key = key(tmp_path / "other")
    found = lab.finding("gpu-001")
    assert found.code == "PROBE-HOST-KEY"
    assert f"not the known one of {lab.known}:1" in found.message
    assert server.logins == []


def test_a_corrupt_line_of_known_hosts_hurts_only_its_host(lab):
    server, _good = lab.server("gpu-001", known=False), lab.server("gpu-002", answer=canned(b"{}"))
    with lab.known.open("a") as file:
        print(f"[127.0.0.1]:{server.port} ssh-ed25519 AAAA!not-base64", file=file)
    bad, good = lab.probe("gpu-001", "gpu-002")
    assert good.bundle == {}
    (found,) = bad.failure.findings
    assert found.code == "PROBE-HOST-KEY"
    assert f"{lab.known}:2 cannot be read" in found.message


@pytest.mark.parametrize("kind", ["hashed", "wildcard", "alias", "second file", "global"])
def test_a_known_key_is_found(lab, tmp_path, kind):
    server = lab.server("gpu-001", known=False, answer=canned(b"{}"))
    name = f"[127.0.0.1]:{server.port}"
    written = {
        "hashed": paramiko.HostKeys.hash_host(name),
        "wildcard": f"elsewhere,[127.0.0.?]:{str(server.port)[:-1]}*",
        "alias": "bee",
    }.get(kind, name)
    config = {
        "alias": "HostKeyAlias bee",
        "second file": f'UserKnownHostsFile /nonexistent "{tmp_path}/more"',
        "global": f"GlobalKnownHostsFile {tmp_path}/more",
    }.get(kind)
    file = tmp_path / "more" if kind in ("second file", "global") else lab.known
    file.write_text(f"{written} {server.host_key.get_name()} {server.host_key.get_base64()}\n")
    if config:
        lab.config.write_text(f"{lab.config.read_text()} {config}\n")
    assert lab.probe("gpu-001")[0].bundle == {}


@pytest.mark.parametrize("spoil", ["@revoked ", "!"])
def test_a_key_that_known_hosts_takes_back_is_refused(lab, spoil):
    server = lab.server("gpu-001")
    line = lab.known.read_text().strip()
    if spoil == "!":
        lab.known.write_text(f"*,!{line}\n")
    else:
        lab.known.write_text(f"{line}\n{spoil}{line.replace(line.split()[0], '*')}\n")
    assert lab.finding("gpu-001").code == "PROBE-HOST-KEY"
    assert server.logins == []


def test_only_the_given_known_hosts_count(lab, tmp_path):
    lab.server("gpu-001")
    (tmp_path / "empty").write_text("")
    assert lab.finding("gpu-001", known_hosts=f"{tmp_path}/empty").code == "PROBE-HOST-KEY"


@pytest.mark.parametrize("option", ["identity", "known_hosts"])
def test_a_file_that_was_given_and_is_missing_is_one_finding(lab, option):
    lab.server("gpu-001"), lab.server("gpu-002")
    results = lab.probe("gpu-001", "gpu-002", **{option: "/nonexistent/file"})
    (failure,) = ssh.failures(results)
    assert [(f.code, f.subject) for f in failure.findings] == [
        ("FILE-UNREADABLE", "/nonexistent/file")
    ]


def test_a_refused_login_says_what_was_tried(lab, tmp_path):
    server = lab.server("gpu-001", config=" User bee\n")
    server.accepted = []
    found = lab.finding("gpu-001")
    assert (found.code, found.subject) == ("PROBE-AUTH", "gpu-001")
    assert "login as bee refused: 1 keys refused" in found.message


def test_a_host_that_takes_no_keys_says_what_it_takes(lab):
    lab.server("gpu-001", methods="password")
    found = lab.finding("gpu-001")
    assert found.code == "PROBE-AUTH"
    assert "only password" in found.message


@pytest.mark.parametrize(
    ("password", "mode", "said"),
    [
        ("secret", 0o600, "is encrypted and no agent holds it"),
        (None, 0o644, "is ignored: others may read it"),
    ],
)
def test_a_key_that_cannot_be_used_is_named(lab, tmp_path, password, mode, said):
    server = lab.server("gpu-001")
    server.accepted = [key(tmp_path / "own", password, mode)]
    found = lab.finding("gpu-001", identity=str(tmp_path / "own"))
    assert found.code == "PROBE-AUTH"
    assert f"{tmp_path}/own {said}" in found.message


def test_a_missing_identity_of_ssh_config_is_skipped(lab):
    lab.server(
        "gpu-001",
        answer=canned(b"{}"),
        config=" IdentityFile ~/.ssh/gone\n IdentityFile ~/.ssh/id_ed25519\n",
    )
    assert lab.probe("gpu-001")[0].bundle == {}


@pytest.fixture
def agent(lab, tmp_path, monkeypatch):
    """A real agent that holds a key of its own."""
    program = shutil.which("ssh-agent")
    if not program:
        pytest.skip("needs ssh-agent")
    where = f"{tmp_path}/agent"
    printed = subprocess.run([program, "-s", "-a", where], capture_output=True, check=True).stdout
    monkeypatch.setenv("SSH_AUTH_SOCK", where)
    held = key(tmp_path / "held")
    subprocess.run(["ssh-add", "-q", tmp_path / "held"], check=True)
    (tmp_path / "held").unlink()
    yield held
    os.kill(int(printed.split(b"SSH_AGENT_PID=")[1].split(b";")[0]), 15)


@pytest.mark.parametrize(
    ("config", "logged_in"),
    [
        ("", True),
        (" IdentityAgent none\n", False),
        (" IdentitiesOnly yes\n", False),
        (" IdentitiesOnly yes\n IdentityFile {tmp_path}/held\n", True),
        (" IdentityAgent {tmp_path}/agent\n", True),
    ],
)
def test_the_agent_is_asked_as_ssh_config_says(lab, agent, tmp_path, config, logged_in):
    text = config.format(tmp_path=tmp_path)
    lab.server("gpu-001", answer=canned(b"{}"), config=text).accepted = [agent]
    (probed,) = lab.probe("gpu-001")
    assert (probed.bundle == {}) == logged_in
    if not logged_in:
        assert probed.failure.findings[0].code == "PROBE-AUTH"


def test_jumps_go_through_every_hop_in_order_with_its_own_settings(lab):
    first = lab.server("first", config=" User one\n")
    second = lab.server("second", config=" User two\n ProxyJump nowhere\n")
    last = lab.server("gpu-001", config=" ProxyJump first,ann@second\n", answer=canned(b"{}"))
    assert lab.probe("bob@gpu-001")[0].bundle == {}
    assert first.forwarded == [("127.0.0.1", second.port)]
    assert second.forwarded == [("127.0.0.1", last.port)]
    assert [set(server.logins) for server in (first, second, last)] == [{"one"}, {"ann"}, {"bob"}]


def test_a_jump_host_must_be_known_as_well(lab):
    lab.server("first", known=False)
    lab.server("gpu-001", config=" ProxyJump first\n")
    found = lab.finding("gpu-001")
    assert (found.code, found.subject) == ("PROBE-HOST-KEY", "gpu-001")
    assert found.message.startswith("jump host first: ")


def test_a_jump_host_that_forwards_nothing_is_named(lab):
    lab.server("first", forwards=False)
    lab.server("gpu-001", config=" ProxyJump first\n")
    found = lab.finding("gpu-001")
    assert found.code == "PROBE-UNREACHABLE"
    assert "jump host first" in found.message


def test_jumps_in_a_circle_or_without_end_are_refused(lab):
    chain = "".join(f"Host h{hop}\n ProxyJump h{hop + 1}\n" for hop in range(12))
    lab.config.write_text(f"Host loop\n ProxyJump pool\nHost pool\n ProxyJump loop\n{chain}")
    circle, endless = lab.probe("loop", "h0")
    assert circle.failure.findings[0].code == "PROBE-CONFIG"
    assert circle.failure.findings[0].message.partition(";")[0].endswith(": loop → pool → loop")
    assert "more than 8" in endless.failure.findings[0].message


def test_a_proxy_command_carries_the_connection(lab, tmp_path):
    program = tmp_path / "carry.py"
    program.write_text(
        "import os, select, socket, sys\n"
        "s = socket.create_connection((sys.argv[1], int(sys.argv[2])))\n"
        "while True:\n"
        "    ready, _, _ = select.select([0, s], [], [])\n"
        "    data = os.read(0, 65536) if 0 in ready else s.recv(65536)\n"
        "    if not data: break\n"
        "    s.sendall(data) if 0 in ready else os.write(1, data)\n"
    )
    config = f" ProxyCommand {sys.executable} {program} 127.0.0.1 %p 2>/dev/null\n"
    lab.server("gpu-001", answer=canned(b"{}"), config=config)
    assert lab.probe("gpu-001")[0].bundle == {}


def test_a_proxy_command_that_fails_says_why(lab):
    lab.server("gpu-001", config=" ProxyCommand sh -c 'echo no way to %h >&2; exit 1'\n")
    found = lab.finding("gpu-001")
    assert found.code == "PROBE-UNREACHABLE"
    assert found.message.endswith("no way to 127.0.0.1")


@pytest.mark.parametrize(
    ("answer", "reads", "said"),
    [
        (canned(b"Welcome!\n"), True, "printed no JSON object: Welcome!"),
        (canned(b"[]"), True, "printed no JSON object: []"),
        (
            canned(b"", b"sh: 1: python3: not found\n", 127),
            False,
            "ended with status 127: sh: 1: python3: not found",
        ),
        (canned(b"", b"Traceback\nOSError: broken\n", 1), True, "status 1: OSError: broken"),
    ],
)
def test_a_collector_that_fails_says_why(lab, monkeypatch, answer, reads, said):
    # More than a channel holds: who does not read it closes while it is being sent.
    monkeypatch.setattr(ssh, "collector_program", lambda: b"#" * (4 << 20))
    lab.server("gpu-001", answer=answer, reads=reads)
    found = lab.finding("gpu-001")
    assert (found.code, found.subject) == ("PROBE-COLLECTOR", "gpu-001")
    assert said in found.message


def test_a_collector_that_never_ends_is_left(lab):
    lab.server("gpu-001", answer=canned(b"{", b"still busy", None))
    found = lab.finding("gpu-001", collect_timeout=0.5)
    assert found.code == "PROBE-COLLECTOR"
    assert "did not end within 0.5 s" in found.message


def test_a_host_that_starts_nothing_is_left(lab):
    server = lab.server("gpu-001")
    server.ready.clear()
    found = lab.finding("gpu-001", timeout=0.5)
    server.ready.set()
    assert found.code == "PROBE-UNREACHABLE"
    assert "the connection broke" in found.message


def test_much_on_stderr_does_not_block(lab):
    lab.server("gpu-001", answer=canned(b"{}", b"noise\n" * 1_000_000))
    assert lab.probe("gpu-001")[0].bundle == {}


@pytest.mark.parametrize("greeting", [b"", b"SSH-2.0-slow\r\n"])
def test_a_port_where_nobody_speaks_ssh_is_given_up(lab, greeting):
    with socket.create_server(("127.0.0.1", 0)) as listener, contextlib.ExitStack() as stack:

        def greet():
            client = stack.enter_context(listener.accept()[0])
            client.sendall(greeting)

        thread = threading.Thread(target=greet)
        thread.start()
        found = lab.finding("127.0.0.1", port=listener.getsockname()[1], timeout=0.5)
        thread.join(BOUND)
    assert (found.code, found.subject) == ("PROBE-UNREACHABLE", "127.0.0.1")


def test_bad_hosts_beside_a_good_one(lab, monkeypatch):
    lab.server("gpu-001", answer=canned(b"{}"))
    lab.server("broken", answer=canned(b"{}"))
    lab.config.write_text(f"{lab.config.read_text()}Host typo\n BindInterface eth1\n")
    connect = ssh.Connector.connect

    def unforeseen(self, target, *rest):
        if target.host == "broken":
            raise ZeroDivisionError("division by zero")
        return connect(self, target, *rest)

    monkeypatch.setattr(ssh.Connector, "connect", unforeseen)
    good, *bad = lab.probe("gpu-001", "typo", "broken", "no host")
    assert good.bundle == {}
    found = [finding for probed in bad for finding in probed.failure.findings]
    assert [(finding.code, finding.subject) for finding in found] == [
        ("PROBE-CONFIG", "typo"),
        ("PROBE-FAILED", "broken"),
        ("PROBE-TARGET", "no host"),
    ]
    assert "bindinterface eth1" in found[0].message
    assert "ZeroDivisionError: division by zero" in found[1].message


def test_an_unreadable_ssh_config_is_one_finding_for_all(lab):
    lab.config.write_text("Host gpu-001\nPort\n")
    (failure,) = ssh.failures(lab.probe("gpu-001", "gpu-002"))
    (found,) = failure.findings
    assert (found.code, found.subject) == ("PROBE-CONFIG", f"{lab.config}:2")


def test_the_command_writes_a_file_for_each_host(lab, tmp_path, monkeypatch, capsys):
    server = lab.server("gpu-001")
    monkeypatch.chdir(tmp_path)
    assert main(["probe", f"ssh://bee@127.0.0.1:{server.port}"]) == 0
    assert server.logins[-1] == "bee"
    assert (tmp_path / "evidence/127.0.0.1.json").is_file()


def test_hosts_of_one_name_keep_apart():
    assert ssh.labels(["a@h:1", "h:2", "a@other"]) == {
        "a@h:1": "a@h:1",
        "h:2": "h:2",
        "a@other": "other",
    }
