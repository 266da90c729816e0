# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The site playbook reboots the host, once, and all of it still holds."""

from __future__ import annotations

import pytest

from support.host.virtual_machines import (
    READAHEAD_KIB,
    boot_id,
    kernel_arguments,
    mounted,
    readahead,
    site,
)


@pytest.fixture(scope="module")
def rebooted(host, server, original):
    """The run that may reboot."""
    before = boot_id(host)
    said = site()
    assert boot_id(host) != before
    return said


def test_nothing_else_was_left_to_do(rebooted):
    # Once it is up, nothing has to remember why it was rebooted.
    left = "Provision | Converge the driver, ROCm and the host's settings"
    names = [task.split(" : ")[-1] for task in rebooted.changed]
    assert names == ["Record why", "Reboot", left]


def test_the_boot_loader_gave_the_kernel_what_was_asked(rebooted, host):
    arguments = kernel_arguments(host)
    assert [word for word in arguments if word.startswith("pci=")] == [
        "pci=noats",
        "pci=realloc=off",
        "pci=bfsort",
    ]
    assert [word for word in arguments if word.startswith("iommu=")] == ["iommu=pt"]
    assert "numa_balancing=disable" in arguments


def test_what_others_asked_of_the_kernel_stayed(rebooted, host, original):
    arguments = kernel_arguments(host)
    kept = [word for word in original if not word.startswith(("pci=", "iommu=", "BOOT_IMAGE="))]
    assert {"foo=a  b", "console=ttyS0", "panic=-1", "quiet"} <= set(kept)
    assert [word for word in arguments if word in kept] == kept


def test_what_was_set_live_is_set_again(rebooted, host):
    assert host.check_output("cat /proc/sys/kernel/numa_balancing") == "0"
    assert "[always]" in host.check_output("cat /sys/kernel/mm/transparent_hugepage/enabled")
    assert host.check_output("systemctl --failed --no-legend") == ""


def test_the_weights_are_mounted_again(rebooted, host):
    assert [kind for kind, _options in mounted(host)] == ["nfs4"]
    assert readahead(host) == READAHEAD_KIB
    assert host.run("/usr/libexec/apiary/weights-check").rc == 0


def test_second_run_changes_nothing_and_does_not_reboot_again(rebooted):
    assert site().changed == []
