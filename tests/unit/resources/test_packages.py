# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Packages that are installed while another program holds the lock of apt's lists."""

from types import SimpleNamespace

import pytest
from ansible_collections.apiary.instinct.plugins.module_utils.finding import ApiaryError
from ansible_collections.apiary.instinct.plugins.module_utils.resources import packages

LOCKED = (100, "", "E: Could not get lock /var/lib/apt/lists/lock. It is held by process 7\n")
RESOURCE = {"manager": "apt", "names": ["nfs-common"]}


def applied(monkeypatch, answers):
    """Install by a host that gives these answers, then well-ended ones; return its commands."""
    ran, left = [], list(answers)
    monkeypatch.setattr(packages.time, "sleep", ran.append)

    def run_command(argv, **_options):
        ran.append(argv[-1])
        return left.pop(0) if left else (0, "", "")

    host = SimpleNamespace(module=SimpleNamespace(run_command=run_command))
    packages.apply(host, RESOURCE, packages.Difference(actual=["nfs-common"]))
    return ran


def test_a_held_lock_of_the_lists_is_awaited(monkeypatch):
    pause = packages.PAUSE_SECONDS
    ran = applied(monkeypatch, [LOCKED, LOCKED])
    assert ran == ["update", pause, "update", pause, "update", "nfs-common"]


def test_a_lock_that_stays_held_is_refused(monkeypatch):
    with pytest.raises(ApiaryError) as refusal:
        applied(monkeypatch, [LOCKED] * (packages.ATTEMPTS + 1))
    assert "Could not get lock" in str(refusal.value)


def test_another_failure_is_refused_at_once(monkeypatch):
    with pytest.raises(ApiaryError) as refusal:
        applied(monkeypatch, [(100, "", "E: Unable to locate package nfs-common\n")])
    assert "Unable to locate" in str(refusal.value)


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
