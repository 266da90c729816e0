# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Collect what a host itself says, beside its GPUs: system, kernel, packages, mounts, services.

A scope is what one concern needs; the document is `apiary.evidence/v1`, verbatim as always.
"""

from __future__ import annotations

import datetime
import re
from dataclasses import dataclass
from typing import Any

from . import gpu as evidence
from .gpu import Commands, Files, Runner

# A repository or mirror address may carry a password, which may hold what an address may not.
CREDENTIALS = re.compile(r"(?<=://)(?:[^\s/@:\"']+:[^\s\"']*|[^\s/\"']+)(?=@)")
_PASSWORD = re.compile(r"(?im)^(\s*(?:proxy_)?password\s*[=:]).*$")


def masked(text: str) -> str:
    """Return text without the passwords of addresses and of repository files."""
    return _PASSWORD.sub(r"\1 ***", CREDENTIALS.sub("***", text))


# State or architecture, name, version: one package a line, in either manager's words.
DPKG_LINE = "${db:Status-Abbrev}\\t${Package}\\t${Version}\\n"
RPM_LINE = "ii\\t%{NAME}\\t%|EPOCH?{%{EPOCH}:}|%{VERSION}-%{RELEASE}\\n"
# What AMD's repositories install, kernels and their headers, and what they need, as globs.
ROCM_PACKAGES = (
    "amd-smi-lib",
    "amdgpu*",
    "amdrocm*",
    "comgr*",
    "composablekernel*",
    "dkms",
    "epel-release",
    "half",
    "hip*",
    "hsa*",
    "kernel*",
    "libatomic1",
    "libdrm*amdgpu*",
    "libquadmath0",
    "linux-generic*",
    "linux-headers-*",
    "linux-image-*",
    "linux-modules-extra-*",
    "migraphx*",
    "miopen*",
    "mivisionx*",
    "openmp-extras*",
    "oracle-epel-release*",
    "python3-dnf-plugin-versionlock",
    "python3-setuptools",
    "python3-wheel",
    "rccl*",
    "rdc*",
    "roc*",
    "rpp*",
)


@dataclass(frozen=True)
class Scope:
    """What one concern needs to know: commands, file patterns, patterns of symbolic links."""

    commands: Commands = ()
    files: tuple[str, ...] = ()
    links: tuple[str, ...] = ()


# What every concern needs.
COMMON = Scope(
    commands=(
        ("uname", (("uname", "-srvm"),)),
        ("virtualization", (("systemd-detect-virt",),)),
        # Replicas that serve: nothing disruptive happens beside them.
        (
            "replicas",
            (("systemctl", "list-units", "--plain", "--no-legend", "--all", "apiary-*.service"),),
        ),
    ),
    files=(
        "/etc/os-release",
        "/proc/cmdline",
        "/proc/meminfo",
        "/proc/sys/kernel/osrelease",
        "/proc/sys/kernel/random/boot_id",
        # What each process holds of each GPU: pods and containers serve, too.
        "/sys/class/kfd/kfd/proc/*/vram_*",
    ),
)
ROCM = Scope(
    commands=(
        ("dpkg_packages", (("dpkg-query", "-W", f"-f={DPKG_LINE}", *ROCM_PACKAGES),)),
        # Names what is half-installed, whatever package it is.
        ("dpkg_audit", (("dpkg", "--audit"),)),
        ("apt_holds", (("apt-mark", "showhold"),)),
        ("rpm_packages", (("rpm", "-qa", "--qf", RPM_LINE, *ROCM_PACKAGES),)),
        ("dnf_repositories", (("dnf", "-q", "repolist", "--enabled"),)),
        ("dkms_status", (("dkms", "status"),)),
        ("secure_boot", (("mokutil", "--sb-state"),)),
        # The keys DKMS signs with: Ubuntu's, and its own.
        ("mok_shim", (("mokutil", "--test-key", "/var/lib/shim-signed/mok/MOK.der"),)),
        ("mok_dkms", (("mokutil", "--test-key", "/var/lib/dkms/mok.pub"),)),
        ("driver_version", (("modinfo", "-F", "version", "amdgpu"),)),
        ("driver_source", (("modinfo", "-F", "srcversion", "amdgpu"),)),
        ("driver_file", (("modinfo", "-n", "amdgpu"),)),
        ("driver_signer", (("modinfo", "-F", "signer", "amdgpu"),)),
        ("kernels", (("find", "/boot", "-maxdepth", "1", "-type", "f", "-name", "vmlinuz-*"),)),
        (
            "initial_ramdisks",
            (("find", "/boot", "-maxdepth", "1", "-name", "init*", "-printf", "%p %T@\n"),),
        ),
        # Outside of kernel/ stands what DKMS built.
        (
            "built_drivers",
            (
                (
                    "find",
                    "/lib/modules/",
                    "-maxdepth",
                    "4",
                    "-name",
                    "amdgpu.ko*",
                    "-printf",
                    "%p %T@\n",
                ),
            ),
        ),
        # Followed links: one that leads nowhere is not there.
        (
            "kernel_headers",
            (
                (
                    "find",
                    "-L",
                    "/lib/modules/",
                    "-mindepth",
                    "2",
                    "-maxdepth",
                    "2",
                    "-name",
                    "build",
                    "-type",
                    "d",
                ),
            ),
        ),
        (
            "kernel_modules",
            (("find", "/lib/modules/", "-mindepth", "1", "-maxdepth", "1", "-type", "d"),),
        ),
        ("boot_space", (("df", "-Pk", "/boot"),)),
        ("gpu_groups", (("getent", "group", "render", "video"),)),
        # Names alone, for NIS tells hashes; a directory may have more than anyone can use here.
        ("users", (("sh", "-c", "getent passwd | cut -d: -f1 | head -n 20000"),)),
        (
            "device_nodes",
            (("find", "/dev/kfd", "/dev/dri", "-maxdepth", "1", "-printf", "%p %m %u %g\n"),),
        ),
        (
            "signing_keys",
            (
                (
                    *("find", "/etc/apt/keyrings", "/etc/pki/rpm-gpg", "-type", "f"),
                    # Public keys, told whole: whose they are is for the plan to say.
                    *("-name", "*amd*", "-size", "-64k", "-printf", "\\n%p base64:"),
                    *("-exec", "base64", "-w0", "{}", ";"),
                ),
            ),
        ),
    ),
    files=(
        "/etc/apt/preferences.d/*",
        "/etc/apt/sources.list",
        "/etc/apt/sources.list.d/*",
        "/etc/dnf/plugins/versionlock.list",
        "/etc/modprobe.d/*",
        "/etc/nsswitch.conf",
        "/etc/udev/rules.d/*amdgpu*",
        # Only AMD's: other repositories may have a password in their file.
        "/etc/yum.repos.d/*amd*.repo",
        "/etc/yum.repos.d/*rocm*.repo",
        "/opt/rocm/.info/version",
        "/sys/bus/pci/devices/*/modalias",
        "/sys/module/amdgpu/initstate",
        "/sys/module/amdgpu/srcversion",
        "/sys/module/amdgpu/version",
    ),
    links=("/opt/rocm", "/opt/rocm/core"),
)
TUNING = Scope(
    commands=(
        ("lscpu_summary", (("lscpu",),)),
        # Bridges alone: that is where ACS redirects, and all devices are megabytes.
        ("lspci_bridges", (("lspci", "-vvv", "-D", "-d", "::0604"),)),
        # Whole, grub.cfg may hold hashes of passwords.
        (
            "boot_entries",
            tuple(
                ("grep", "-hE", "^[[:space:]]*linux(16|efi)?[[:space:]]", path)
                for path in ("/boot/grub/grub.cfg", "/boot/grub2/grub.cfg")
            ),
        ),
        ("grubby", (("grubby", "--info=ALL"),)),
        ("grub2-mkconfig", (("grub2-mkconfig", "--version"),)),
        ("shared_memory", (("df", "--block-size=1", "--output=size", "/dev/shm"),)),  # noqa: S108
        (
            "service_limits",
            (
                (
                    "systemctl",
                    "show",
                    "--property=Id,LoadState,LimitMEMLOCK,LimitNOFILE,LimitCORE",
                    "containerd.service",
                    "docker.service",
                    "gpuagent.service",
                    "amd-metrics-exporter.service",
                ),
            ),
        ),
    ),
    files=(
        "/etc/default/grub",
        "/etc/default/grub.d/*.cfg",
        "/etc/kernel/cmdline",
        "/etc/kernelstub/configuration",
        "/boot/loader/loader.conf",
        "/efi/loader/loader.conf",
        "/boot/efi/loader/loader.conf",
        "/usr/sbin/update-grub",
        "/var/lib/apiary/kernel-arguments.json",
        "/var/lib/kubelet/config.yaml",
        "/etc/systemd/system/kubelet.service",
        "/etc/sysctl.conf",
        "/etc/sysctl.d/*.conf",
        "/run/sysctl.d/*.conf",
        "/usr/local/lib/sysctl.d/*.conf",
        "/usr/lib/sysctl.d/*.conf",
        "/proc/sys/kernel/numa_balancing",
        "/proc/sys/vm/max_map_count",
        "/proc/sys/vm/swappiness",
        "/proc/sys/vm/zone_reclaim_mode",
        "/proc/sys/fs/inotify/*",
        "/proc/sys/net/ipv4/conf/all/rp_filter",
        "/proc/sys/net/ipv4/conf/all/arp_ignore",
        "/proc/sys/net/ipv4/conf/all/arp_announce",
        "/sys/kernel/mm/transparent_hugepage/enabled",
        "/sys/kernel/iommu_groups/*/type",
        "/sys/devices/system/cpu/online",
        "/sys/devices/system/cpu/present",
        "/sys/devices/system/cpu/smt/active",
        "/sys/devices/system/cpu/smt/control",
        "/sys/devices/system/cpu/cpu[0-9]*/cpufreq/scaling_governor",
        "/sys/devices/system/cpu/cpu0/cpufreq/scaling_available_governors",
        "/sys/devices/system/cpu/cpu[0-9]*/cpuidle/state[0-9]*/name",
        "/sys/devices/system/cpu/cpu[0-9]*/cpuidle/state[0-9]*/disable",
        "/sys/module/amdgpu/initstate",
        "/etc/systemd/system/apiary-host-tuning.service",
        "/etc/systemd/system/apiary-amdgpu.service",
        "/etc/systemd/system/*.service.d/apiary.conf",
    ),
    links=("/etc/systemd/system/multi-user.target.wants/apiary-*.service",),
)
WEIGHTS = Scope(
    commands=(
        # By cat: a host of many containers has more mounts than a file may have here.
        ("mounts", (("cat", "/proc/mounts"),)),
        ("mountinfo", (("cat", "/proc/self/mountinfo"),)),
        # Without their options, which may hold a password.
        ("fstab", (("findmnt", "--fstab", "--json", "--output", "TARGET,SOURCE,FSTYPE"),)),
        (
            "mount_units",
            (
                (
                    # By pattern, not by type: for that systemd reads every unit there is.
                    *("systemctl", "list-unit-files", "--plain", "--no-legend"),
                    *("*.mount", "*.automount"),
                ),
            ),
        ),
        # Hashes, for a mount unit may hold a password, too.
        (
            "mount_unit_hashes",
            (
                (
                    "find",
                    "/etc/systemd/system",
                    "-maxdepth",
                    "1",
                    "-type",
                    "f",
                    "-name",
                    "*mount",
                    "-exec",
                    "sha256sum",
                    "{}",
                    "+",
                ),
            ),
        ),
        ("mount_nfs", (("mount.nfs", "-V"),)),
        ("nfs_helpers", (("ls", "-1d", "/etc/krb5.keytab", "/sbin/cachefilesd"),)),
        # Local ones only: a server that is gone would block it.
        ("space", (("df", "--local", "--block-size=1", "--output=target,fstype,size,avail"),)),
        ("weights_check", (("/usr/libexec/apiary/weights-check", "--json"),)),
    ),
    files=(
        "/etc/apiary/weights.json",
        "/etc/default/cachefilesd",
        "/etc/modprobe.d/apiary-nfs.conf",
        "/etc/systemd/system/weights-warm.service",
        "/etc/udev/rules.d/99-zz-apiary-weights.rules",
        "/proc/fs/nfsfs/volumes",
        "/sys/class/bdi/*/read_ahead_kb",
        "/sys/module/nfs/parameters/max_session_slots",
        "/usr/libexec/apiary/weights*",
    ),
)
CONTAINER = Scope(
    commands=(
        ("podman_version", (("podman", "--version"),)),
        ("docker_version", (("docker", "--version"),)),
        # What the package manager would install, from what it already knows.
        ("engines_apt", (("apt-cache", "policy", "podman", "docker.io"),)),
        ("engines_dnf", (("dnf", "--quiet", "--cacheonly", "list", "podman"),)),
        (
            "device_owners",
            (
                (
                    *("find", "/dev/kfd", "/dev/dri", "-maxdepth", "1", "-type", "c"),
                    *("-printf", "%p %m %U %G\\n"),
                ),
            ),
        ),
        ("cdi_service", (("systemctl", "is-enabled", "apiary-cdi.service"),)),
        ("docker_service", (("systemctl", "is-active", "docker.service"),)),
        ("docker_containers", (("docker", "ps", "--quiet"),)),
        ("selinux_mode", (("getenforce",),)),
        ("selinux_boolean", (("getsebool", "container_use_devices"),)),
    ),
    files=(
        "/etc/cdi/*",
        "/run/cdi/*",
        "/etc/docker/daemon.json",
        "/etc/containers/*/90-apiary.conf",
        "/etc/systemd/system/*.service.d/90-apiary-limits.conf",
        "/etc/systemd/system/apiary-cdi.service",
        "/usr/libexec/apiary/cdi",
        "/etc/apt/sources.list.d/amd-container-toolkit.sources",
        "/etc/yum.repos.d/amd-container-toolkit.repo",
    ),
)
KUBERNETES = Scope(
    commands=(
        ("kubelet_version", (("kubelet", "--version"),)),
        (
            "kubelet_service",
            (("systemctl", "show", "kubelet.service", "--property=LoadState,ActiveState"),),
        ),
        ("kubelet_process", (("pgrep", "--list-full", "--exact", "kubelet"),)),
        # Kubernetes distributions that run the kubelet inside a program of their own.
        (
            "kubernetes_distribution",
            (
                (
                    "systemctl",
                    "list-units",
                    "--plain",
                    "--no-legend",
                    "--state=active",
                    "k3s*.service",
                    "rke2*.service",
                    "k0s*.service",
                    "snap.microk8s*.service",
                ),
            ),
        ),
        # The table only: pods' annotations can hold what a manifest's environment has.
        ("pods", (("crictl", "pods", "--state", "Ready"),)),
        (
            "exporter_package",
            (("dpkg-query", "--show", "--showformat=${Version}", "amdgpu-exporter"),),
        ),
    ),
    files=(
        "/var/lib/kubelet/config.yaml",
        "/etc/kubernetes/kubelet.conf.d/*.conf",
        "/etc/default/kubelet",
        "/etc/sysconfig/kubelet",
        "/var/lib/kubelet/*_manager_state",
        "/var/lib/kubelet/device-plugins/kubelet_internal_checkpoint",
        # Sockets: what can't be read is there.
        "/var/lib/kubelet/plugins_registry/*",
        "/var/lib/amd-metrics-exporter/*",
        "/proc/sys/fs/inotify/*",
        "/etc/sysctl.d/90-apiary-kubernetes.conf",
    ),
)
ACCEPTANCE = Scope(
    commands=(
        ("kernel_log", (("dmesg", "--level=emerg,alert,crit,err,warn,info"), ("dmesg",))),
        ("listening", (("ss", "-ltnH"),)),
        ("pcie_counters", (("amd-smi", "metric", "--pcie", "--json"),)),
    ),
    files=(
        "/etc/apiary/weights.json",
        "/etc/apiary/*/plan.json",
        "/etc/apiary/*/replica-*",
        "/etc/systemd/system/apiary*",
        "/etc/containers/systemd/apiary-*",
        "/usr/libexec/apiary/*",
        "/usr/libexec/apiary/apiary_launch/*",
        "/sys/class/drm/card*/device/pcie_replay_count",
        "/sys/class/drm/card*/device/ras/*_err_count",
        "/sys/class/drm/card*/device/ras/gpu_vram_bad_pages",
        "/sys/class/drm/card*/device/hwmon/hwmon*/power1_cap",
    ),
)
ROUTER = Scope(
    commands=(
        ("haproxy_version", (("haproxy", "-v"),)),
        ("keepalived_version", (("keepalived", "--version"),)),
        # By cat: a large fleet's has more bytes than a file may have here.
        ("router_document", (("cat", "/etc/haproxy/apiary/router.json"),)),
    ),
    files=(
        "/proc/net/route",
        "/sys/fs/selinux/booleans/haproxy_connect_any",
        # What sent a router's spans in release 0.1.0.
        "/etc/systemd/system/apiary-traces.*",
    ),
)
REBOOT = Scope(files=("/var/lib/apiary/reboot.json",))
# What the host serves, by the plans that it got.
PLANS = Scope(files=("/etc/apiary/plan.json", "/etc/apiary/*/plan.json"))

SCOPES = {
    "rocm": ROCM,
    "tuning": TUNING,
    "weights": WEIGHTS,
    "container": CONTAINER,
    "kubernetes": KUBERNETES,
    "acceptance": ACCEPTANCE,
    "router": ROUTER,
    "reboot": REBOOT,
    "plans": PLANS,
}


def collect_host(
    scopes: list[str], run: Runner = evidence.run_command, root: str = "/"
) -> dict[str, Any]:
    """Return the evidence of the named scopes; "gpu" stands for all that evidence.collect gives."""
    started = datetime.datetime.now(datetime.timezone.utc)
    gpu = "gpu" in scopes
    wanted = [COMMON, *(SCOPES[name] for name in scopes if name != "gpu")]
    if wanted == [COMMON] and gpu:
        return evidence.collect(run, root)
    if gpu:
        evidence.raise_file_limit()
    asked = [*evidence.COMMANDS] if gpu else []
    names = {name for name, _attempts in asked}
    asked += [each for one in wanted for each in one.commands if each[0] not in names]
    commands = evidence.collect_commands(run, tuple(asked))
    for label, said in commands.items():
        if not names.intersection((label, label.rpartition("_")[0])):
            said["stdout"] = masked(said["stdout"])

    def read_all(found: Files) -> None:
        for scope in wanted:
            for pattern in scope.files:
                found.read_all(pattern)
            for pattern in scope.links:
                for path in found.paths(pattern):
                    found.link(path)

    found = evidence.in_time(root, read_all)
    found.files = {path: masked(text) for path, text in found.files.items()}
    if not gpu:
        return evidence.document(started, commands, found)
    siblings = commands["lscpu"]["exit"] != 0
    # A GPU that hangs has its own time, and leaves the rest theirs.
    more = evidence.in_time(root, lambda found: evidence.collect_files(found, siblings))
    for kept, read in zip(
        (found.files, found.links, found.unreadable), (more.files, more.links, more.unreadable)
    ):
        kept.update(read)
    return evidence.document(started, commands, found)
