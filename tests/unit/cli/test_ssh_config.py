# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What ssh_config says of a host."""

import socket

import pytest
from ansible_collections.apiary.instinct.plugins.plugin_utils.findings import ApiaryError

from apiary.host.ssh_config import SshOptions, Target, load_config, parse_target, settings_of


@pytest.fixture
def home(tmp_path, monkeypatch):
    (tmp_path / ".ssh").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("SSH_AUTH_SOCK", "/run/agent")
    return tmp_path / ".ssh"


@pytest.fixture
def options(home):
    return SshOptions(system_config=str(home / "system"))


def settings(home, options, text, target="gpu-001"):
    (home / "config").write_text(text)
    return settings_of(parse_target(target), load_config(options), options)


def refusal(action):
    with pytest.raises(ApiaryError) as caught:
        action()
    (finding,) = caught.value.findings
    return finding


@pytest.mark.parametrize(
    ("text", "target"),
    [
        ("gpu-001", Target("gpu-001")),
        ("bee@gpu-001", Target("gpu-001", "bee")),
        ("bee@realm@gpu-001", Target("gpu-001", "bee@realm")),
        ("gpu-001:2222", Target("gpu-001", None, 2222)),
        ("ssh://bee@gpu-001:2222/", Target("gpu-001", "bee", 2222)),
        ("::1", Target("::1")),
        ("bee@[fe80::1%eth0]:22", Target("fe80::1%eth0", "bee", 22)),
    ],
)
def test_a_host_is_read(text, target):
    assert parse_target(text) == target


@pytest.mark.parametrize(
    "text",
    [
        "",
        "@h",
        "-oProxyCommand=x",
        "a b",
        "h:abc",
        "h:0",
        "h:65536",
        "h/x",
        "../x",
        "ssh://",
        "$(x)",
    ],
)
def test_what_is_no_host_is_refused(text):
    assert refusal(lambda: parse_target(text)).code == "PROBE-TARGET"


@pytest.mark.parametrize(
    "target", [Target("h"), Target("h", "u"), Target("h", "u", 1), Target("::1", None, 2)]
)
def test_a_host_reads_as_it_prints(target):
    assert parse_target(str(target)) == target


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Port 2222 # ours", {"port": 2222, "host_key_name": "[gpu-001]:2222"}),
        ("HostName %h.Example", {"hostname": "gpu-001.example"}),
        ("HostKeyAlias bee\nPort 3", {"host_key_name": "bee"}),
        (
            "UserKnownHostsFile none\nGlobalKnownHostsFile /a '/b c'",
            {"known_hosts": ("/a", "/b c")},
        ),
        ("IdentityFile %d/%n\nIdentityFile /k%%", {"identities": ("{home}/gpu-001", "/k%")}),
        ("IdentityFile none", {"identities": ()}),
        ("IdentitiesOnly yes", {"identities_only": True}),
        ("IdentityAgent none", {"agent": None}),
        ("IdentityAgent ~/a", {"agent": "{home}/a"}),
        ("IdentityAgent $SSH_AUTH_SOCK", {"agent": "/run/agent"}),
        ("StrictHostKeyChecking no", {"checking": "no"}),
        ("AddressFamily inet6", {"family": socket.AF_INET6}),
        ("BindAddress 10.0.0.1", {"bind": "10.0.0.1"}),
        ("RevokedHostKeys none\nProxyUseFdpass no", {"command": None}),
        ("ProxyJump a,b@c:2,ssh://d", {"jumps": (Target("a"), Target("c", "b", 2), Target("d"))}),
        ("ProxyJump none\nProxyCommand x", {"jumps": (), "command": None}),
        ("ProxyCommand nc %h %p # x\nProxyJump a", {"jumps": (), "command": "nc gpu-001 22 # x"}),
        ("ProxyCommand none\nProxyJump a", {"jumps": (), "command": None}),
        ("ProxyJump a\nProxyCommand x", {"jumps": (Target("a"),), "command": None}),
        ("Match Host gpu-*\nUser bee", {"user": "bee"}),
        ("Match user ann\nPort 5", {"port": 22}),
    ],
)
def test_a_setting_is_honoured(home, options, text, expected):
    def filled(value):
        if isinstance(value, str):
            return value.format(home=home.parent)
        return tuple(map(filled, value)) if isinstance(value, tuple) else value

    found = vars(settings(home, options, text))
    assert {key: found[key] for key in expected} == {k: filled(v) for k, v in expected.items()}


def test_what_the_caller_says_comes_first_and_match_sees_it(home, options):
    text = "Match user ann\n Port 5\nMatch all\n User bob\n Port 6\n"
    found = settings(home, options, text, "ann@gpu-001")
    assert (found.user, found.port) == ("ann", 5)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("Port abc", "is no port"),
        ("Port 70000", "is no port"),
        ("HostName $(id)", "is no host name"),
        ("User -x", "is no user name"),
        ("AddressFamily ipx", "is no address family"),
        ("ProxyJump a,,b", "is no host that SSH could reach"),
        ("ProxyCommand nc %Z", "%Z is not supported"),
        ("IdentityFile ${NO_SUCH_VARIABLE}/x", "is not in the environment"),
        ("RevokedHostKeys /etc/ssh/revoked", "is not supported"),
        ("BindInterface eth1", "is not supported"),
    ],
)
def test_what_cannot_be_honoured_is_refused_for_its_host_only(home, options, text, said):
    text = f"Host gpu-001\n  {text}\n"
    found = refusal(lambda: settings(home, options, text))
    assert (found.code, found.subject) == ("PROBE-CONFIG", "gpu-001")
    assert said in found.message
    assert f"{home}/config:2" in found.message
    assert settings(home, options, text, "gpu-002").port == 22


@pytest.mark.parametrize(
    ("text", "line"),
    [("Port 1\nUser", 2), ("Host 'x", 1), ("Match tagged a", 1), ("Match host", 1), ("=", 1)],
)
def test_a_line_that_cannot_be_read_is_named(home, options, text, line):
    found = refusal(lambda: settings(home, options, text))
    assert (found.code, found.subject) == ("PROBE-CONFIG", f"{home}/config:{line}")


def test_includes_are_read_in_their_place(home, options):
    (home / "a.conf").write_text("Host gpu-001\n User bee\nHost other\n Port 1\n")
    (home / "b.conf").write_text("Port 7\n")
    found = settings(home, options, "Include *.conf missing\nHostKeyAlias hive\n")
    assert (found.user, found.port, found.host_key_name) == ("bee", 7, "hive")


def test_an_include_within_a_block_is_for_that_block(home, options):
    (home / "a.conf").write_text("Port 7\n")
    text = "Host gpu-001\n Include a.conf\n User bee\n"
    assert settings(home, options, text).port == 7
    assert settings(home, options, text, "gpu-002").port == 22


def test_a_block_that_a_block_includes_is_refused(home, options):
    (home / "a.conf").write_text("Host *\n Port 7\n")
    found = refusal(lambda: settings(home, options, "Host gpu-001\n Include a.conf\n"))
    assert (found.code, found.subject) == ("PROBE-CONFIG", f"{home}/a.conf:1")


def test_includes_in_a_circle_are_refused(home, options):
    found = refusal(lambda: settings(home, options, "Include config\n"))
    assert found.code == "PROBE-CONFIG"
    assert "deeper than 16" in found.message


def test_the_systems_ssh_config_comes_last(home, options):
    (home / "system").write_text("Port 7\nUser root\n")
    found = settings(home, options, "Host gpu-001\n User bee\n")
    assert (found.user, found.port) == ("bee", 7)
