# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Files of a router's host: the unit's, and keepalived's, judged by itself where it is."""

import os
import shlex
import shutil
import subprocess
import time

import pytest
from ansible_collections.apiary.instinct.plugins.plugin_utils.findings import ApiaryError
from ansible_collections.apiary.instinct.plugins.plugin_utils.render.haproxy import (
    DROP_IN,
    PROGRAM,
    render_router_host,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.render.keepalived import (
    PASSWORD,
    Peer,
    VirtualAddress,
    password_file,
    render_keepalived,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.router.types import (
    ApiKey,
    Router,
    RouterSettings,
    Tls,
)

PEERS = (Peer("router-001", "192.0.2.1"), Peer("router-002", "192.0.2.2"))
SHARED = VirtualAddress(("192.0.2.10/24",), "eth0", PEERS, 77, True)


def rendered(name="router-001", **changes):
    virtual = VirtualAddress(**{**vars(SHARED), **changes})
    return render_keepalived(virtual, name, "/usr/bin/python3", PROGRAM).content


def test_the_first_router_is_preferred_and_each_knows_the_others():
    first, second = rendered(), rendered("router-002")
    assert "priority 200\n" in first
    assert "priority 195\n" in second
    assert "unicast_src_ip 192.0.2.1\n" in first
    assert "unicast_peer {\n        192.0.2.2\n    }" in first
    assert f'script "/usr/bin/python3 {PROGRAM} check"' in first
    assert "192.0.2.10/24 dev eth0" in first
    assert "nopreempt" in first
    assert f"include {PASSWORD}" in first


def test_the_password_is_in_a_file_of_its_own():
    file = password_file("secret12")
    assert file.mode == "0600"
    assert "auth_pass @secret:virtual_password@" in file.content
    assert "secret12" not in rendered()
    assert "include" not in rendered(password=False)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"addresses": ("192.0.2.10",)}, "no address with a prefix"),
        ({"addresses": ("192.0.2.10/24", "2001:db8::1/64")}, "both IPv4 and IPv6"),
        ({"interface": "eth0 {"}, "interface"),
        ({"router_id": 256}, "id 256"),
        ({"peers": PEERS[1:]}, "not among the routers"),
        ({"peers": (*PEERS, Peer("router-003", "router-003"))}, "no IP address"),
    ],
)
def test_what_keepalived_could_not_mean_is_refused(changes, expected):
    with pytest.raises(ApiaryError, match=expected) as refused:
        rendered(**changes)
    assert refused.value.findings[0].code == "ROUTER-VIRTUAL"


@pytest.mark.parametrize("password", ["longer than eight", 'a"b', "{"])
def test_a_password_that_vrrp_would_cut_is_refused_and_not_shown(password):
    with pytest.raises(ApiaryError) as refused:
        password_file(password)
    assert f"{password} is" not in str(refused.value)


@pytest.mark.skipif(shutil.which("keepalived") is None, reason="needs keepalived; the lab has it")
def test_keepalived_takes_it(tmp_path):
    (tmp_path / "password").write_text(password_file("secret12").content)
    (tmp_path / "main").write_text(
        rendered(interface="lo").replace(PASSWORD, str(tmp_path / "password"))
    )
    command = ["keepalived", "--config-test", "--use-file", tmp_path / "main"]
    assert subprocess.run(command, check=False).returncode == 0


def test_the_unit_keeps_states_over_reload_stop_and_start():
    router = Router(RouterSettings(keys=(ApiKey("lab", "a" * 64),), connections=100000), ())
    files = {one.path: one for one in render_router_host(router, "/usr/bin/python3.11")}
    drop_in = files[DROP_IN].content
    reload = [line for line in drop_in.splitlines() if line.startswith("ExecReload=")]
    assert reload == [
        "ExecReload=",
        f"ExecReload=-/usr/bin/python3.11 {PROGRAM} save",
        "ExecReload=/usr/sbin/haproxy -c -q -f /etc/haproxy/haproxy.cfg",
        "ExecReload=/bin/kill -USR2 $MAINPID",
    ]
    assert f"ExecStop=-/usr/bin/python3.11 {PROGRAM} save" in drop_in
    assert f"ExecStartPre=-/usr/bin/python3.11 {PROGRAM} trim" in drop_in
    assert "LimitNOFILE=400000\n" in drop_in
    assert files["/etc/haproxy/apiary/router.json"].mode == "0600"
    assert "a" * 64 not in "".join(one.content for one in files.values() if one.mode == "0644")


def test_the_program_is_python_by_itself(tmp_path):
    (program,) = [
        one for one in render_router_host(Router(RouterSettings(), ()), "p") if one.path == PROGRAM
    ]
    (tmp_path / "haproxy.py").write_text(program.content)
    done = subprocess.run(
        ["python3", "-I", "-S", tmp_path / "haproxy.py", "check"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "ROUTER-STATE: check: /run/haproxy/admin.sock" in done.stderr


def test_a_certificate_is_new_by_when_it_came_and_not_by_its_own_date(tmp_path):
    certificate, stamp = tmp_path / "tls.pem", tmp_path / "stamp"
    settings = RouterSettings(tls=Tls(certificate=str(certificate)))
    files = {one.path: one.content for one in render_router_host(Router(settings, ()), "python3")}
    unit = files["/etc/systemd/system/apiary-router.service"]
    [line] = [line for line in unit.splitlines() if "find -P" in line]
    script = shlex.split(line)[-1].replace("$$", "$")
    script = script.replace("/run/haproxy/certificate", str(stamp))
    (tmp_path / "systemctl").write_text("#!/bin/sh\necho reloads\n")
    (tmp_path / "systemctl").chmod(0o755)

    def reloads(seconds):
        """Return whether it would, where HAProxy has begun so many seconds ago."""
        stamp.touch()
        os.utime(stamp, (time.time() - seconds,) * 2)
        path = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
        done = subprocess.run(["sh", "-c", script], env=path, capture_output=True, check=False)
        return b"reloads" in done.stdout

    assert not reloads(60)
    (tmp_path / "one.pem").write_text("one")
    os.utime(tmp_path / "one.pem", (1, 1))
    certificate.symlink_to("one.pem")
    assert reloads(60)
    assert not reloads(-60)


@pytest.mark.parametrize(("status", "reloads"), [(0, True), (1, False)])
def test_a_router_reloads_where_a_name_has_an_address_at_last(tmp_path, status, reloads):
    (tmp_path / "python").write_text(f"#!/bin/sh\ntest $2 = resolves && exit {status}\n")
    (tmp_path / "systemctl").write_text("#!/bin/sh\necho $*\n")
    for name in ("python", "systemctl"):
        (tmp_path / name).chmod(0o755)
    files = render_router_host(Router(RouterSettings(), ()), str(tmp_path / "python"))
    [unit] = [one.content for one in files if one.path.endswith("/apiary-router.service")]
    [line] = [line for line in unit.splitlines() if " resolves " in line]
    path = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    command = ["sh", "-c", shlex.split(line)[-1]]
    done = subprocess.run(command, env=path, capture_output=True, text=True, check=False)
    assert done.returncode == 0
    assert done.stdout == ("reload haproxy.service\n" if reloads else "")
