# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A host is rebooted for a reason, once, and never beside replicas that serve."""

import json

import pytest
from ansible_collections.apiary.instinct.plugins.plugin_utils.evidence.types import (
    CommandOutput,
    Evidence,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.host.reboot import (
    RECORD,
    Settings,
    decide,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.host.types import HostFile

REASONS = ("rocm: the driver that is loaded is another one", "host_tuning: iommu=pt is missing")


def host(boot="boot-2", record=None, units=""):
    files = {"/proc/sys/kernel/random/boot_id": f"{boot}\n"}
    if record is not None:
        files[RECORD] = record if isinstance(record, str) else json.dumps(record)
    listed = CommandOutput(("systemctl",), 0, units, "", 0.1)
    return Evidence("gpu-001", "2026-11-21T00:00:00Z", "3", {"replicas": listed}, files)


def test_without_a_reason_nothing_happens():
    plan = decide(Settings(), host(units="apiary-x-0.service loaded active running x\n"))
    assert (plan.needed, plan.files, plan.findings) == (False, (), ())


def test_a_reason_leads_to_one_reboot_and_is_recorded():
    plan = decide(Settings(REASONS), host())
    assert plan.needed
    assert plan.findings == ()
    told = {"attempts": 1, "boot_id": "boot-2", "reasons": sorted(REASONS)}
    assert json.loads(plan.files[0].content) == told


def test_the_record_goes_when_the_reasons_are_gone():
    record = {"boot_id": "boot-1", "reasons": list(REASONS)}
    assert decide(Settings(), host(record=record)).files == (HostFile(RECORD, None),)


def test_a_reason_that_a_reboot_did_not_remove_forbids_another():
    record = {"boot_id": "boot-1", "reasons": [REASONS[0]]}
    plan = decide(Settings(REASONS), host(record=record))
    assert not plan.needed
    assert [one.code for one in plan.findings] == ["REBOOT-NO-USE"]
    assert RECORD in plan.findings[0].remedy


@pytest.mark.parametrize(
    "record",
    [
        {"boot_id": "boot-2", "reasons": list(REASONS)},  # begun, and cut off before it happened
        {"boot_id": "boot-1", "reasons": ["another"]},
        "no JSON",
        {"boot_id": "boot-1"},
        "[]",
    ],
)
def test_an_unfinished_or_other_reboot_forbids_nothing(record):
    assert decide(Settings(REASONS), host(record=record)).needed


@pytest.mark.parametrize(
    ("state", "needed"),
    [("active", False), ("activating", False), ("inactive", True), ("failed", True)],
)
def test_a_host_that_serves_is_not_rebooted(state, needed):
    plan = decide(Settings(REASONS), host(units=f"apiary-x-0.service loaded {state} sub x\n"))
    assert plan.needed is needed
    codes = [] if needed else ["REBOOT-SERVING"]
    assert [one.code for one in plan.findings] == codes


def test_a_run_reboots_once():
    plan = decide(Settings(REASONS, rebooted=True), host())
    assert not plan.needed
    assert [one.code for one in plan.findings] == ["REBOOT-NO-USE"]


def test_reasons_in_other_words_end_the_loop_too():
    record = {"boot_id": "boot-1", "reasons": ["another"], "attempts": 1}
    again = decide(Settings(REASONS), host(record=record))
    assert json.loads(again.files[0].content)["attempts"] == 2
    plan = decide(Settings(("a third",)), host("boot-3", json.loads(again.files[0].content)))
    assert [one.code for one in plan.findings] == ["REBOOT-NO-USE"]


@pytest.mark.parametrize(("held", "needed"), [(64 * 2**30, False), (2**20, True)])
def test_a_process_that_holds_vram_serves(held, needed):
    evidence = host()
    evidence.files["/sys/class/kfd/kfd/proc/4711/vram_51157"] = f"{held}\n"
    plan = decide(Settings(REASONS), evidence)
    assert plan.needed is needed
    assert needed or "process 4711 with 64 GiB of VRAM" in plan.findings[0].message


def test_no_answer_is_no_leave():
    evidence = host()
    evidence.commands["replicas"] = CommandOutput(("systemctl",), None, "", "", 60.0, "no answer")
    plan = decide(Settings(REASONS), evidence)
    assert [one.code for one in plan.findings] == ["REBOOT-SERVING"]


def test_a_unit_that_is_no_replica_forbids_nothing():
    units = "apiary-cdi.service loaded active exited x\n"
    assert decide(Settings(REASONS), host(units=units)).needed


def test_a_reboot_for_later_is_a_warning():
    plan = decide(Settings(REASONS, allowed=False), host())
    assert not plan.needed
    assert [(one.code, one.severity) for one in plan.findings] == [("REBOOT-PENDING", "warning")]
