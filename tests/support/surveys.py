# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A fleet of hosts that were never there: their surveys, ledgers and inventory, as large as asked.

Most are right; the first racks are one driver behind, some new, a few broken or dead.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from ansible_collections.apiary.instinct.plugins.plugin_utils.documents import dumps
from ansible_collections.apiary.instinct.plugins.plugin_utils.findings import Finding
from ansible_collections.apiary.instinct.plugins.plugin_utils.fleet.types import (
    Change,
    ConcernSurvey,
    HostFacts,
    Served,
    Survey,
)

from support.topology.topologies import MI325X_BUSES, bdf

PER_RACK = 8
AT = "2026-11-22T09:00:00Z"
DRIVER, OLD_DRIVER = "6.16.13", "6.14.14"
CONCERNS = ("rocm", "host_tuning", "weight_cache", "device_plugin", "replicas:chat")
COMPONENTS = ("ASD", "ME", "MEC", "MEC2", "PFP", "RLC", "SDMA", "SMC", "SOS", "TA_RAS", "TA_XGMI")
FIRMWARE = tuple((name, str(20 + number)) for number, name in enumerate((*COMPONENTS, "VBIOS")))
FACTS = HostFacts(
    gpu_model="MI325X",
    gpus=8,
    vram_bytes=8 * 256 * 2**30,
    hives=(8,),
    numa_nodes=2,
    partitions="SPX/NPS1",
    driver=DRIVER,
    rocm="7.2.4",
    kernel="6.8.0-31-generic",
    os="Ubuntu 24.04",
    bios="2.4 (05/13/2025)",
    firmware=FIRMWARE,
    health="healthy",
)


def name_of(index: int) -> str:
    """Return the name of a host, from gpu-0001 on."""
    return f"gpu-{index + 1:04d}"


def rack_of(index: int) -> str:
    """Return the rack of a host."""
    return f"r{index // PER_RACK + 1:03d}"


def digest(text: str) -> str:
    """Return what stands for a plan, or for what is asked."""
    return hashlib.sha256(text.encode()).hexdigest()


def served(plan: str, up: int | None = None, layout: str = "DP2/TP4/EP4") -> Served:
    """Return the one deployment of the fleet as a host has it."""
    model = "Qwen/Qwen3-235B-A22B-Instruct-2507-FP8"
    return Served("chat", model, "vllm 0.33.0", layout, 2, 4, digest(plan), up)


def settled(name: str = "gpu-0001") -> Survey:
    """Return a host on which nothing would change."""
    concerns = tuple(ConcernSurvey(one, True, asked=digest(one)) for one in CONCERNS)
    plan = f"{name} 0.33.0"
    return Survey(name, AT, True, FACTS, concerns, (served(plan),), (served(plan, 2),))


def changing(survey: Survey, concern: str, *changes: Change, **more: object) -> Survey:
    """Return a survey in which one concern would change."""
    concerns = tuple(
        replace(one, settled=False, changes=changes, **more) if one.concern == concern else one
        for one in survey.concerns
    )
    return replace(survey, concerns=concerns)


def unit(name: str, replica: int, version: str) -> str:
    """Return the text of a unit that names its host and GPUs, as long as a real one."""
    gpus = ",".join(bdf(bus) for bus in MI325X_BUSES[replica * 4 : replica * 4 + 4])
    environment = "\n".join(f"Environment=VLLM_SETTING_{n}=value-{n}" for n in range(40))
    return (
        f"[Unit]\nDescription=chat {replica} on {name}\n\n[Service]\n{environment}\n"
        f"Environment=APIARY_GPUS={gpus}\nExecStart=/opt/vllm-{version}/bin/vllm serve\n"
    )


def _old_driver(survey: Survey) -> Survey:
    changes = (
        Change(
            "/etc/apt/sources.list.d/amdgpu.sources",
            "URIs: https://repo.radeon.com/amdgpu/30.20/ubuntu\n",
            "URIs: https://repo.radeon.com/amdgpu/30.30.4/ubuntu\n",
        ),
        Change("apt-get -q -y install amdgpu-dkms"),
    )
    facts = replace(survey.facts, driver=OLD_DRIVER)
    reboot = (f"the running driver is {OLD_DRIVER}, wanted {DRIVER}",)
    return replace(changing(survey, "rocm", *changes, reboot=reboot), facts=facts)


