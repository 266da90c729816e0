# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""HAProxy's tables, as versions 2.4 to 3.x print them, and the state that outlives a process."""

import pytest
from ansible_collections.apiary.instinct.plugins.module_utils.router import haproxy
from hypothesis import given
from hypothesis import strategies as st

COLUMNS = (
    "be_id be_name srv_id srv_name srv_addr srv_op_state srv_admin_state srv_uweight srv_iweight "
    "srv_time_since_last_change srv_check_status srv_check_result srv_check_health srv_check_state "
    "srv_agent_state bk_f_forced_id srv_f_forced_id srv_fqdn srv_port srvrecord"
)
# 2.4 has the columns of TLS, checks and agents; 3.x may add more.
LATER = {
    "2.0": ("", ""),
    "2.6": (
        " srv_use_ssl srv_check_port srv_check_addr srv_agent_addr srv_agent_port",
        " 0 0 - - 0",
    ),
    "3.x": (
        " srv_use_ssl srv_check_port srv_check_addr srv_agent_addr srv_agent_port new",
        " 0 0 - - 0 -",
    ),
}


def table(version="2.6", **admin):
    """What `show servers state` prints of servers of backend `b`, by their admin bits."""
    head, tail = LATER[version]
    rows = "".join(
        f"4 b {number} {name} 10.0.0.{number} 2 {bits} 100 100 29 15 3 4 6 0 0 1 - 800{number} -"
        f"{tail}\n"
        for number, (name, bits) in enumerate(admin.items(), 1)
    )
    return f"1\n# {COLUMNS}{head}\n{rows}\n"


def stat(**servers):
    """What `show stat` prints of these servers: status, sessions and queue of each."""
    head = "# pxname,svname,qcur,qmax,scur,smax,slim,stot,status,weight,\n"
    rows = "".join(
        f"b,{name},{queued},9,{sessions},9,,9,{status},100,\n"
        for name, (status, sessions, queued) in servers.items()
    )
    return head + "in,FRONTEND,,,3,9,4000,9,OPEN,,\n" + rows + "b,BACKEND,0,9,0,9,400,9,UP,200,\n\n"


def asked(**answers):
    told = {"show servers state": answers["state"], "show stat": answers["stat"]}
    return lambda command: told[command]


@pytest.mark.parametrize("version", LATER)
def test_servers_are_read_whatever_columns_the_version_has(version):
    states = haproxy.server_states(
        asked(
            state=table(version, one=0, two=8, three=16, four=1, five=2, six=0x20),
            stat=stat(one=("UP 1/2", 3, 2), two=("DRAIN", 1, 0), three=("DRAIN", 0, 0)),
        )
    )
    told = {one.name: (one.wanted, one.inherited, one.sessions, one.queued) for one in states}
    assert told == {
        "one": ("ready", False, 3, 2),
        "two": ("drain", False, 1, 0),
        "three": ("drain", True, 0, 0),
        "four": ("maint", False, 0, 0),
        "five": ("maint", True, 0, 0),
        "six": ("maint", True, 0, 0),
    }
    assert [one.up for one in states] == [True, False, False, False, False, False]


def test_an_answer_that_is_no_table_is_told():
    with pytest.raises(ConnectionError, match="Permission denied"):
        haproxy.server_states(asked(state="Permission denied\n", stat=""))


def test_no_servers_are_no_error():
    assert haproxy.server_states(asked(state=table(), stat=stat())) == []


CONFIGURATION = """
global
    stats socket /run/haproxy/admin.sock mode 660
frontend apiary-in-b
    bind *:8080
backend b
    default-server check inter 1000ms
    server one 10.0.0.1:9001 id 1 weight 100
    server two [2001:db8::2]:8002 id 2 ssl verify required
frontend other
    server three 10.0.0.1:1
listen c
    server one gpu-001:7000
"""


def test_ports_are_read_from_backends_only():
    assert haproxy.configured_ports(CONFIGURATION) == {
        ("b", "one"): ("9001", "0"),
        ("b", "two"): ("8002", "1"),
        ("c", "one"): ("7000", "0"),
    }


def test_a_kept_state_has_the_ports_of_the_configuration_and_none_that_is_gone():
    text = table(one=8, two=0, three=8)
    kept = haproxy.parse_state(
        haproxy.kept_state(text, haproxy.configured_ports(CONFIGURATION), forced_only=False)
    )
    columns = ("srv_name", "srv_port", "srv_use_ssl")
    assert [tuple(row.get(name) for name in columns) for row in kept] == [
        ("one", "9001", "0"),
        ("two", "8002", "1"),
    ]


def test_of_a_stopped_router_only_what_was_forced_is_kept():
    ports = {("b", name): ("1", "0") for name in ("one", "two", "three", "four")}
    text = haproxy.kept_state(table(one=8, two=0, three=1, four=16), ports, forced_only=True)
    assert text.startswith("1\n# be_id")
    assert [row["srv_name"] for row in haproxy.parse_state(text)] == ["one", "three"]


@given(
    st.lists(st.tuples(st.from_regex(r"[a-z0-9.-]{1,12}", fullmatch=True), st.integers(0, 127))),
    st.booleans(),
)
def test_keeping_a_state_twice_changes_nothing_more(servers, forced_only):
    ports = {("b", name): ("8000", "1") for name, _bits in servers[::2]}
    once = haproxy.kept_state(table(**dict(servers)), ports, forced_only)
    assert haproxy.kept_state(once, ports, forced_only) == once
    assert {row["srv_name"] for row in haproxy.parse_state(once)} <= {name for _b, name in ports}


@given(st.text(max_size=300))
def test_whatever_is_in_a_state_file_is_read_or_left_out(text):
    assert haproxy.kept_state(text, {}, forced_only=False).startswith("1\n")
    haproxy.parse_stat(text)


def test_a_socket_that_is_not_there_is_told(tmp_path):
    with pytest.raises(ConnectionError, match="No such file"):
        haproxy.ask("show info", str(tmp_path / "none"))


def test_states_are_saved_in_one_step_and_only_when_they_differ(tmp_path):
    (tmp_path / "haproxy.cfg").write_text(CONFIGURATION)
    state = tmp_path / "server-state"
    arguments = {"configuration": str(tmp_path / "haproxy.cfg"), "state_file": str(state)}
    haproxy.save(lambda _command: table(one=8, two=0), True, **arguments)
    before = state.stat()
    assert " one " in state.read_text()
    assert " two " not in state.read_text()
    haproxy.save(lambda _command: table(one=8, two=0), True, **arguments)
    assert state.stat().st_ino == before.st_ino
    with pytest.raises(ConnectionError):
        haproxy.save(lambda _command: "Unknown command\n", True, **arguments)
    assert state.stat().st_ino == before.st_ino
    assert sorted(path.name for path in tmp_path.iterdir()) == ["haproxy.cfg", "server-state"]


def test_the_program_refuses_what_it_does_not_know(capsys):
    assert haproxy.main(["drain"]) == 2
    assert "usage" in capsys.readouterr().err


def test_the_program_says_why_it_kept_nothing(capsys, monkeypatch):
    monkeypatch.setattr(haproxy.ask, "__defaults__", ("/nonexistent/admin.sock", 1.0))
    monkeypatch.setattr(haproxy, "STATE_FILE", "/nonexistent/state")
    monkeypatch.setattr(haproxy.save, "__defaults__", ("/nonexistent/cfg", "/nonexistent/state"))
    assert haproxy.main(["save"]) == 1
    assert "ROUTER-STATE" in capsys.readouterr().err
    assert haproxy.main(["check"]) == 1
