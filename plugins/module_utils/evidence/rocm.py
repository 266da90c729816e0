# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the role `rocm` reads of a host: packages, repositories, kernels, driver, device nodes."""

from __future__ import annotations

from .sources import Scope, tool

# State or architecture, name, version: one package a line, in either manager's words.
DPKG_LINE = "${db:Status-Abbrev}\\t${Package}\\t${Version}\\n"
RPM_LINE = "ii\\t%{NAME}\\t%|EPOCH?{%{EPOCH}:}|%{VERSION}-%{RELEASE}\\n"
# What AMD's repositories install, kernels and their headers, and what they need, as globs.
ROCM_PACKAGES = (
    "amd-smi-lib amdgpu* amdrocm* comgr* composablekernel* dkms epel-release half hip* hsa* "
    "kernel* libatomic1 libdrm*amdgpu* libquadmath0 linux-* migraphx* miopen* mivisionx* "
    "openmp-extras* oracle-epel-release* python3-dnf-plugin-versionlock python3-setuptools "
    "python3-wheel rccl* rdc* roc* rpp*"
)


# What every concern needs.

ROCM = Scope(
    commands=(
        tool("dpkg_packages", f"dpkg-query -W '-f={DPKG_LINE}' {ROCM_PACKAGES}"),
        # Names what is half-installed, whatever package it is.
        tool("dpkg_audit", "dpkg --audit"),
        tool("apt_holds", "apt-mark showhold"),
        # Of the running kernel, and what brings the next one's: no digit begins its flavour.
        tool(
            "apt_kernel_headers",
            "sh -c 'apt-cache madison linux-headers-$(uname -r); "
            "apt-cache search --names-only ^linux-headers-[a-z]'",
        ),
        tool("rpm_packages", f"rpm -qa --qf '{RPM_LINE}' {ROCM_PACKAGES}"),
        tool("dnf_repositories", "dnf -q repolist --enabled"),
        tool("dkms_status", "dkms status"),
        # Each version's directory, and its source: links of removed ones lead nowhere.
        tool(
            "dkms_directories",
            "find -L /var/lib/dkms/amdgpu -mindepth 1 -maxdepth 3 "
            "( -path '*/source/dkms.conf' -o -type d -path '/var/lib/dkms/amdgpu/[0-9]*' "
            "-not -path '/var/lib/dkms/amdgpu/*/*' )",
        ),
        tool("secure_boot", "mokutil --sb-state"),
        # The keys DKMS signs with: Ubuntu's, and its own.
        tool("mok_shim", "mokutil --test-key /var/lib/shim-signed/mok/MOK.der"),
        tool("mok_dkms", "mokutil --test-key /var/lib/dkms/mok.pub"),
        tool("driver_version", "modinfo -F version amdgpu"),
        tool("driver_source", "modinfo -F srcversion amdgpu"),
        tool("driver_file", "modinfo -n amdgpu"),
        tool("driver_signer", "modinfo -F signer amdgpu"),
        tool("kernels", "find /boot -maxdepth 1 -type f -name 'vmlinuz-*'"),
        tool("initial_ramdisks", "find /boot -maxdepth 1 -name 'init*' -printf '%p %T@\n'"),
        # Outside of kernel/ stands what DKMS built.
        tool(
            "built_drivers", "find /lib/modules/ -maxdepth 4 -name 'amdgpu.ko*' -printf '%p %T@\n'"
        ),
        # Followed links: one that leads nowhere is not there.
        tool("kernel_headers", "find -L /lib/modules/ -mindepth 2 -maxdepth 2 -name build -type d"),
        tool("kernel_modules", "find /lib/modules/ -mindepth 1 -maxdepth 1 -type d"),
        tool("boot_space", "df -Pk /boot"),
        tool("gpu_groups", "getent group render video"),
        # Names alone, for NIS tells hashes; a directory may have more than anyone can use here.
        tool("users", "sh -c 'getent passwd | cut -d: -f1 | head -n 20000'"),
        tool("device_nodes", "find /dev/kfd /dev/dri -maxdepth 1 -printf '%p %m %u %g\n'"),
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
