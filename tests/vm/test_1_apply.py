# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Wrong, then right: what holds on the running host, before any reboot."""

from __future__ import annotations

import re

import pytest

from support.host.virtual_machines import MOUNT, READAHEAD_KIB, mounted, readahead, site
from support.waiting import await_true

LATER = ("-e", "reboot_allowed=false")
ASKED = {
    *("ro", "nosuid", "nodev", "noexec", "noatime", "nodiratime", "hard", "nocto"),
    *("vers=4.2", "proto=tcp", "nconnect=8", "timeo=600", "retrans=2"),
    *("rsize=1048576", "wsize=1048576"),
    *("acregmin=600", "acregmax=600", "acdirmin=600", "acdirmax=600"),
}
# All that the roles could touch.
STATE = """
find /etc /boot/grub /usr/libexec /var/lib/apiary -xdev -type f -exec sha256sum {} + | sort
cat /proc/mounts /proc/sys/kernel/numa_balancing /sys/kernel/mm/transparent_hugepage/enabled
systemctl list-unit-files --no-legend
"""


def files(played):
    """The files that a run's diff is about."""
    return set(re.findall(r"^\+\+\+ after: (/.*)$", played.output, re.MULTILINE))


@pytest.fixture(scope="module")
def foretold(wrong):
    """What check mode says, and that it touched nothing."""
    before = wrong.check_output(STATE)
    said = site("--check", "--diff", *LATER)
    assert wrong.check_output(STATE) == before
    return said


def test_check_mode_shows_the_command_line_and_the_mount(foretold):
    assert "+++ after: /etc/default/grub.d/" in foretold.output
    assert "numa_balancing=disable" in foretold.output
    assert f"take {MOUNT} out of /etc/fstab" in foretold.output
    assert "remove srv-models.automount" in foretold.output


@pytest.fixture(scope="module")
def applied(foretold):
    """The run that changes the host."""
    return site("--diff", *LATER)


def test_check_mode_had_told_all_of_it(foretold, applied):
    assert applied.changed == foretold.changed
    assert files(applied) == files(foretold)


def test_numa_balancing_is_off_at_once(applied, host):
    assert host.check_output("cat /proc/sys/kernel/numa_balancing") == "0"


def test_a_sysctl_file_of_the_host_does_not_win(applied, host):
    assert "= 1" in host.check_output("cat /etc/sysctl.d/99-local.conf")
    host.check_output("systemctl restart systemd-sysctl")
    assert host.check_output("cat /proc/sys/kernel/numa_balancing") == "0"


def test_huge_pages_are_on_at_once(applied, host):
    assert "[always]" in host.check_output("cat /sys/kernel/mm/transparent_hugepage/enabled")


def test_the_export_is_mounted_as_asked(applied, host):
    ((kind, options),) = mounted(host)
    assert kind == "nfs4"
    assert options >= ASKED
    assert not {"soft", "rw", "rsize=65536"} & options
    assert MOUNT not in host.check_output("cat /etc/fstab")
    await_true(lambda: readahead(host) == READAHEAD_KIB, 30)


def test_the_model_is_verified(applied, host):
    said = host.run("/usr/libexec/apiary/weights-check --level hashes")
    assert said.rc == 0, said.stderr
    assert "hashes of 2 files" in said.stderr


def test_a_reboot_is_pending_for_the_command_line(applied):
    assert "iommu=pt" in applied.output
    assert not any(task.endswith(": Reboot") for task in applied.changed)


def test_second_run_changes_nothing(applied):
    assert site(*LATER).changed == []
