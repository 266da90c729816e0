# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What `site.yml --check` lists of a host that was set up by other means."""

from dataclasses import replace

import pytest
from ansible_collections.apiary.instinct.plugins.plugin_utils.evidence.types import (
    CommandOutput,
    Evidence,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.fleet.survey import (
    Concern,
    Entry,
    concern_of,
    lines,
    takeover,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.host import host_tuning, reboot
from ansible_collections.apiary.instinct.plugins.plugin_utils.host.rocm import Settings, decide

from support.host.rocm import Machine

BARE = Evidence("gpu-001", "2026-11-28T02:00:00Z", "test")
OLD = {
    "amdgpu-install": "30.10.1.0.30100100-2193512.24.04",
    "amdgpu-dkms": "1:6.14.14.30100100-2193512.24.04",
    "rocm-core": "7.1.1.70101-38~24.04",
    "rocm-core6.4.1": "6.4.1.60401-83~24.04",
}


def report(role="rocm", steps=(), **sides):
    """What converge reports of one resource in check mode."""
    diff = {"before_header": "/etc/x", "after_header": "/etc/x", "before": "", "after": ""}
    entries = [{**diff, **sides}] if sides else []
    return {"resource": "file /etc/x", "role": role, "diff": entries, "steps": list(steps)}


@pytest.mark.parametrize(
    ("sides", "action"),
    [
        ({"before": "theirs\n", "after": "ours\n"}, "replace"),
        ({"before": "theirs\n"}, "remove"),
        ({"after": "ours\n"}, None),
        ({"before": "# Written by Apiary (role rocm).\n", "after": "ours\n"}, None),
        ({"before": "a\n", "after": "b\n", "after_header": "/etc/apiary/plan.json"}, None),
        (
            {"before": "1\n", "after": "0\n", "after_header": "/proc/sys/kernel/numa_balancing"},
            None,
        ),
    ],
    ids=["replaced", "removed", "new", "our own", "below our own path", "a live value"],
)
def test_a_file_of_others_that_would_change_is_listed(sides, action):
    found = takeover([], [report(**sides)], BARE)
    assert [(one.action, one.subject, one.role) for one in found] == (
        [(action, "/etc/x", "rocm")] if action else []
    )


def test_what_takes_away_or_restarts_is_listed_and_what_is_new_is_not():
    steps = ["take /models out of /etc/fstab", "restart containerd.service", "enable x.mount",
             "stop apiary-small-0.service", "apt-get install a"]  # fmt: skip
    found = takeover([], [report("weight_cache", steps)], BARE)
    assert [one.subject for one in found] == steps[:2]
    assert {one.action for one in found} == {"change"}


def rocm_concern(machine, **settings):
    plan = decide(Settings(**settings), machine.evidence())
    return concern_of("rocm", plan, {}, "")


def test_packages_that_go_or_change_and_those_that_stay_are_listed():
    machine = Machine(packages=OLD)
    found = takeover([rocm_concern(machine)], [], machine.evidence())
    assert [(one.action, one.subject) for one in found] == [
        ("remove", "package amdgpu-install"),
        ("replace", "package amdgpu-dkms"),
        ("replace", "package rocm-core"),
        ("keep", "packages rocm-core6.4.1"),
    ]
    assert found[2].detail == "7.1.1.70101-38~24.04 becomes *.70204-*"


def test_a_host_that_is_right_or_bare_has_no_table():
    for machine in (Machine(), Machine().right()):
        assert lines(takeover([rocm_concern(machine)], [], machine.evidence())) == []
    assert lines([Entry("keep", "vm.max_map_count", "host_tuning", "set by others")]) == []


def test_a_sysctl_of_others_that_reaches_is_kept():
    files = {
        "/etc/os-release": "ID=ubuntu\nVERSION_ID=24.04\n",
        "/proc/sys/vm/max_map_count": "2097152\n",
        "/etc/sysctl.d/50-site.conf": "vm.max_map_count = 2097152\n",
    }
    evidence = replace(BARE, files=files)
    concern = concern_of(
        "host_tuning", host_tuning.decide(host_tuning.Settings(), evidence), {}, ""
    )
    kept = [one for one in takeover([concern], [], evidence) if one.action == "keep"]
    assert [one.detail for one in kept] == [
        "/etc/sysctl.d/50-site.conf sets vm.max_map_count = 2097152"
    ]


def test_the_table_says_each_line_and_that_the_rest_stays():
    entries = [Entry("replace", "/etc/x", "rocm"), Entry("keep", "process 7", "reboot", "it runs")]
    assert lines(entries) == [
        "replace  rocm               /etc/x",
        "keep     reboot             process 7: it runs",
        "What is not listed is left alone.",
    ]


def test_what_a_host_sends_is_shown_and_not_obeyed():
    found = takeover([], [report("weight_cache", ["remove \x1b[2J\nkeep     rocm"])], BARE)
    assert lines(found)[0] == "change   weight_cache       remove \\u001b[2J\\nkeep     rocm"
    assert takeover([], [{"role": "rocm", "steps": [], "diff": [{}]}], BARE) == ()


def test_a_file_of_others_that_names_apiary_below_is_theirs_all_the_same():
    [entry] = takeover([], [report(before="[server]\nfor = apiary\n", after="ours\n")], BARE)
    assert entry.action == "replace"


VRAM = {"/sys/class/kfd/kfd/proc/4711/vram_29312": str(180 << 30)}
UNIT = CommandOutput(("systemctl",), 0, "apiary-small-0.service loaded active running\n", "", 0.0)


@pytest.mark.parametrize(
    "running",
    [{"files": VRAM}, {"commands": {"replicas": UNIT}}],
    ids=["a process of others", "a replica"],
)
def test_a_running_workload_gets_neither_a_driver_nor_a_reboot(running):
    """Whatever was set up by others: without the operator's act (ending it) nothing happens."""
    machine = Machine(packages=OLD)
    evidence = machine.evidence()
    evidence = replace(
        evidence,
        files=evidence.files | running.get("files", {}),
        commands=evidence.commands | running.get("commands", {}),
    )
    plan = decide(Settings(), evidence)
    assert [one.code for one in plan.findings if one.severity == "error"] == ["ROCM-SERVING"]
    again = reboot.decide(reboot.Settings(reasons=("the driver changed",)), evidence)
    assert ([one.code for one in again.findings], again.needed) == (["REBOOT-SERVING"], False)
    found = takeover([Concern("rocm"), concern_of("rocm", plan, {}, "")], [], evidence)
    kept = [one.subject for one in found if (one.action, one.role) == ("keep", "reboot")]
    assert kept == (["process 4711 with 180 GiB of VRAM"] if "files" in running else [])
    # The role is refused, and the list has its packages all the same.
    assert ("replace", "package amdgpu-dkms") in {(one.action, one.subject) for one in found}
