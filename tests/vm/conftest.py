# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Two virtual machines that `vm.py up` started: a host that is wrong at first, and its server.

The tests follow each other, in the order of their files: each starts where the last one ended.
"""

from __future__ import annotations

import pytest

from support.host.virtual_machines import HOST, MOUNT, SERVER, connect, kernel_arguments, play


@pytest.fixture(scope="session")
def host():
    """The host, as it was installed."""
    return connect(HOST)


@pytest.fixture(scope="session")
def server():
    """The server that exports the weights."""
    machine = connect(SERVER)
    if machine.run("systemctl is-active nfs-server").rc != 0:
        play("tests/vm/export.yml", host=SERVER)
    return machine


@pytest.fixture(scope="session")
def original(host):
    """The words of the command line that the host was first booted with."""
    return kernel_arguments(host)


@pytest.fixture(scope="session")
def wrong(host, server, original):
    """The host with what an operator may have left: a soft mount, made when it is first used.

    What is wrong on its command line and in its sysctl files it was installed with.
    """
    entry = f"10.77.0.2:/export/models {MOUNT} nfs rw,soft,vers=4.1,rsize=65536,x-systemd.automount"
    host.check_output(f"echo '{entry} 0 0' >> /etc/fstab && mkdir -p {MOUNT}")
    host.check_output("systemctl daemon-reload && systemctl start srv-models.automount")
    host.check_output(f"ls {MOUNT}/org")
    assert "iommu=off" in original
    assert host.check_output("cat /proc/sys/kernel/numa_balancing") == "1"
    return host
