# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What ssh_config says of a host."""

import socket

import pytest
from ansible_collections.apiary.instinct.plugins.plugin_utils.findings import ApiaryError

from apiary.host.ssh.config import SshOptions, Target, parse_target, settings_of


@pytest.fixture
def home(tmp_path, monkeypatch):
    (tmp_path / ".ssh").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("SSH_AUTH_SOCK", "/run/agent")
    return tmp_path / ".ssh"


@pytest.fixture
def options(home):
    return SshOptions(config=str(home / "config"))


def settings(home, options, text, target="gpu-001"):
    (home / "config").write_text(text)
    return settings_of(parse_target(target), options)


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
            "UserKnownHostsFile none\nGlobalKnownHostsFile /a ~/b /d",
            {"known_hosts": ("/a", "{home}/b", "/d")},
        ),
        ("IdentityFile %d/%n\nIdentityFile /k%%", {"identities": ("{home}/gpu-001", "/k%")}),
        ("IdentityFile ${HOME}/x", {"identities": ("{home}/x",)}),
        ("IdentityFile none", {"identities": ()}),
        ("IdentitiesOnly yes", {"identities_only": True}),
        ("IdentityAgent none", {"agent": None}),
        ("IdentityAgent /run/%n", {"agent": "/run/gpu-001"}),
        ("IdentityAgent $SSH_AUTH_SOCK", {"agent": "/run/agent"}),
        ("StrictHostKeyChecking no", {"checking": "no"}),
        ("CertificateFile none\nKnownHostsCommand none", {"command": None}),
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

    found = vars(settings(home, options, text.replace("{home}", str(home.parent))))
    assert {key: found[key] for key in expected} == {k: filled(v) for k, v in expected.items()}


def test_what_the_caller_says_comes_first_and_match_sees_it(home, options):
    text = "Match user ann\n Port 5\nMatch all\n User bob\n Port 6\n"
    found = settings(home, options, text, "ann@gpu-001")
    assert (found.user, found.port) == ("ann", 5)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("HostName $(id)", "is no host name"),
        ("User -x", "is no user name"),
        ("ProxyCommand nc %Z", "%Z is not supported"),
        ("RevokedHostKeys /etc/ssh/revoked", "is not supported"),
        ("BindInterface eth1", "is not supported"),
        ("KnownHostsCommand /bin/keys %H", "is not supported"),
        ("CertificateFile ~/.ssh/bee-cert.pub", "is not supported"),
    ],
)
def test_what_cannot_be_honoured_is_refused_for_its_host_only(home, options, text, message):
    lines = f"Host gpu-001\n  {text}\n"
    finding = refusal(lambda: settings(home, options, lines))
    assert (finding.code, finding.subject) == ("PROBE-CONFIG", "gpu-001")
    assert message in finding.message
    assert text.partition(" ")[0].lower() in finding.message
    assert settings(home, options, lines, "gpu-002").port == 22


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("Port 1\nUser", 2),
        ("Host 'x", 1),
        ("Match tagget a", 1),
        ("Match host", 1),
        ("Port 70000", 1),
        ("AddressFamily ipx", 1),
        ("ProxyJump a,,b", 1),
        ("NoSuchKeyword 1", 1),
    ],
)
def test_a_line_that_cannot_be_read_is_named(home, options, text, line):
    finding = refusal(lambda: settings(home, options, text))
    assert (finding.code, finding.subject) == ("PROBE-CONFIG", f"{home}/config:{line}")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("-o", "Port abc"), "Bad port 'abc'"),
        (("-o", "IdentityFile"), 'no argument after keyword "identityfile"'),
        (("-o",), "no argument after keyword"),
        (("-Z",), "unknown option -- Z"),
        (("surprise",), "surprise: 'surprise' is no option of ssh"),
    ],
)
def test_an_argument_of_an_inventory_that_cannot_be_read_is_named(
    home, options, arguments, message
):
    (home / "config").touch()
    finding = refusal(lambda: settings_of(Target("gpu-001"), options, arguments))
    assert (finding.code, finding.subject) == ("PROBE-CONFIG", "gpu-001")
    assert message in finding.message


def test_a_file_that_is_not_there_is_refused(home):
    finding = refusal(lambda: settings_of(Target("h"), SshOptions(config="/no/such/file")))
    assert (finding.code, finding.subject) == ("PROBE-CONFIG", "h")
    assert "/no/such/file" in finding.message


def test_a_machine_without_openssh_is_told(home, options, monkeypatch):
    monkeypatch.setenv("PATH", "/nonexistent")
    finding = refusal(lambda: settings_of(Target("h"), options))
    assert (finding.code, finding.subject) == ("PROBE-OPENSSH", "ssh")
    assert "openssh-client" in finding.remedy


def test_includes_in_a_circle_are_refused(home, options):
    text = f"Include {home}/config\n"
    assert refusal(lambda: settings(home, options, text)).code == "PROBE-CONFIG"


def test_what_the_inventory_says_comes_before_ssh_config(home, options):
    (home / "config").write_text("Port 7\nUser root\n")
    found = settings_of(Target("gpu-001"), options, ("-vC", "-oUser=bee", "-L", "1:h:2"))
    assert (found.user, found.port) == ("bee", 7)
