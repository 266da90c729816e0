# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Mounts come and go, and the server goes away while somebody reads."""

from __future__ import annotations

import shlex

import pytest

from support.host.virtual_machines import (
    MODEL,
    MOUNT,
    READAHEAD_KIB,
    ROOT,
    await_reboot,
    boot_id,
    mounted,
    readahead,
)
from support.waiting import await_true

BLOCK = 2**20


def test_an_unmounted_directory_takes_no_files(host):
    host.check_output("systemctl stop srv-models.mount")
    assert host.run(f"touch {MOUNT}/x").rc != 0
    assert host.run("/usr/libexec/apiary/weights-check").rc == 1


def test_readahead_survives_a_remount(host):
    """By systemd, and by hand: nobody runs the role."""
    host.check_output("systemctl start srv-models.mount")
    await_true(lambda: readahead(host) == READAHEAD_KIB, 60)
    host.check_output("systemctl stop srv-models.mount")
    host.check_output(f"mount -t nfs -o ro,vers=4.2 10.77.0.2:/export/models {MOUNT}")
    await_true(lambda: readahead(host) == READAHEAD_KIB, 60)
    host.check_output(f"umount {MOUNT}")
    host.check_output("systemctl start srv-models.mount")


@pytest.fixture
def reader(host):
    """Somebody who has the model open and reads it to the end, from the server."""
    host.check_output("sync; echo 3 > /proc/sys/vm/drop_caches")
    host.check_output("rm -f /run/read /run/go")
    # One block first, the others as soon as /run/go is there.
    script = (
        f"exec < {MODEL}; dd bs={BLOCK} count=1 of=/run/read iflag=fullblock status=none; "
        "until [ -e /run/go ]; do sleep 0.2; done; cat >> /run/read"
    )
    host.check_output(f"systemd-run --unit=reader -p RemainAfterExit=yes sh -c '{script}'")
    await_true(lambda: host.run(f"test $(stat -c %s /run/read) -eq {BLOCK}").rc == 0, 60)
    yield
    host.check_output("systemctl stop reader; rm -f /run/read /run/go")


def reader_is(host, state):
    return host.check_output("systemctl show --property=SubState --value reader") == state


def blocks(host):
    """Whether the reader sleeps in the kernel, uninterruptibly but for its end."""
    found = host.run("ps -o stat=,comm= -u root | awk '$2 == \"cat\" {print $1}'").stdout
    return found.strip().startswith("D")


@pytest.mark.parametrize("loss", ["its service restarts", "it reboots"])
def test_a_reader_waits_for_the_server_and_reads_on(host, server, reader, loss):
    wanted = server.check_output("sha256sum < /export/source/model.safetensors")
    before = boot_id(server)
    server.check_output("systemctl stop nfs-server")
    if loss == "it reboots":
        server.check_output("systemd-run --on-active=3 systemctl reboot")
    host.check_output("touch /run/go")
    await_true(lambda: blocks(host), 60)
    assert reader_is(host, "running")
    if loss == "it reboots":
        await_reboot(server, before)
    else:
        server.check_output("systemctl start nfs-server")
    # It asks again every minute, and the server first waits for those that it knew.
    await_true(lambda: reader_is(host, "exited"), 300)
    assert host.check_output("sha256sum < /run/read") == wanted


def test_the_mount_is_still_the_same(host):
    ((kind, options),) = mounted(host)
    assert kind == "nfs4"
    assert {"hard", "nconnect=8", "vers=4.2"} <= options


# What a replica's unit says of its mounts, as rendered, around a program that only asks for them.
DEPENDENCIES = (
    (ROOT / "tests/golden/demo/etc/systemd/system/apiary-qwen3-235b-0.service")
    .read_text(encoding="utf-8")
    .partition("[Service]")[0]
)
SERVICE = """[Service]
Type=exec
ExecStart=/bin/sh -c '/usr/libexec/apiary/weights-check || exit 75; exec sleep infinity'
Restart=always
RestartSec=2
RestartPreventExitStatus=2 78
"""


@pytest.fixture
def replica(host):
    """A unit that needs the weights, stopped."""
    name = "replica-test.service"
    text = DEPENDENCIES + SERVICE
    host.check_output(f"printf %s {shlex.quote(text)} > /run/systemd/system/{name}")
    host.check_output("systemctl daemon-reload")
    yield name
    host.check_output(f"systemctl stop {name}; rm /run/systemd/system/{name}")
    host.check_output("systemctl daemon-reload; systemctl start srv-models.mount")


def test_what_the_server_refuses_at_boot_is_mounted_when_it_does_not(host, server, replica):
    """mount.nfs takes that for permanent, and systemd tries a mount once."""
    state = "systemctl show --property=ActiveState --value"
    host.check_output("systemctl stop srv-models.mount")
    server.check_output("mv /etc/exports.d/models.exports /run && exportfs -ra")
    try:
        # As a boot starts it, which waits for nobody.
        host.check_output(f"systemctl start --no-block {replica}")
        tries = f"systemctl show --property=NRestarts --value {replica}"
        await_true(lambda: int(host.check_output(tries)) > 2, 300)
        assert mounted(host) == []
        assert host.check_output(f"{state} srv-models.mount") in ("failed", "activating")
    finally:
        server.check_output("mv /run/models.exports /etc/exports.d && exportfs -ra")
    # Active it is during each try, too.
    await_true(lambda: [kind for kind, _options in mounted(host)] == ["nfs4"], 120)
    await_true(lambda: host.check_output(f"{state} {replica}") == "active", 120)
    tried = host.check_output(tries)
    assert host.run("/usr/libexec/apiary/weights-check").rc == 0
    assert host.check_output(tries) == tried
    # And who stops the mount stops what reads it.
    host.check_output("systemctl stop srv-models.mount")
    assert host.check_output(f"{state} {replica}") == "inactive"