def _new_engine(survey: Survey) -> Survey:
    changes = [
        Change(
            f"/etc/systemd/system/apiary-chat-{replica}.service",
            unit(survey.host, replica, "0.33.0"),
            unit(survey.host, replica, "0.34.0"),
        )
        for replica in (0, 1)
    ]
    changes += [Change(f"restart: apiary-chat-{replica}.service") for replica in (0, 1)]
    wanted = replace(served(f"{survey.host} 0.34.0"), engine="vllm 0.34.0")
    changed = changing(survey, "replicas:chat", *changes, asked=digest("0.34.0"))
    return replace(changed, wanted=(wanted,))


def _fresh(survey: Survey) -> Survey:
    """Nothing was ever applied: every concern would change."""
    units = tuple(
        Change(f"/etc/systemd/system/apiary-chat-{n}.service", "", unit(survey.host, n, "0.33.0"))
        for n in (0, 1)
    )
    firsts = {
        "rocm": (Change("apt-get -q -y install amdgpu-dkms"),),
        "host_tuning": (Change("/etc/sysctl.d/zz-apiary.conf", "", "vm.swappiness=1\n"),),
        "weight_cache": (Change("mount: /srv/weights"),),
        "replicas:chat": units,
    }
    concerns = tuple(
        replace(one, settled=False, changes=firsts[one.concern]) if one.concern in firsts else one
        for one in survey.concerns
    )
    facts = replace(survey.facts, driver=None, rocm=None, health="unknown")
    return replace(survey, concerns=concerns, running=(), facts=facts)


def _dead(survey: Survey) -> Survey:
    finding = Finding.from_fields(
        code="FLEET-UNREACHABLE",
        severity="error",
        subject=survey.host,
        message=f"could not be reached: ssh: connect to host {survey.host} port 22: No route",
        remedy="see whether the host is up and its address is right, and run again",
        source=None,
    )
    return Survey(survey.host, AT, reached=False, findings=(finding,))


def _broken(survey: Survey) -> Survey:
    finding = Finding.from_fields(
        code="HOST-GPU-MISSING",
        severity="error",
        subject=survey.host,
        message="7 GPUs, expected 8",
        remedy="look at the slot; the BMC's log says more",
        source=None,
    )
    lost = replace(survey.facts, gpus=7, health="sick", hives=(7,))
    return replace(changing(survey, "replicas:chat", findings=(finding,)), facts=lost)


def _odd(survey: Survey) -> Survey:
    firmware = tuple((name, "19" if name == "SMC" else version) for name, version in FIRMWARE)
    facts = replace(survey.facts, kernel="6.8.0-48-generic", firmware=firmware)
    drifted = Change("/etc/sysctl.d/zz-apiary.conf", "vm.swappiness=60\n", "vm.swappiness=1\n")
    return replace(changing(survey, "host_tuning", drifted), facts=facts)


def fleet(count: int) -> Iterator[Survey]:
    """Yield the surveys of a fleet: a tenth old drivers, a fifth an older engine, a few of each."""
    for index in range(count):
        survey = settled(name_of(index))
        share = index / count
        if index % 97 == 96:
            yield _dead(survey)
        elif index % 89 == 88:
            yield _broken(survey)
        elif index % 53 == 52:
            yield _odd(survey)
        elif share < 0.1:
            yield _old_driver(survey)
        elif share < 0.3:
            yield _new_engine(survey)
        elif share >= 0.95:
            yield _fresh(survey)
        else:
            yield survey


def write_fleet(artifacts: Path, surveys: Iterable[Survey]) -> None:
    """Write surveys where `apiary plan --inventory` looks for them."""
    for survey in surveys:
        path = artifacts / survey.host / "survey.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(dumps(survey), encoding="utf-8")


def inventory_of(count: int, artifacts: Path | str = "artifacts") -> str:
    """Return an inventory (YAML) of such a fleet: racks as groups, each a failure domain."""
    lines = ["gpu_hosts:", "  vars:", f"    apiary_artifacts: {artifacts}", "  children:"]
    for first in range(0, count, PER_RACK):
        last = min(first + PER_RACK, count) - 1
        rack = rack_of(first)
        lines += [
            f"    rack_{rack}:",
            f"      vars: {{apiary_rack: {rack}}}",
            f"      hosts: {{'gpu-[{first + 1:04d}:{last + 1:04d}]': {{}}}}",
        ]
    return "\n".join(lines) + "\n"
