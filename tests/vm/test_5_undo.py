# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Both roles give back what they took, and the next boot is as the first was."""

from __future__ import annotations

import pytest

from support.host.virtual_machines import (
    MOUNT,
    await_reboot,
    boot_id,
    kernel_arguments,
    mounted,
    site,
)

ABSENT = ("-e", "host_tuning_state=absent", "-e", "weight_cache_state=absent")


@pytest.fixture(scope="module")
def undone(host, server):
    return site(*ABSENT)


def test_live_values_are_those_from_before(undone, host):
    assert host.check_output("cat /proc/sys/kernel/numa_balancing") == "1"


def test_nothing_is_mounted_and_no_file_is_left(undone, host):
    assert mounted(host) == []
    assert not host.file(MOUNT).exists
    left = "find /etc /usr/libexec -xdev -type f -path '*apiary*'"
    assert host.check_output(left) == ""


def test_second_run_changes_nothing(undone):
    assert site(*ABSENT).changed == []


def test_the_next_boot_is_as_the_first_was(undone, host, original):
    before = boot_id(host)
    host.check_output("systemd-run --on-active=3 systemctl reboot")
    await_reboot(host, before)
    assert kernel_arguments(host) == original
    assert host.check_output("cat /proc/sys/kernel/numa_balancing") == "1"
