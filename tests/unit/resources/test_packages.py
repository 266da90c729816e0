# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Packages that are installed while another program holds the lock of apt's lists."""

from types import SimpleNamespace

import pytest
from ansible_collections.apiary.instinct.plugins.module_utils.finding import ApiaryError
from ansible_collections.apiary.instinct.plugins.module_utils.packages import managers
from ansible_collections.apiary.instinct.plugins.module_utils.resources import packages

HELD = "It is held by process 7 (apt-get)"
LOCKS = (
    f"E: Could not get lock /var/lib/apt/lists/lock. {HELD}",
    f"E: Could not get lock /var/cache/apt/archives/lock. {HELD}",
    f"E: Could not get lock /var/lib/dpkg/lock-frontend. {HELD}",
    "E: Unable to acquire the dpkg frontend lock (/var/lib/dpkg/lock-frontend)",
    "dpkg: error: dpkg frontend lock was locked by another process with pid 7",
)
RESOURCE = {"manager": "apt", "names": ["nfs-common"]}


def applied(monkeypatch, outputs, names=("nfs-common",)):
    """Install by a host that fails with these outputs, then succeeds; return its commands."""
    ran, left, clock = [], list(outputs), [0.0]

    def sleep(seconds):
        clock[0] += seconds

    monkeypatch.setattr(managers.time, "sleep", sleep)
    monkeypatch.setattr(managers.time, "monotonic", lambda: clock[0])

    def run_command(argv, **_options):
        ran.append(argv[-1])
        return (100, "", f"{left.pop(0)}\n") if left else (0, "", "")

    host = SimpleNamespace(module=SimpleNamespace(run_command=run_command))
    packages.apply(host, RESOURCE, packages.Difference(actual=list(names)))
    return ran


@pytest.mark.parametrize("output", LOCKS)
def test_a3_every_lock_that_another_program_holds_is_awaited(monkeypatch, output):
    assert applied(monkeypatch, [output] * 2) == ["update"] * 3 + ["nfs-common"]


def test_a_lock_that_stays_held_is_refused(monkeypatch):
    attempts = int(managers.LOCK_SECONDS / managers.PAUSE_SECONDS) + 1
    with pytest.raises(ApiaryError) as refusal:
        applied(monkeypatch, [LOCKS[0]] * attempts)
    assert "Could not get lock" in str(refusal.value)


def test_another_failure_is_refused_at_once(monkeypatch):
    with pytest.raises(ApiaryError) as refusal:
        applied(monkeypatch, ["E: Unable to locate package nfs-common"])
    assert "Unable to locate" in str(refusal.value)


def test_without_names_the_lists_alone_are_updated(monkeypatch):
    assert packages.inspect(
        SimpleNamespace(installing=False), {"manager": "apt", "names": []}
    ).steps
    assert applied(monkeypatch, [], names=()) == ["update"]


@pytest.mark.parametrize(
    ("there", "query"),
    [
        (["/etc/debian_version", "/usr/bin/dpkg-query", "/usr/bin/dnf"], "dpkg-query"),
        (["/etc/redhat-release", "/usr/bin/dpkg-query", "/usr/bin/dnf"], "rpm"),
    ],
)
def test_the_hosts_own_manager_is_that_of_its_distribution(monkeypatch, there, query):
    """EPEL has dpkg and Debian has dnf, which install nothing there."""
    monkeypatch.setattr(packages.os.path, "exists", there.__contains__)
    ran = []
    host = SimpleNamespace(run=lambda argv: (ran.append(argv), (0, "", ""))[1], installing=False)
    packages.inspect(host, {"manager": None, "names": ["nftables"]})
    assert ran[0][0] == query
