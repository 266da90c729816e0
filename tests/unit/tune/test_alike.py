# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whether hosts are alike, from their evidence."""

import copy
import re

import pytest
from ansible_collections.apiary.instinct.plugins.plugin_utils.tune.alike import alike

from support.topology.simulated import simulated_evidence

GOVERNOR = "/sys/devices/system/cpu/cpu{}/cpufreq/scaling_governor"
SETTINGS = {
    "/sys/module/amdgpu/version": "6.14.14\n",
    "/proc/cmdline": "BOOT_IMAGE=/vmlinuz root=UUID=1 ro quiet amd_iommu=on iommu=pt\n",
    "/proc/sys/kernel/numa_balancing": "0\n",
    "/sys/kernel/mm/transparent_hugepage/enabled": "[always] madvise never\n",
    "/sys/devices/system/cpu/smt/active": "1\n",
    "/sys/devices/system/cpu/cpu0/cpuidle/state2/disable": "1\n",
    "/proc/sys/vm/zone_reclaim_mode": "0\n",
    "/proc/sys/vm/swappiness": "60\n",
    **{GOVERNOR.format(cpu): "performance\n" for cpu in range(4)},
}
UNAME = {"argv": ["uname"], "exit": 0, "stdout": "Linux 6.8.0-64\n", "stderr": "", "seconds": 0.0}
ENGINES = {"a": "0.33.0", "b": "0.33.0"}


@pytest.fixture(scope="module")
def bundle():
    """The evidence of a host that tells everything."""
    found = simulated_evidence()
    for path, text in list(found["files"].items()):
        if path.endswith("/properties") and re.search(r"^simd_count [1-9]", text, re.MULTILINE):
            text = re.sub(r"^(sdma_)?fw_version .*\n", "", text, flags=re.MULTILINE)
            found["files"][path] = text + "fw_version 177\nsdma_fw_version 19\n"
    found["files"] |= SETTINGS
    found["commands"]["uname"] = UNAME
    return found


@pytest.fixture
def pair(bundle):
    """Two hosts that are alike; tests change the second."""
    return {"a": bundle, "b": copy.deepcopy(bundle)}


def differences(pair, engines=None):
    return [(one.code, one.subject, one.message) for one in alike(pair, engines or ENGINES)]


def only(pair, engines=None):
    ((code, subject, message),) = differences(pair, engines)
    assert (code, subject) == ("TRIAL-HOSTS-DIFFER", "b")
    return message


def test_equal_hosts_are_alike(pair):
    assert differences(pair) == []


def test_one_host_is_like_itself(pair):
    assert alike({"a": pair["a"]}) == ()


def test_what_names_the_machine_itself_is_no_difference(pair):
    pair["b"]["files"]["/proc/cmdline"] = "BOOT_IMAGE=/v root=UUID=2 rw quiet amd_iommu=on iommu=pt"
    assert differences(pair) == []


@pytest.mark.parametrize(
    ("path", "text", "says"),
    [
        ("/sys/module/amdgpu/version", "6.16.6\n", "amdgpu driver: 6.16.6 here, 6.14.14 on a"),
        ("/proc/cmdline", "quiet amd_iommu=on\n", "kernel arguments: quiet amd_iommu=on here"),
        ("/proc/sys/kernel/numa_balancing", "1\n", "NUMA balancing: 1 here, 0 on a"),
        (GOVERNOR.format(3), "powersave\n", "CPU governors: 1 × powersave; 3 × performance here"),
        ("/sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n", "huge pages"),
    ],
)
def test_a_setting_that_differs_is_named(pair, path, text, says):
    pair["b"]["files"][path] = text
    if "governor" in path:
        assert "powersave" in only(pair)
    else:
        assert says in only(pair)


def test_another_kernel_is_named(pair):
    pair["b"]["commands"]["uname"] = {**UNAME, "stdout": "Linux 6.11.0\n"}
    assert "kernel: Linux 6.11.0 here, Linux 6.8.0-64 on a" in only(pair)


def test_another_firmware_on_one_gpu_is_named(pair):
    files = pair["b"]["files"]
    path = next(path for path in sorted(files) if "\nfw_version 177" in files[path])
    files[path] = files[path].replace("fw_version 177\n", "fw_version 178\n", 1)
    message = only(pair)
    assert "firmware of the GPUs: 7 × fw_version 177; 1 × fw_version 178 here" in message
    assert "8 × fw_version 177 on a" in message


def test_another_engine_is_named(pair):
    assert "engine: 0.32.0 here, 0.33.0 on a" in only(pair, {"a": "0.33.0", "b": "0.32.0"})


def test_gpus_that_are_missing_are_named(bundle):
    other = simulated_evidence("missing=3")
    other["files"] |= SETTINGS
    other["commands"]["uname"] = UNAME
    said = " ".join(message for _code, _subject, message in differences({"a": bundle, "b": other}))
    assert "GPUs: 7 × MI325X" in said
    assert "links between GPUs: 21 × xgmi" in said


def test_what_a_host_does_not_tell_is_not_taken_for_equal(pair):
    del pair["b"]["files"]["/sys/module/amdgpu/version"]
    ((code, subject, message),) = differences(pair)
    assert (code, subject) == ("TRIAL-HOSTS-UNSEEN", "b")
    assert message.endswith("amdgpu driver")


def test_other_deployments_on_the_host_count(pair):
    """What runs beside takes memory, CPUs and power of the host."""

    def plan(**limits):
        gpus = {"gpus": ["0000:05:00.0"]}
        return {"deployment": {"name": "other", "limits": limits}, "replicas": [gpus]}

    same = {"a": [plan()], "b": [plan()]}
    assert alike(pair, ENGINES, same) == alike(pair, ENGINES, {"a": [], "b": []}) == ()
    (alone,) = alike(pair, ENGINES, {"a": [plan()], "b": []})
    assert (alone.code, alone.subject) == ("TRIAL-HOSTS-DIFFER", "b")
    assert alone.message.startswith("other deployments: none here, other on 0000:05:00.0")
    (unlike,) = alike(pair, ENGINES, {"a": [plan()], "b": [plan(max_num_seqs=2)]})
    assert unlike.code == "TRIAL-HOSTS-DIFFER"
