# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Trials from a host: this machine is the host, and what it asks is on loopback."""

import socket
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
from ansible_collections.apiary.instinct.plugins.module_utils.evidence import reach


class Handler(BaseHTTPRequestHandler):
    def do_HEAD(self):
        self.send_response({"/gone": 404, "/v2/": 401}.get(self.path, 200))
        self.end_headers()

    def log_message(self, *_words):
        pass


@pytest.fixture(scope="module")
def server():
    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server.server_port
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def closed():
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        yield unused.getsockname()[1]


def tried(kind, target, run=None):
    (entry,) = reach.reach(run, [{"kind": kind, "target": target}]).values()
    return entry


def test_addresses_and_ports(server, closed, tmp_path, monkeypatch):
    for name in ("http_proxy", "https_proxy"):
        monkeypatch.delenv(name, raising=False)
    assert tried("url", f"http://127.0.0.1:{server}/there")["exit"] == 0
    assert tried("url", f"http://127.0.0.1:{server}/gone")["stderr"] == "HTTP 404"
    assert "refused" in tried("url", f"http://127.0.0.1:{closed}/")["stderr"]
    assert tried("registry", f"127.0.0.1:{server}")["exit"] == 0
    assert tried("registry", f"127.0.0.1:{closed}")["exit"] == 1
    assert tried("tcp", f"127.0.0.1:{server}")["exit"] == 0
    assert tried("tcp", f"127.0.0.1:{closed}")["stdout"] == "ECONNREFUSED"
    assert tried("path", str(tmp_path))["exit"] == 0
    assert tried("url", f"file://{tmp_path}")["exit"] == 0
    assert tried("path", f"{tmp_path}/x")["exit"] == 1


def test_a_proxy_is_asked_instead_of_the_server(server, closed, monkeypatch):
    monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{server}")
    monkeypatch.delenv("no_proxy", raising=False)
    assert tried("url", f"http://127.0.0.2:{closed}/there")["exit"] == 0


def test_no_password_of_an_address_is_returned(closed):
    entry = tried("url", f"http://user:hunter2@127.0.0.1:{closed}/x")
    assert "hunter2" not in str(entry)


def test_an_export_is_mounted_for_a_moment_by_what_decides_whether_it_is_granted(monkeypatch):
    monkeypatch.setattr(reach, "find_tool", lambda _name: "/sbin/mount.nfs")
    monkeypatch.setattr(reach.os, "geteuid", lambda: 0)
    ran = []

    def run(argv):
        ran.append(argv)
        return (0, b"", b"", None)

    assert tried("nfs", "nfs1:/models vers=4.1,hard,nconnect=8,sec=krb5p", run)["exit"] == 0
    (mount, umount) = ran
    assert mount[4] == "ro,soft,timeo=50,retrans=1,retry=0,vers=4.1,sec=krb5p"
    assert umount == ["umount", "-l", mount[-1]]
    denied = tried("nfs", "nfs1:/x", lambda _argv: (32, b"", b"mount.nfs: access denied", None))
    assert (denied["exit"], denied["stderr"]) == (1, "mount.nfs: access denied")


def test_without_mount_nfs_the_servers_port_is_asked(server, closed, monkeypatch):
    monkeypatch.setattr(reach, "find_tool", lambda _name: None)
    assert tried("nfs", f"127.0.0.1:/x port={server}")["exit"] == 0
    assert tried("nfs", f"127.0.0.1:/x port={closed}")["exit"] == 1


def test_each_of_apts_repositories_is_fetched_as_apt_does():
    printed = (
        "'http://a/dists/noble/InRelease' a_InRelease 0 \n"
        "'http://b/dists/noble/InRelease' b_InRelease 0 \n'file:/srv/x/InRelease' x 0 \n"
    )

    def run(argv):
        if argv[0] == "apt-get":
            return (0, printed.encode(), b"", None)
        return (int("//b/" in argv[-2]), b"", b"E: x\nE: Could not connect to b", None)

    assert tried("apt", "", lambda _argv: (None, b"", b"", "not found"))["exit"] == 0
    entry = tried("apt", "", run)
    assert (entry["exit"], entry["stdout"]) == (1, "http://a/dists/noble/InRelease")
    assert entry["stderr"] == "http://b/dists/noble/InRelease: E: Could not connect to b"
