# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What somebody changes by hand is named with its remedy, and the next run sets it right."""

from __future__ import annotations

import json

import pytest

from support.host.virtual_machines import HOST, MOUNT, ROOT, attempt, mounted, readahead, site

DRIFTS = {
    "numa_balancing": "echo 1 > /proc/sys/kernel/numa_balancing",
    "transparent_hugepage": "echo never > /sys/kernel/mm/transparent_hugepage/enabled",
    "/etc/sysctl.d": "rm /etc/sysctl.d/zz-apiary.conf",
    "/etc/default/grub.d": "rm /etc/default/grub.d/zz-apiary.cfg",
    MOUNT: f"systemctl stop srv-models.mount; mount -t nfs -o ro,soft,vers=4.1 "
    f"10.77.0.2:/export/models {MOUNT}",
    "weights-check": "echo >> /usr/libexec/apiary/weights-check",
}


def failing():
    """What verify.yml finds that is not about GPUs, which the machine has none of."""
    said = attempt("playbooks/verify.yml")
    file = ROOT / ".lab/vm/artifacts" / HOST / "acceptance.json"
    checks = json.loads(file.read_text(encoding="utf-8"))["checks"]
    failed = [
        check
        for check in checks
        if check["state"] == "fail"
        and check["code"].startswith(("ACCEPT-DRIFT", "TUNE-", "WEIGHTS-"))
    ]
    return failed, said.output


@pytest.fixture(scope="module")
def before(host, server):
    """What a host of this kind can't have right, such as the memory of a GPU server."""
    return failing()[0]


@pytest.fixture(scope="module")
def drifted(before, host):
    """What is found on the changed host, and what was printed."""
    for command in DRIFTS.values():
        host.check_output(command)
    failed, said = failing()
    return [check for check in failed if check not in before], said


def test_a_right_host_passes(before):
    errors = {check["code"] for check in before if check["severity"] == "error"}
    # The machine has no IOMMU.
    assert errors == {"TUNE-IOMMU-GROUPS"}


@pytest.mark.parametrize("drift", DRIFTS)
def test_each_drift_is_named_with_its_remedy(drifted, drift):
    found, said = drifted
    about = [check for check in found if drift in json.dumps(check)]
    assert about, found
    assert all(check["remedy"] and check["code"] in said for check in about)


def test_the_next_run_sets_it_right(drifted, before, host):
    assert site("-e", "reboot_allowed=false").changed
    assert host.check_output("cat /proc/sys/kernel/numa_balancing") == "0"
    ((_kind, options),) = mounted(host)
    assert {"hard", "nconnect=8"} <= options
    assert readahead(host) == 15360
    assert failing()[0] == before
