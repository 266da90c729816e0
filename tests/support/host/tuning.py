# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Evidence of hosts that are to be tuned, built from what a test is about."""

import dataclasses

from ansible_collections.apiary.instinct.plugins.plugin_utils.evidence.types import (
    CommandOutput,
    Evidence,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.host.types import decide

RELEASES = {
    "debian": ("debian", "12"),
    "ubuntu": ("ubuntu", "24.04"),
    "oracle": ("ol", "9.6"),
}
GRUB = 'GRUB_TIMEOUT=5\nGRUB_CMDLINE_LINUX="quiet"\n'
LIVE = {
    "/proc/sys/kernel/numa_balancing": "1\n",
    "/proc/sys/vm/max_map_count": "65530\n",
    "/proc/sys/vm/swappiness": "60\n",
    "/proc/sys/vm/zone_reclaim_mode": "0\n",
    "/proc/sys/fs/inotify/max_user_watches": "8192\n",
    "/proc/sys/fs/inotify/max_user_instances": "128\n",
    "/proc/sys/fs/inotify/max_queued_events": "16384\n",
    "/sys/kernel/mm/transparent_hugepage/enabled": "always [madvise] never\n",
    "/sys/devices/system/cpu/online": "0-3\n",
    "/sys/devices/system/cpu/present": "0-3\n",
    "/sys/devices/system/cpu/smt/active": "0\n",
    "/sys/kernel/iommu_groups/0/type": "identity\n",
    "/proc/meminfo": "MemTotal: 4294967296 kB\n",
}


def said(stdout, code=0, error=None):
    """A command that ran."""
    return CommandOutput(("command",), code, stdout, "", 0.0, error)


def gpu(device="0x74a5", speed="32.0 GT/s PCIe", width="16", bdf="0000:05:00.0", vram=2**38):
    """The sysfs files of one GPU."""
    base = f"/sys/bus/pci/devices/{bdf}/"
    values = {
        "vendor": "0x1002",
        "device": device,
        "class": "0x120000",
        "current_link_speed": speed,
        "current_link_width": width,
        "mem_info_vram_total": str(vram),
    }
    return {base + name: value + "\n" for name, value in values.items()}


def idle_states(*names, cpus=(0, 1)):
    """cpuidle of some CPUs, their states by name in order."""
    files = {}
    for cpu in cpus:
        for number, name in enumerate(names):
            base = f"/sys/devices/system/cpu/cpu{cpu}/cpuidle/state{number}"
            files |= {f"{base}/name": f"{name}\n", f"{base}/disable": "0\n"}
    return files


def grub_cfg(*lines):
    """What is asked of grub.cfg: its linux lines."""
    return said("".join(f"\tlinux\t/boot/vmlinuz-6.1 root=/dev/sda1 ro {line}\n" for line in lines))


def services(**units):
    """`systemctl show` of units by name, each with its limits or None where it is not there."""
    blocks = []
    for name, limits in units.items():
        state = "not-found" if limits is None else "loaded"
        lines = [f"Id={name}.service", f"LoadState={state}"]
        lines += [f"{key}={value}" for key, value in (limits or {}).items()]
        blocks.append("\n".join(lines) + "\n")
    return said("\n".join(blocks))


def unreadable(evidence, path, problem="EACCES"):
    """The same host, one of whose files could not be read."""
    files = {name: text for name, text in evidence.files.items() if name != path}
    return dataclasses.replace(evidence, files=files, unreadable={path: problem})


def host(
    release="debian",
    virtualization="none",
    cmdline="BOOT_IMAGE=/boot/vmlinuz-6.1 root=/dev/sda1 ro quiet",
    files=None,
    gone=(),
    links=None,
    serving=False,
    cpu="AuthenticAMD",
    gpus=None,
    **commands,
):
    """A host with GRUB that is not tuned yet: two sockets, an MI325X, nothing special.

    ``files`` are added to its own or replace them, ``gone`` are paths it has not.
    """
    family, version = RELEASES[release]
    own = {
        "/etc/os-release": f'ID="{family}"\nVERSION_ID="{version}"\n',
        "/proc/cmdline": cmdline + "\n",
        "/etc/default/grub": GRUB,
        **LIVE,
        **(gpu() if gpus is None else gpus),
    }
    if release in ("debian", "ubuntu"):
        own["/usr/sbin/update-grub"] = "#!/bin/sh\n"
    merged = {**own, **(files or {})}
    unit = "apiary-qwen-0.service loaded active running A replica\n"
    return Evidence(
        host="gpu-001",
        collected_at="2026-11-21T00:00:00Z",
        collector="2",
        commands={
            "virtualization": said(virtualization + "\n", int(virtualization == "none")),
            "lscpu_summary": said(f"Vendor ID: {cpu}\nSocket(s): 2\nNUMA node(s): 2\n"),
            "lspci_bridges": said("0000:00:01.1 PCI bridge\n\tACSCtl: SrcValid- TransBlk-\n"),
            "shared_memory": said("  1B-blocks\n17179869184\n"),
            "boot_entries": grub_cfg("quiet"),
            "service_limits": services(containerd=None, docker=None),
            **({"replicas": said(unit)} if serving else {}),
            **commands,
        },
        files={path: text for path, text in merged.items() if path not in gone},
        links=links or {},
    )


def tuned(evidence=None, **settings):
    """The plan for a host, by the settings of the role."""
    return decide("host_tuning", settings, evidence or host())


def applied(evidence, plan, **commands):
    """The evidence of the same host once the plan's files and live values are there."""
    files = dict(evidence.files)
    for file in plan.files:
        files.pop(file.path, None)
        if file.content is not None:
            files[file.path] = file.content
    for one in plan.live:
        files[one.path] = one.value + "\n"
    return Evidence(
        evidence.host,
        evidence.collected_at,
        evidence.collector,
        {**evidence.commands, **commands},
        files,
        evidence.links,
    )


def file_of(plan, path):
    """A planned file's content; a path that is not planned fails."""
    (content,) = [file.content for file in plan.files if file.path == path]
    return content


def codes(findings, severity=None):
    """The codes of findings."""
    return {one.code for one in findings if severity in (None, one.severity)}


def failing(plan):
    """Code and subject, without the host, of the checks that fail."""
    return {
        (one.code, one.subject.removeprefix("gpu-001: "))
        for one in plan.checks
        if one.state == "fail"
    }
