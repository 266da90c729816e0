# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A machine as the role `rocm` sees it: it gives evidence, takes a plan, and reboots."""

from __future__ import annotations

import fnmatch
import re
from dataclasses import dataclass, field, replace

from ansible_collections.apiary.instinct.plugins.plugin_utils.documents import from_document
from ansible_collections.apiary.instinct.plugins.plugin_utils.evidence.types import (
    CommandOutput,
    Evidence,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.host.rocm import Settings, decide

# VERSION_ID, codename, a kernel that AMD's matrix has.
SYSTEMS = {
    "ubuntu-22.04": ("ubuntu", "22.04", "5.15.0-119-generic"),
    "ubuntu-24.04": ("ubuntu", "24.04", "6.8.0-101-generic"),
    "debian-12": ("debian", "12", "6.1.0-43-amd64"),
    "debian-13": ("debian", "13", "6.12.57+deb13-amd64"),
    "rhel-9.4": ("rhel", "9.4", "5.14.0-427.13.1.el9_4.x86_64"),
    "rhel-9.6": ("rhel", "9.6", "5.14.0-570.12.1.el9_6.x86_64"),
    "ol-9.6": ("ol", "9.6", "6.12.0-1.23.3.2.el9uek.x86_64"),
    "rocky-9.6": ("rocky", "9.6", "5.14.0-570.17.1.el9_6.x86_64"),
}
LISTED = {
    "rhel": "codeready-builder-for-rhel-9-x86_64-rpms CRB\nepel Extra Packages\n",
    "ol": "ol9_codeready_builder CRB\nol9_developer_EPEL EPEL\n",
    "rocky": "crb CRB\nepel Extra Packages\n",
}
# The build of the driver and of the userland that the repositories have.
DRIVER_BUILD, ROCM_BUILD = "2341068", "93"
MI325X, MI300X, MI355X, MI325X_VF = "74a5", "74a1", "75a3", "74b9"


@dataclass(frozen=True)
class Machine:
    """A host; ``builds`` maps a kernel to the DKMS version that is installed for it."""

    system: str = "ubuntu-24.04"
    kernels: tuple[str, ...] = ()
    headers: tuple[str, ...] | None = None
    packages: dict[str, str] = field(default_factory=dict)
    broken: tuple[str, ...] = ()
    held: tuple[str, ...] = ()
    files: dict[str, str] = field(default_factory=dict)
    builds: dict[str, str] = field(default_factory=dict)
    loaded: dict[str, str] | None = None
    gpus: tuple[str, ...] = (MI325X,) * 8
    cmdline: str = "ro quiet"
    virtualization: str = "none"
    secure_boot: str = "SecureBoot disabled"
    mok: str = ""
    boot_mib: int = 900
    replicas: str = ""
    listed: str | None = None
    built_at: float = 100.0
    ramdisk_at: float = 200.0
    clock: float = 1000.0
    module_file: str | None = None
    node_group: str = "render"
    node_mode: str = "660"
    render_nodes: int | None = None
    build_state: str = "installed"
    packaged: bool = True  # the kernels' images are packages of Ubuntu's
    images: tuple[str, ...] = ()  # of kernels that have no modules

    @property
    def identity(self) -> tuple[str, str, str]:
        """ID and VERSION_ID of os-release, and the running kernel."""
        return SYSTEMS[self.system]

    @property
    def running(self) -> str:
        return (self.kernels or (self.identity[2],))[0]

    @property
    def bootable(self) -> tuple[str, ...]:
        return self.kernels or (self.running,)

    def evidence(self) -> Evidence:
        """What module_utils/evidence/host.py collects on this machine."""
        name, version, _kernel = self.identity
        dpkg = name in ("ubuntu", "debian")
        files = {
            "/etc/os-release": f'ID={name}\nVERSION_ID="{version}"\nPRETTY_NAME="{self.system}"\n',
            "/proc/cmdline": self.cmdline,
            "/proc/sys/kernel/osrelease": f"{self.running}\n",
            **self.files,
        }
        for number, device in enumerate(self.gpus):
            files[f"/sys/bus/pci/devices/0000:{number + 5:02x}:00.0/modalias"] = (
                f"pci:v00001002d0000{device.upper()}sv00001002sd000074A5bc12sc00i00\n"
            )
        if self.loaded:
            files["/sys/module/amdgpu/initstate"] = "live\n"
            files |= {f"/sys/module/amdgpu/{key}": value for key, value in self.loaded.items()}
        headers = self.bootable if self.headers is None else self.headers
        states = {name: "iF " if name in self.broken else "ii " for name in self.packages}
        package_lines = "".join(
            f"{states[name]}\t{name}\t{version}\n" for name, version in self.packages.items()
        )
        if self.packaged and name == "ubuntu":
            package_lines += "".join(f"ii \tlinux-image-{one}\t1\n" for one in self.bootable)
        suffix = "updates/dkms" if dpkg else "extra"
        ramdisk = {"ubuntu": "initrd.img-{}", "debian": "initrd.img-{}"}.get(
            name, "initramfs-{}.img"
        )
        nodes = ["/dev/dri/card0 660 root video"]
        if self.loaded:
            nodes += [f"/dev/kfd {self.node_mode} root {self.node_group}"]
            nodes += [
                f"/dev/dri/renderD{128 + number} {self.node_mode} root {self.node_group}"
                for number in range(
                    len(self.gpus) if self.render_nodes is None else self.render_nodes
                )
            ]
        listed = LISTED.get(name, "") if self.listed is None else self.listed
        installed = self.builds.get(self.running)
        module = {}
        if installed:
            module = {
                "driver_version": installed.partition("-")[0],
                "driver_source": f"SRC{installed}",
                "driver_file": f"/lib/modules/{self.running}/{suffix}/amdgpu.ko",
            }
        if self.module_file:
            module["driver_file"] = self.module_file
        said = {
            "virtualization": self.virtualization,
            "replicas": self.replicas,
            "dpkg_packages" if dpkg else "rpm_packages": package_lines,
            "dpkg_audit": "".join(f" {name}  some words\n" for name in self.broken),
            "dkms_status": "".join(
                f"amdgpu/{version}, {kernel}, x86_64: {self.build_state}\n"
                for kernel, version in self.builds.items()
            )
            + "".join(
                f"amdgpu/{one}: added\n"
                for one in ([] if self.builds else dkms_versions(self.packages))
            ),
            "kernels": "".join(f"/boot/vmlinuz-{one}\n" for one in (*self.bootable, *self.images)),
            "kernel_modules": "".join(f"/lib/modules/{one}\n" for one in self.bootable),
            "kernel_headers": "".join(f"/lib/modules/{one}/build\n" for one in headers),
            "initial_ramdisks": "".join(
                f"/boot/{ramdisk.format(one)} {self.ramdisk_at}\n" for one in self.bootable
            ),
            "built_drivers": "".join(
                f"/lib/modules/{one}/{suffix}/amdgpu.ko.xz {self.built_at}\n" for one in self.builds
            ),
            "boot_space": "Filesystem 1024-blocks Used Available Capacity Mounted on\n"
            f"/dev/sda1 2000000 1000 {self.boot_mib * 1024} 1% /boot\n",
            "device_nodes": "".join(f"{node}\n" for node in nodes),
            "secure_boot": self.secure_boot,
            "mok_shim": self.mok,
            **module,
        }
        if dpkg:
            said["apt_holds"] = "".join(f"{one}\n" for one in self.held)
        else:
            said["dnf_repositories"] = listed
            files["/etc/dnf/plugins/versionlock.list"] = "".join(
                f"{one}-1:6.16.13.30300400-2341068.el9.*\n" for one in self.held
            )
        return Evidence(
            "gpu-001",
            "2026-11-21T00:00:00Z",
            "2",
            {name: CommandOutput((name,), 0, text, "", 0.0) for name, text in said.items()},
            files,
        )

    def plan(self, **settings):
        """The plan for this machine, with settings as a role gives them."""
        return decide(from_document(Settings, settings, "settings"), self.evidence())

    def applied(self, plan) -> Machine:
        """The machine after the role has done all that the plan asks for, before a reboot."""
        packages = {name: one for name, one in self.packages.items() if name not in plan.remove}
        for name in plan.prerequisites:
            packages.setdefault(name, "1.0-1")
        for one in plan.optional:
            packages |= dict.fromkeys(one.packages, "1.0-1")
        for one in plan.packages:
            if one.spec in plan.missing:
                packages[one.name] = published(one.name, one.version, plan, self)
        files = dict(self.files)
        for file in plan.files:
            files.pop(file.path, None)
            if file.content is not None:
                files[file.path] = file.content
        held = tuple(name for name in self.held if name not in plan.unhold)
        headers = self.bootable if self.headers is None else self.headers
        headers += tuple(
            kernel
            for kernel in self.bootable
            if kernel not in headers
            and (
                "kernel-default-devel" in packages
                or any(kernel in name for name in packages if "modules-extra" not in name)
            )
        )
        versions = dkms_versions(packages)
        builds = {kernel: versions[0] for kernel in headers} if versions else {}
        rebuilt = builds != self.builds
        clock = self.clock + 10
        return replace(
            self,
            packages=packages,
            broken=() if plan.repair else self.broken,
            files=files,
            held=(*held, *plan.hold),
            headers=headers,
            builds=builds,
            built_at=clock if rebuilt else self.built_at,
            ramdisk_at=clock + 1
            if plan.initramfs or any(one.initramfs for one in plan.optional)
            else self.ramdisk_at,
            listed=LISTED.get(self.identity[0], "") if plan.enable else self.listed,
            clock=clock,
        )

    def rebooted(self) -> Machine:
        """The machine after a reboot: what is installed for its kernel is what is loaded."""
        installed = self.builds.get(self.running)
        if installed is None:
            return replace(self, loaded={"srcversion": "INBOX"})
        return replace(
            self,
            loaded={"version": installed.partition("-")[0], "srcversion": f"SRC{installed}"},
        )

    def right(self, **settings) -> Machine:
        """The machine as the role leaves it, rebooted."""
        return self.applied(self.plan(**settings)).rebooted()


def dkms_versions(packages) -> list[str]:
    """What `dkms status` calls the driver's package."""
    found = re.fullmatch(r"(?:\d+:)?(.+)\.\d{5,8}-(.+)", packages.get("amdgpu-dkms", ""))
    return [f"{found[1]}-{found[2]}"] if found else []


def published(name: str, pattern: str | None, plan, machine: Machine) -> str:
    """A version that AMD's repository would have for a pattern."""
    tail = {"apt": "~24.04", "dnf": ".el9"}[plan.package_manager]
    if name.startswith("amdgpu-dkms"):
        epoch = "1:" if not name.endswith("firmware") else ""
        body = (pattern or "").removeprefix("1:").replace("*.", "30.30.4.0.", 1)
        version = f"{epoch}{body.rstrip('*')}{DRIVER_BUILD}{tail.replace('~', '.')}"
    else:
        version = f"{(pattern or '1.0-*').replace('*.', '1.2.3.', 1).rstrip('*')}{ROCM_BUILD}{tail}"
    assert pattern is None or any(
        fnmatch.fnmatchcase(form, pattern) for form in (version, version.partition(":")[2])
    ), (version, pattern)
    return version


def problems(plan) -> list[str]:
    """The codes of checks that do not pass, and of findings that refuse or warn."""
    return [
        *(one.code for one in plan.findings),
        *(one.code for one in plan.checks if one.state not in ("pass", "skip")),
    ]


def changes(plan) -> dict[str, object]:
    """What the role would still do, beside files, whose text the role compares itself."""
    names = ("repair", "remove", "unhold", "enable", "missing", "optional", "hold", "dkms")
    told = {name: getattr(plan, name) for name in names if getattr(plan, name)}
    if plan.initramfs:
        told["initramfs"] = plan.initramfs
    return told
