# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What each role is told of a host beside its GPUs, by scope: commands, files and links."""

from __future__ import annotations

from .rocm import ROCM
from .sources import Scope, tool

COMMON = Scope(
    commands=(
        tool("uname", "uname -srvm"),
        tool("virtualization", "systemd-detect-virt"),
        # Replicas that serve: nothing disruptive happens beside them.
        tool("replicas", "systemctl list-units --plain --no-legend --all 'apiary-*.service'"),
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
TUNING = Scope(
    commands=(
        tool("lscpu_summary", "lscpu"),
        # Bridges alone: that is where ACS redirects, and all devices are megabytes.
        tool("lspci_bridges", "lspci -vvv -D -d ::0604"),
        # Whole, grub.cfg may hold hashes of passwords.
        (
            "boot_entries",
            tuple(
                ("grep", "-hE", "^[[:space:]]*linux(16|efi)?[[:space:]]", path)
                for path in ("/boot/grub/grub.cfg", "/boot/grub2/grub.cfg")
            ),
        ),
        tool("grubby", "grubby --info=ALL"),
        tool("grub2-mkconfig", "grub2-mkconfig --version"),
        tool("shared_memory", "df --block-size=1 --output=size /dev/shm"),
        tool(
            "service_limits",
            "systemctl show --property=Id,LoadState,LimitMEMLOCK,LimitNOFILE,LimitCORE"
            " containerd.service docker.service gpuagent.service amd-metrics-exporter.service"
            " slurmd.service ssh.service sshd.service",
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
    ),
)
WEIGHTS = Scope(
    commands=(
        # By cat: a host of many containers has more mounts than a file may have here.
        tool("mounts", "cat /proc/mounts"),
        tool("mountinfo", "cat /proc/self/mountinfo"),
        # Without their options, which may hold a password.
        tool("fstab", "findmnt --fstab --json --output TARGET,SOURCE,FSTYPE"),
        # By pattern, not by type: for that systemd reads every unit there is.
        tool(
            "mount_units", "systemctl list-unit-files --plain --no-legend '*.mount' '*.automount'"
        ),
        # Hashes, for a mount unit may hold a password, too.
        tool(
            "mount_unit_hashes",
            "find /etc/systemd/system -maxdepth 1 -type f -name '*mount' -exec sha256sum '{}' +",
        ),
        tool("mount_nfs", "mount.nfs -V"),
        tool("nfs_helpers", "ls -1d /etc/krb5.keytab /sbin/cachefilesd"),
        # Local ones only: a server that is gone would block it.
        tool("space", "df --local --block-size=1 --output=target,fstype,size,avail"),
    ),
    files=(
        "/etc/apiary/weights.json",
        "/etc/systemd/system/weights-warm.service",
        "/proc/fs/nfsfs/volumes",
        "/sys/class/bdi/*/read_ahead_kb",
        "/sys/module/nfs/parameters/max_session_slots",
    ),
)
CONTAINER = Scope(
    commands=(
        tool("podman_version", "podman --version"),
        tool("docker_version", "docker --version"),
        # What the package manager would install, from what it already knows.
        tool("engines_apt", "apt-cache policy podman docker.io"),
        tool("engines_dnf", "dnf --quiet --cacheonly list podman"),
        tool(
            "device_owners", "find /dev/kfd /dev/dri -maxdepth 1 -type c -printf '%p %m %U %G\\n'"
        ),
        tool("docker_containers", "docker ps --quiet"),
        tool("selinux_mode", "getenforce"),
        tool("selinux_boolean", "getsebool container_use_devices"),
    ),
    files=(
        "/etc/cdi/*",
        "/run/cdi/*",
        "/etc/docker/daemon.json",
        "/etc/systemd/system/*.service.d/90-apiary-limits.conf",
        "/etc/systemd/system/apiary-cdi.service",
        "/etc/apt/sources.list.d/amd-container-toolkit.sources",
        "/etc/yum.repos.d/amd-container-toolkit.repo",
    ),
)
KUBERNETES = Scope(
    commands=(
        tool("kubelet_version", "kubelet --version"),
        tool(
            "kubelet_service",
            "systemctl show kubelet.service"
            " --property=LoadState,ActiveState,EnvironmentFiles,ExecStart",
        ),
        tool("kubelet_process", "pgrep --list-full --exact kubelet"),
        # Kubernetes distributions that run the kubelet inside a program of their own.
        tool(
            "kubernetes_distribution",
            "systemctl list-units --plain --no-legend --state=active"
            " 'k3s*.service' 'rke2*.service' 'k0s*.service' 'snap.microk8s*.service'",
        ),
        # The table only: pods' annotations can hold what a manifest's environment has.
        tool("pods", "crictl pods --state Ready"),
        tool("pods_2", "k3s crictl pods --state Ready"),
        tool(
            "pods_3",
            "/var/lib/rancher/rke2/bin/crictl --runtime-endpoint"
            " unix:///run/k3s/containerd/containerd.sock pods --state Ready",
        ),
        # Names alone: the files have the cluster's token.
        tool(
            "embedded_flags",
            "sh -c \"grep -rhoE '(cpu|topology|memory)-manager-[a-z-]+=|[a-z]*-?reserved[a-z-]*="
            "|eviction-hard=' --exclude=90-apiary.yaml /etc/rancher/k3s /etc/rancher/rke2\"",
        ),
        tool("exporter_package", "dpkg-query --show '--showformat=${Version}' amdgpu-exporter"),
    ),
    files=(
        "/var/lib/kubelet/config.yaml",
        "/etc/kubernetes/kubelet-config.yaml",
        "/etc/kubernetes/kubelet.conf.d/*.conf",
        "/etc/rancher/*/config.yaml.d/90-apiary.yaml",
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
        tool("kernel_log", "dmesg --level=emerg,alert,crit,err,warn,info", "dmesg"),
        tool("listening", "ss -ltnH"),
        # With the cause, where an engine has died.
        tool("replica_status", "systemctl show --property=Id,StatusText apiary-*.service"),
        tool("pcie_counters", "amd-smi metric --pcie --json"),
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
        tool("haproxy_version", "haproxy -v"),
        tool("keepalived_version", "keepalived --version"),
        # By cat: a large fleet's has more bytes than a file may have here.
        tool("router_document", "cat /etc/haproxy/apiary/router.json"),
    ),
    files=(
        "/proc/meminfo",
        "/proc/net/route",
        "/sys/fs/selinux/booleans/haproxy_connect_any",
    ),
)
TELEMETRY = Scope(
    commands=(
        tool("exporters", "ls -1d /usr/bin/prometheus-node-exporter /usr/bin/node_exporter"),
    ),
    files=("/etc/apiary/*/ports.nft",),
)
# Of a writer, which exports its weights.
EXPORTS = Scope(commands=(tool("nfs_server", "ls -1d /usr/sbin/exportfs"),))
ENGINE = Scope(
    commands=(
        # What plans and retained releases name, a line each: their texts are large.
        tool(
            "engines_named",
            "grep --recursive --no-filename --only-matching --include=plan.json --extended-regexp"
            """ '"(executable|image)": "[^"]+"' /etc/apiary /var/lib/apiary/releases""",
        ),
    ),
    files=("/var/lib/apiary/engines/*.json",),
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
    "telemetry": TELEMETRY,
    "exports": EXPORTS,
    "engine": ENGINE,
    "reboot": REBOOT,
    "plans": PLANS,
}
