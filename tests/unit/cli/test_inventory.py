# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""`apiary probe --inventory`: who is meant, and by what they are reached."""

import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import jsonschema
import pytest

from apiary.app.cli import main
from apiary.app.inventory import choose
from apiary.app.schemas import schema
from apiary.host.ssh import probe as ssh
from apiary.host.ssh.config import SshOptions
from support.host.ssh_server import BOUND, canned, key

EXAMPLE = str(Path(__file__).parents[3] / "inventory/example")
RACKS = """
[rack1]
gpu-[001:004]
[rack2]
gpu-[005:008]
[gpus:children]
rack1
rack2
"""


@pytest.fixture
def here(tmp_path, monkeypatch):
    """An empty directory to work in, without anybody's Ansible configuration."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in [name for name in os.environ if name.startswith("ANSIBLE_")]:
        monkeypatch.delenv(name)
    return tmp_path


def chosen(*hosts, inventory=RACKS, limit=None, options=None):
    if inventory is not None:
        Path("hosts.ini").write_text(inventory)
    return choose(["hosts.ini"], limit, hosts, options or SshOptions())


def names(found):
    return [one.name for one in found.requests]


def codes(findings):
    return [finding["code"] for finding in findings]


def refused(found):
    return {one.host: one.failure.findings[0] for one in found.refused}


def printed(capsys):
    """The files and findings of a probe with --json."""
    out, err = capsys.readouterr()
    return json.loads(out)["files"] if out else None, json.loads(err)["findings"] if err else []


@pytest.mark.parametrize(
    ("limit", "numbers"),
    [
        (None, "12345678"),
        ("rack1", "1234"),
        ("rack1:!gpu-002", "134"),
        ("gpus:&rack2", "5678"),
        ("gpu-?0*:!rack1", "5678"),
        ("~gpu-00[1-2]", "12"),
        ("rack2[0:1]", "56"),
        ("gpu-001,gpu-008", "18"),
        ("@some.txt", "36"),
    ],
)
def test_a_limit_is_a_pattern_of_ansible(here, limit, numbers):
    Path("some.txt").write_text("gpu-003\ngpu-006\n")
    assert names(chosen(limit=limit)) == [f"gpu-00{number}" for number in numbers]


def test_the_example_has_the_rack_that_the_documentation_names(here):
    found = choose([EXAMPLE], "rack1", (), SshOptions())
    assert names(found) == ["gpu-001", "gpu-002", "gpu-003", "gpu-004"]
    assert {one.target.user for one in found.requests} == {"ansible"}
    assert found.findings == ()


@pytest.mark.parametrize(
    ("hosts", "limit", "expected"),
    [
        (["gpu-002"], None, ["gpu-002"]),
        (["rack1:!gpu-001", "gpu-008"], None, ["gpu-002", "gpu-003", "gpu-004", "gpu-008"]),
        (["gpu-002", "gpu-00*"], "rack1", ["gpu-002", "gpu-001", "gpu-003", "gpu-004"]),
        (["gpu-002", "bee@other"], "rack1", ["gpu-002", "other"]),
        (["localhost"], None, ["localhost"]),
        (["other"], "rack1", ["other"]),
    ],
)
def test_hosts_are_of_the_inventory_or_else_for_ssh(here, hosts, limit, expected):
    assert names(chosen(*hosts, limit=limit)) == expected


def test_a_stranger_with_the_name_of_a_host_keeps_apart_from_it(here):
    found = chosen("gpu-001", "bee@gpu-001")
    assert names(found) == ["gpu-001", "bee@gpu-001"]
    assert found.findings == ()


def test_a_host_that_the_limit_leaves_out_is_not_forgotten(here):
    found = chosen("gpu-001", "gpu-005", limit="rack1")
    assert names(found) == ["gpu-001"]
    (finding,) = refused(found).values()
    assert (finding.code, finding.message) == (
        "PROBE-NO-HOSTS",
        "gpu-005 --limit rack1 leaves none of its 8 hosts",
    )


@pytest.mark.parametrize(
    ("inventory", "arguments", "code", "said"),
    [
        (RACKS, ["--limit", "rack9"], "PROBE-NO-HOSTS", "--limit rack9 leaves none of its 8"),
        (RACKS, ["--limit", "@none"], "PROBE-INVENTORY", "Unable to find limit file"),
        (RACKS, ["gpu-005", "--limit", "rack1"], "PROBE-NO-HOSTS", "gpu-005 --limit rack1"),
        ("", [], "PROBE-NO-HOSTS", "the inventory has no hosts"),
        ("all: [:", [], "PROBE-INVENTORY", "Completely failed to parse inventory source"),
        (None, [], "FILE-UNREADABLE", "No such file"),
        (
            "h vaulted=1\n[all:vars]\nansible_user={{ nobody_says }}\n",
            [],
            "PROBE-VARIABLE",
            "ansible_user: ",
        ),
    ],
)
def test_what_leaves_nobody_is_one_clear_error(here, capsys, inventory, arguments, code, said):
    if inventory is not None:
        Path("hosts.ini").write_text(inventory)
    assert main(["probe", "--inventory", "hosts.ini", *arguments, "--json"]) == 1
    _files, findings = printed(capsys)
    errors = [finding for finding in findings if finding["severity"] == "error"]
    assert codes(errors) == [code]
    assert said in errors[0]["message"]
    assert not Path("evidence").exists()


def test_a_limit_needs_an_inventory(here, capsys):
    assert main(["probe", "--limit", "rack1"]) == 2
    assert "--inventory" in capsys.readouterr().err


def test_what_ansible_warns_about_is_passed_on(here):
    (finding,) = chosen(limit="rack1,rack9").findings
    assert finding.code == "PROBE-INVENTORY-SAID"
    assert finding.message == "Could not match supplied host pattern, ignoring: rack9"


def test_variables_of_groups_and_templates_count(here):
    Path("fleet/group_vars").mkdir(parents=True)
    Path("fleet/hosts.yml").write_text(
        "rack1: {hosts: {gpu-001: {oob: 10.0.0.1}, gpu-002: {oob: '2001:db8::2'}}}\n"
    )
    Path("fleet/group_vars/rack1.yml").write_text(
        "ansible_host: '{{ oob }}'\nansible_port: 2222\nansible_user: \"{{ 'be' + 'e' }}\"\n"
    )
    Path("more.ini").write_text("gpu-009 ansible_ssh_host=10.0.0.9 ansible_ssh_user=ann\n")
    found = choose(["fleet", "more.ini"], None, (), SshOptions())
    assert sorted((one.name, str(one.target)) for one in found.requests) == [
        ("gpu-001", "bee@10.0.0.1:2222"),
        ("gpu-002", "bee@[2001:db8::2]:2222"),
        ("gpu-009", "ann@10.0.0.9"),
    ]


def test_what_the_command_line_says_goes_before_the_inventory(here):
    inventory = "h ansible_user=bee ansible_port=1 ansible_ssh_private_key_file=/inventory/key\n"
    options = SshOptions(user="ann", port=2, identity="/my/key")
    (asked,) = chosen(inventory=inventory, options=options).requests
    assert str(asked.target) == "ann@h:2"
    assert asked.options.identity == "/my/key"
    assert not any("IdentityFile" in argument for argument in asked.options.arguments)


def test_a_script_and_ansibles_own_configuration_are_read(here):
    script = Path("hosts.py")
    script.write_text(
        f"#!{sys.executable}\nimport json\n"
        "print(json.dumps({'rack1': {'hosts': ['gpu-001']}, '_meta': {'hostvars': {}}}))\n"
    )
    script.chmod(0o755)
    Path("ansible.cfg").write_text("[defaults]\nremote_user = carl\n")
    (asked,) = choose(["hosts.py"], "rack1", (), SshOptions()).requests
    assert str(asked.target) == "carl@gpu-001"


def test_a_vaulted_variable_is_opened_by_the_configured_password(here, monkeypatch):
    Path("password").write_text("secret\n")
    sealed = subprocess.run(
        [
            *(Path(sys.executable).with_name("ansible-vault"), "encrypt_string"),
            *("--vault-password-file", "password", "bee", "--name", "ansible_user"),
        ],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    Path("group_vars").mkdir()
    Path("group_vars/all.yml").write_text(sealed)
    found = chosen(inventory="gpu-001\n")
    assert refused(found)["gpu-001"].code == "PROBE-VARIABLE"
    monkeypatch.setenv("ANSIBLE_VAULT_PASSWORD_FILE", "password")
    (asked,) = chosen(inventory="gpu-001\n").requests
    assert asked.target.user == "bee"


NOT_HONOURED = {
    "ansible_ssh_common_args='-oCiphers=aes128-ctr'": "-oCiphers=aes128-ctr is not honoured",
    "ansible_ssh_extra_args='-L 1:h:2 -C'": "ssh_extra_args: -L 1:h:2 is not honoured",
    "ansible_ssh_common_args='-o \"MACs=umac-64\"'": "-o MACs=umac-64 is not honoured",
    "ansible_password=secret": "the password in the inventory is not honoured",
    "ansible_ssh_private_key=secret": "the private key in a variable is not honoured",
    "ansible_become=true": "ansible_become is not honoured",
    "ansible_host_key_checking=false": "host keys must be known",
    "ansible_ssh_executable=/opt/ssh": "ssh_executable /opt/ssh is not honoured",
    "ansible_ssh_private_key_file=/no/key": "the private key file /no/key does not exist",
}


def test_what_is_not_honoured_is_named(here):
    lines = [f"h{number} {variables}" for number, variables in enumerate(NOT_HONOURED)]
    found = chosen(inventory="\n".join(lines))
    assert names(found) == [f"h{number}" for number in range(len(NOT_HONOURED))]
    assert {(one.code, one.severity) for one in found.findings} == {("PROBE-OPTION", "warning")}
    for number, said in enumerate(NOT_HONOURED.values()):
        (message,) = [one.message for one in found.findings if one.subject == f"h{number}"]
        assert said in message
        assert "secret" not in message


def test_what_is_not_honoured_is_named_once_for_all_hosts(here):
    found = chosen(inventory="a\nb\nc\n[all:vars]\nansible_become=true\n")
    assert [one.subject for one in found.findings] == ["3 hosts, a first"]


def test_what_changes_nothing_is_not_worth_a_word(here):
    common = "-C -o ControlMaster=auto -oControlPersist=60s -o ServerAliveInterval=30 -vv"
    assert chosen(inventory=f"a ansible_ssh_common_args='{common}'\n").findings == ()
    proxy = '-o ProxyCommand="ssh -W %h:%p -c aes128-ctr bastion"'
    assert chosen(inventory=f"a ansible_ssh_common_args='{proxy}'\n").findings == ()


NOT_REACHED = {
    "ansible_connection=docker": "PROBE-NOT-SSH",
    'ansible_ssh_common_args="-o \'Port"': "PROBE-CONFIG",
    "ansible_port=many": "PROBE-VARIABLE",
    "ansible_user='{{ nobody_says }}'": "PROBE-VARIABLE",
}


def test_a_host_that_cannot_be_reached_so_keeps_no_other(here):
    lines = [f"h{number} {variables}" for number, variables in enumerate(NOT_REACHED)]
    found = chosen(inventory="\n".join(["good", *lines]))
    assert names(found) == ["good"]
    assert [finding.code for finding in refused(found).values()] == list(NOT_REACHED.values())


def test_a_host_name_that_is_none_is_one_finding(here, capsys):
    Path("hosts.ini").write_text("a ansible_host=-oProxyCommand=evil\n")
    assert main(["probe", "--inventory", "hosts.ini", "--json"]) == 1
    _files, findings = printed(capsys)
    assert [(one["code"], one["subject"]) for one in findings] == [("PROBE-TARGET", "a")]


def test_this_machine_is_probed_under_its_name_in_the_inventory(here, capsys):
    Path("hosts.ini").write_text("controller ansible_connection=local\n")
    assert main(["probe", "--inventory", "hosts.ini", "--json"]) == 0
    files, findings = printed(capsys)
    assert (files, findings) == ({"controller": "evidence/controller.json"}, [])
    jsonschema.validate(
        json.loads(Path("evidence/controller.json").read_text()), schema("evidence")
    )


@pytest.fixture
def reached(lab, here):
    """Two servers that only their inventory leads to: ports, user, key and host keys."""
    own = key(here / "inventory-key")
    servers = []
    lines = []
    for name in ("gpu-001", "gpu-002"):
        server = lab.server(f"elsewhere-{name}", known=False, answer=canned(b'{"host": "x"}'))
        server.accepted = [own]
        kind, blob = server.host_key.get_name(), server.host_key.get_base64()
        lines.append(f"[127.0.0.1]:{server.port} {kind} {blob}\n")
        servers.append(server)
    (here / "inventory-hosts").write_text("".join(lines))
    text = "[rack1]\n"
    for name, server in zip(("gpu-001", "gpu-002"), servers, strict=True):
        text += f"{name} ansible_host=127.0.0.1 ansible_port={server.port}\n"
    text += (
        f"[rack1:vars]\nansible_user=bee\nansible_ssh_private_key_file={here}/inventory-key\n"
        f"ansible_ssh_common_args=-o 'UserKnownHostsFile=\"{here}/inventory-hosts\"'"
        " -oStrictHostKeyChecking=yes\n"
    )
    Path("hosts.ini").write_text(text)
    return servers


def test_hosts_are_reached_as_the_inventory_says_and_files_named_by_it(reached, capsys):
    assert main(["probe", "--inventory", "hosts.ini", "--limit", "rack1"]) == 0
    out, err = capsys.readouterr()
    assert [set(server.logins) for server in reached] == [{"bee"}, {"bee"}]
    assert json.loads(Path("evidence/gpu-001.json").read_text()) == {"host": "x"}
    assert "evidence/gpu-002.json" in out
    assert out.splitlines()[-1] == "2 hosts: 2 probed, 0 failed"
    assert err == ""


def test_a_host_that_fails_is_named_and_keeps_no_other(reached, capsys):
    reached[0].accepted = []
    with Path("hosts.ini").open("a") as file:
        print("[rack2]\ngpu-003 ansible_connection=winrm", file=file)
    assert main(["probe", "--inventory", "hosts.ini", "gone.invalid", "rack*"]) == 1
    out, err = capsys.readouterr()
    assert sorted(path.name for path in Path("evidence").iterdir()) == ["gpu-002.json"]
    assert out.splitlines()[-1] == "4 hosts: 1 probed, 3 failed"
    for host, code in [
        ("gpu-001", "PROBE-AUTH"),
        ("gone.invalid", "PROBE-UNREACHABLE"),
        ("gpu-003", "PROBE-NOT-SSH"),
    ]:
        assert f"error: {code}: {host}: " in err
        assert any(host in line and f"failed: {code}" in line for line in out.splitlines())


def test_a_host_key_that_the_inventory_does_not_know_is_refused(reached, capsys, here):
    (here / "inventory-hosts").write_text("")
    assert main(["probe", "--inventory", "hosts.ini", "--json"]) == 1
    files, findings = printed(capsys)
    assert files == {}
    assert codes(findings) == ["PROBE-HOST-KEY"] * 2
    assert all("inventory-hosts" in finding["message"] for finding in findings)
    assert [server.logins for server in reached] == [[], []]


def test_a_jump_host_of_the_inventory_is_gone_through_by_its_own_settings(lab, reached, capsys):
    first = lab.server("first", config=" User one\n")
    text = Path("hosts.ini").read_text()
    Path("hosts.ini").write_text(text.replace("common_args=", "common_args=-J first "))
    assert main(["probe", "--inventory", "hosts.ini", "gpu-002"]) == 0
    assert first.forwarded == [("127.0.0.1", reached[1].port)]
    # The key and the known hosts of the inventory are for its hosts, not for the way there.
    assert set(first.logins) == {"one"}


def test_another_ssh_config_of_the_inventory_is_read(lab, reached, here, capsys):
    lab.config.write_text("Host *\n Port abc\n")  # would fail, were it read
    (here / "own-config").write_text("Host 127.0.0.1\n HostKeyAlias alias\n")
    text = Path("hosts.ini").read_text()
    change = f"common_args=-F '{here}/own-config' "
    Path("hosts.ini").write_text(text.replace("common_args=", change))
    known = (here / "inventory-hosts").read_text().splitlines()
    aliased = "\n".join("alias " + line.split(" ", 1)[1] for line in known)
    (here / "inventory-hosts").write_text(aliased)
    assert main(["probe", "--inventory", "hosts.ini"]) == 0


def test_the_interpreter_of_the_inventory_runs_the_collector(reached, capsys):
    asked = []

    def answer(command, script):
        asked.append(command)
        return b"{}", b"", 0

    reached[0].answer = reached[1].answer = answer
    with Path("hosts.ini").open("a") as file:
        print("[all:vars]\nansible_python_interpreter=/opt/my python/bin/python3", file=file)
    assert main(["probe", "--inventory", "hosts.ini", "gpu-001"]) == 0
    with Path("hosts.ini").open("a") as file:
        print("[rack1:vars]\nansible_python_interpreter=auto_silent", file=file)
    assert main(["probe", "--inventory", "hosts.ini", "gpu-001"]) == 0
    assert asked == [b"'/opt/my python/bin/python3' -", b"python3 -"]


def test_a_terminal_sees_how_far_it_is(reached, capsys, monkeypatch):
    monkeypatch.setattr("apiary.app.output.alive", lambda _console: True)
    monkeypatch.setattr("rich.console.Console.is_terminal", True)
    monkeypatch.setenv("TERM", "xterm")  # CI's may be dumb
    reached[0].accepted = []
    assert main(["probe", "--inventory", "hosts.ini"]) == 1
    err = capsys.readouterr().err
    assert "probing, 1 failed" in err
    assert "2/2" in err


def test_hosts_are_probed_at_once(lab):
    # Each answers only once the others have been asked as well.
    together = threading.Barrier(3, timeout=BOUND)

    def answer(command, script):
        together.wait()
        return b"{}", b"", 0

    for number in range(3):
        lab.server(f"gpu-{number}", answer=answer)
    assert [probed.bundle for probed in lab.probe("gpu-0", "gpu-1", "gpu-2")] == [{}, {}, {}]


def test_a_refused_address_is_named_with_the_host(here, capsys):
    Path("hosts.ini").write_text("gpu-001 ansible_host=127.0.0.1 ansible_port=1\n")
    assert main(["probe", "--inventory", "hosts.ini", "--json"]) == 1
    ((finding,),) = [printed(capsys)[1]]
    assert finding["subject"] == "gpu-001"
    assert "at 127.0.0.1:1: " in finding["message"]
    assert finding["remedy"].endswith("ssh ssh://127.0.0.1:1.")


def test_results_come_as_hosts_are_done_and_all_of_them(lab):
    for number in range(12):
        lab.server(f"gpu-{number:03}", answer=canned(b'{"n": %d}' % number))
    hosts = [f"gpu-{number:03}" for number in range(12)]
    asked = [ssh.ProbeRequest(name, name, lab.options) for name in hosts]
    results = {probed.host: probed.bundle for probed in ssh.probe_each(asked, parallel=5)}
    assert results == {name: {"n": number} for number, name in enumerate(hosts)}
