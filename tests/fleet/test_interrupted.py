# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Rollouts that are interrupted end in a ledger that is true, and a resumed run finishes.

Twelve bare hosts are brought to serving by one run: its controller is killed, five hosts break in
five ways while it goes on, they are mended, and it finishes.
"""

from __future__ import annotations

import shlex
import threading

import pytest

from loss.fleet import await_true, kill_tree

from .conftest import HOSTS, ROOT

ASKED = ("site", "-i", "inventory/lab", "-e", f"@{ROOT}/tests/fleet/variables.yml", "--yes")
FULL, SUDO, CUT, REBOOT, APT, *FINE = (f"gpu-{number:03d}" for number in range(1, HOSTS + 1))
LOCKS = ("/var/lib/dpkg/lock-frontend", "/var/lib/dpkg/lock", "/var/lib/apt/lists/lock")
HOLD = f"""
import fcntl, time
held = [open(path, "w") for path in {LOCKS!r}]
for one in held: fcntl.lockf(one, fcntl.LOCK_EX)
print("held", flush=True)
while True: time.sleep(60)
"""


def changed(operator, host):
    """Say whether the run is in the middle of a host: sources of packages, but no package."""
    listed = operator.fleet.run(host, "ls /etc/apt/sources.list.d")
    return "rocm" in listed


def held(operator, host):
    """Say whether the run has come to the host: others are kept away."""
    path = "/var/lib/apiary/fleet/everything.lock"
    return operator.fleet.run(host, f"test -e {path} && echo yes || true") == "yes\n"


def test_the_controller_is_killed(operator):
    """Nothing is called done that is not, and what the dead run was at is said."""
    process = operator.begin(*ASKED, "--batches", "100%", "--failure-budget", "12")
    await_true(lambda: changed(operator, APT) or process.poll() is not None, 600, "in the middle")
    assert process.poll() is None, operator.end(process)
    kill_tree(process)
    for host in operator.hosts:
        assert operator.last(host)["outcome"] == "begun"
        operator.is_true(host)
    assert "FLEET-RUN-GONE" in operator.shown()


@pytest.fixture(scope="module")
def broken(operator):
    """The killed run, resumed while hosts break, each in its own way."""
    fleet = operator.fleet
    fleet.run(
        FULL, "mkdir -p /etc/apiary && mount -t tmpfs -o size=16k,nr_inodes=64 full /etc/apiary"
    )
    fleet.run(FULL, "head -c 1M /dev/zero > /etc/apiary/fill || true")
    fleet.run(SUDO, "mv /etc/sudoers.d/ansible /root/ansible.sudoers")
    fleet.run(APT, f"nohup python3 -c {shlex.quote(HOLD)} > /run/held 2>&1 &")
    await_true(lambda: "held" in fleet.run(APT, "cat /run/held"), 30, "the locks are held")
    fleet.run(
        CUT, "rm -rf /var/lib/apiary/fleet; ip route show default | cut -d' ' -f3 > /run/gateway"
    )
    fleet.run(REBOOT, "rm -rf /var/lib/apiary/fleet")
    process = operator.begin("--resume", "--yes", "--retries", "0")

    def when_held(host, break_it):
        await_true(lambda: held(operator, host) or process.poll() is not None, 600, "it is held")
        if process.poll() is None:
            break_it()

    def cut():
        fleet.run(CUT, "ip link set eth0 down")

    def reboot():
        # A server's boot takes minutes, longer than a run waits; a container's takes a second.
        fleet.docker("kill", REBOOT)
        await_true(lambda: process.returncode is not None, 600, "the run has ended")
        fleet.docker("start", REBOOT)

    breaks = ((CUT, cut), (REBOOT, reboot))
    threads = [threading.Thread(target=when_held, args=one) for one in breaks]
    for one in threads:
        one.start()
    ended = operator.end(process)
    for one in threads:
        one.join()
    return ended


def test_hosts_break_in_the_middle(operator, broken):
    """Each is told apart with its reason; the others are done, and the run says it is not."""
    code, run, said = broken
    assert code == 1, said
    assert run["state"] == "failed"
    outcomes = {one["host"]: one["outcome"] for one in run["hosts"]}
    reasons = {one["host"]: one["reason"] for one in run["hosts"]}
    assert {host: outcomes[host] for host in FINE} == dict.fromkeys(FINE, "done"), reasons
    assert outcomes[CUT] == "unreachable", reasons[CUT]
    assert outcomes[REBOOT] == "unreachable", reasons[REBOOT]
    assert "No space left" in reasons[FULL]
    assert "sudo" in reasons[SUDO]
    assert "lock" in reasons[APT]
    for host in (FULL, SUDO, APT):
        assert outcomes[host] in ("failed", "quarantined", "unreachable")
    for host in operator.hosts:
        first, *rest = operator.ledger(host)["entries"]
        assert first["outcome"] == "interrupted"
        assert rest
        operator.is_true(host)


def test_a_resumed_run_finishes(operator, broken):
    """What was done is not done again; the rest is, once it is mended and let in again."""
    fleet = operator.fleet
    fleet.run(FULL, "umount /etc/apiary")
    fleet.run(SUDO, "mv /root/ansible.sudoers /etc/sudoers.d/ansible")
    fleet.run(APT, "pkill -f fcntl.lock[f]")
    fleet.run(CUT, "ip link set eth0 up; ip route replace default via $(cat /run/gateway)")
    await_true(
        lambda: "yes" in fleet.run(REBOOT, "systemctl is-active ssh && echo yes", check=False),
        60,
        "it is back",
    )
    before = {host: len(operator.ledger(host)["entries"]) for host in operator.hosts}
    code, run, said = operator.rollout("--resume", "--yes", "--include-quarantined")
    assert code == 0, (said, run["findings"], run["hosts"])
    assert run["state"] == "done"
    for host in operator.hosts:
        assert operator.last(host)["outcome"] == "done"
        operator.is_true(host)
        again = len(operator.ledger(host)["entries"]) - before[host]
        assert (again == 0) == (host in FINE), host
