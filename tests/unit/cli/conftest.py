# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""SSH servers of paramiko in this process, and the home of somebody who may log in."""

import threading
from types import SimpleNamespace

import pytest

from apiary.host.ssh import probe as ssh
from support.host.ssh_home import use_home
from support.host.ssh_server import BOUND, Server, key


@pytest.fixture
def lab(tmp_path, monkeypatch):
    """A home directory with key, ssh_config and known_hosts, and servers that know the key."""
    before = set(threading.enumerate())
    use_home(tmp_path, monkeypatch)
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    home = tmp_path / ".ssh"
    lab = SimpleNamespace(
        home=home,
        key=key(home / "id_ed25519"),
        config=home / "config",
        known=home / "known_hosts",
        servers=[],
        options=ssh.SshOptions(timeout=BOUND),
    )

    def server(name, known=True, config="", **changes):
        made = Server(key(tmp_path / f"host-{name}"), lab.key)
        lab.servers.append(made)
        vars(made).update(changes)
        with lab.config.open("a") as file:
            print(f"Host {name}\n HostName 127.0.0.1\n Port {made.port}\n{config}", file=file)
        with lab.known.open("a") as file:
            if known:
                line = f"{made.host_key.get_name()} {made.host_key.get_base64()}"
                print(f"[127.0.0.1]:{made.port} {line}", file=file)
        return made

    def probe(*hosts, **changes):
        options = ssh.SshOptions(**(vars(lab.options) | changes))
        labels = ssh.labels(hosts)
        requests = [ssh.ProbeRequest(label, name, options) for name, label in labels.items()]
        results = {probed.host: probed for probed in ssh.probe_each(requests)}
        return [results[label] for label in labels.values()]

    def finding(host, **changes):
        (probed,) = probe(host, **changes)
        assert probed.bundle is None
        (finding,) = probed.failure.findings
        return finding

    lab.server, lab.probe, lab.finding = server, probe, finding
    yield lab
    for made in lab.servers:
        made.close()
    for thread in threading.enumerate():
        if isinstance(thread, threading.Timer):  # paramiko cancels its own without waiting
            thread.join(BOUND)
    assert set(threading.enumerate()) <= before
