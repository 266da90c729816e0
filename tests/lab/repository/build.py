#!/usr/bin/env python3
# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Make signed package repositories that look like AMD's, of stubs that install next to nothing.

    build.py OUTDIR [--rpm]

OUTDIR/mirror mirrors repo.radeon.com (amdgpu/, rocm/) and stable.repo.amd.com and repo.amd.com
(rocm/core/packages, rocm/packages-multi-arch); OUTDIR/distribution has what the lab's release
lacks: kernels and headers by name, and the doubles of dkms and update-initramfs. OUTDIR/ubuntu is
the archive of a host that is Ubuntu to all that asks it (molecule's noble_custom, jammy_custom),
OUTDIR/el9 (--rpm) the repositories of one that is RHEL (el9_custom).
OUTDIR/facts.json tells the key's fingerprint and the kernels. OUTDIR.tar has all of it. Keys are
made here and now; what is there and was made by the same code stays.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))

# What the lab's own directory holds is importable only from here on (E402).
from labkit.console import guarded, step  # noqa: E402
from labkit.prerequisites import ensure_programs  # noqa: E402
from labkit.state import held  # noqa: E402
from repository import debs, rpms  # noqa: E402
from repository.module import module  # noqa: E402
from repository.signing import Signer  # noqa: E402
from repository.stub import Stub  # noqa: E402

DOUBLE = HERE / "double"
OTHER_KERNEL = "6.1.0-28-amd64"
# A boot entry as kernel-install writes it.
ENTRY = (
    "title Lab ({0})\nversion {0}\nlinux /vmlinuz-{0}\noptions root=/dev/vda1 ro "
    "crashkernel=1G-2G:192M,2G-64G:256M,64G-:512M console=ttyS0 quiet\n"
)
# What linux-headers' own postinst does.
HEADER_HOOKS = """#!/bin/sh
if [ -d /etc/kernel/header_postinst.d ]; then
  run-parts --arg={} /etc/kernel/header_postinst.d
fi
"""


def kernels() -> list[str]:
    """Return the kernels of a lab host: the machine's own, which runs, and another."""
    return [os.uname().release, OTHER_KERNEL]


def driver_stubs(driver: dict[str, str], release: str) -> list[Stub]:
    """Return a driver's packages as AMD builds them for a release ("24.04", "el9")."""
    version = f"{driver['version']}-{driver['build']}.{release}"
    source = f"{driver['module']}-{driver['build']}.{release}"
    scripts = {
        name: (DOUBLE / f"amdgpu-dkms.{name}").read_text().replace("@VERSION@", source)
        for name in ("postinst", "prerm")
    }
    unit = (DOUBLE / "amdgpu-double.service").read_text()
    files = {
        f"/usr/src/amdgpu-{source}/amdgpu.ko": module(driver["module"]),
        f"/usr/src/amdgpu-{source}/dkms.conf": f'PACKAGE_NAME="amdgpu"\nPACKAGE_VERSION="{source}"',
        "/usr/lib/systemd/system/amdgpu-double.service": unit,
    }
    links = {
        "/usr/lib/systemd/system/sysinit.target.wants/amdgpu-double.service": (
            "../amdgpu-double.service"
        )
    }
    firmware = Stub("amdgpu-dkms-firmware", version, epoch="1")
    depends = f"dkms, amdgpu-dkms-firmware (= 1:{version})"
    return [
        Stub("amdgpu-dkms", version, depends, files, scripts, links, epoch="1"),
        firmware,
        Stub("amdgpu-core", f"{driver['version'][-8:]}-{driver['build']}.{release}", epoch="1"),
    ]


def tool(path: str, rocm: str) -> bytes | str:
    """Return what a stub installs at a path below its prefix."""
    if path == ".info/version":
        return rocm + "\n"
    name = Path(path).name
    if name == "rocminfo":
        return (DOUBLE / name).read_text()
    said = f"AMDSMI Tool: 26.2.2+stub | ROCm version: {rocm}"
    return f"#!/bin/sh\n# A stub of {name}.\necho '{said}'\n"


def legacy_stubs(facts: dict[str, Any], rocm: str, release: str) -> list[Stub]:
    """Return the packages of a legacy ROCm release."""
    prefix, build = f"/opt/rocm-{rocm}", facts["legacy"][rocm]
    stubs = []
    for name, about in facts["legacy_packages"].items():
        path = about.get("installs")
        files = {f"{prefix}/{path}": tool(path, rocm)} if path else {}
        links = {"/opt/rocm": f"rocm-{rocm}"} if name == "rocm-core" else {}
        version = about["version"].replace("@ROCM@", rocm) + f".{build}{release}"
        stubs.append(Stub(name, version, about.get("depends", ""), files, {}, links))
    return stubs


def therock_stubs(facts: dict[str, Any], series: str) -> list[Stub]:
    """Return the packages of every release of a series of the current ROCm."""
    prefix = f"/opt/rocm/core-{series}"
    stubs = []
    for release in facts["therock"][series]:
        for shape, about in facts["therock_packages"].items():
            path = about.get("installs")
            files = {f"{prefix}/{path}": tool(path, release)} if path else {}
            for target in facts["targets"] if "{target}" in shape else [""]:
                name, depends = (
                    text.replace("@", series).replace("{target}", target)
                    for text in (shape, about.get("depends", ""))
                )
                stubs.append(Stub(name, f"{release}-5", depends, files))
    return stubs


def kernel_stubs(kernel: str, version: str) -> list[Stub]:
    """Return a kernel and its headers, which lie where DKMS looks for them."""
    image = {f"/boot/vmlinuz-{kernel}": "", f"/lib/modules/{kernel}/modules.order": ""}
    headers = {f"/usr/src/linux-headers-{kernel}/Makefile": ""}
    build = {f"/lib/modules/{kernel}/build": f"/usr/src/linux-headers-{kernel}"}
    scripts = {"postinst": HEADER_HOOKS.format(kernel)}
    return [
        Stub(f"linux-image-{kernel}", version, "", image),
        Stub(f"linux-headers-{kernel}", version, "", headers, scripts, build),
    ]


def doubles() -> list[Stub]:
    """Return doubles of what costs the lab too much."""
    programs = {
        "/usr/sbin/dkms": (DOUBLE / "dkms").read_text(),
        "/etc/kernel/header_postinst.d/dkms": (DOUBLE / "header_hook").read_text(),
    }
    initramfs = {"/usr/sbin/update-initramfs": (DOUBLE / "update-initramfs").read_text()}
    return [
        Stub("dkms", "3.0.10-8+double", "kmod", programs),
        Stub("initramfs-tools", "0.142+double", "kmod", initramfs),
    ]


def distribution_stubs() -> list[Stub]:
    """Return what the lab's release does not have, and doubles of what costs it too much."""
    version = "6.1.119-1+stub"
    made = [stub for kernel in kernels() for stub in kernel_stubs(kernel, version)]
    return [*doubles(), *made, Stub("linux-headers-amd64", version, "")]


def ubuntu_stubs(kernel: str) -> list[Stub]:
    """Return what Ubuntu has for a host: its kernel, the meta packages that bring it, doubles."""
    version = kernel.removesuffix("-generic").replace("-", ".")
    made = []
    for each in (os.uname().release, kernel):
        made += [*kernel_stubs(each, version), Stub(f"linux-modules-extra-{each}", version)]
    for part in ("image", "headers"):
        made.append(Stub(f"linux-{part}-generic", version, f"linux-{part}-{kernel}"))
    made.append(Stub("linux-generic", version, "linux-image-generic, linux-headers-generic"))
    made += [Stub(f"python3-{name}", "68.1.2+stub") for name in ("setuptools", "wheel")]
    return [*doubles(), *made]


def el9_stubs(kernel: str) -> list[Stub]:
    """Return what Enterprise Linux has for a host: kernels, and from EPEL the double of dkms."""
    made = []
    for each in (os.uname().release, kernel):
        source = f"/usr/src/kernels/{each}"
        image = {f"/boot/vmlinuz-{each}": "", f"/lib/modules/{each}/modules.order": ""}
        image[f"/boot/loader/entries/lab-{each}.conf"] = ENTRY.format(each)
        link = {f"/lib/modules/{each}/build": source}
        devel = Stub(
            *rpms.rpm_named("kernel-devel", each), "", {f"{source}/Makefile": ""}, {}, link
        )
        made += [Stub(*rpms.rpm_named("kernel-core", each), "", image), devel]
        needed = f"{devel.name} (= {devel.version})"
        made.append(Stub(*rpms.rpm_named("kernel-devel-matched", each), needed))
    version = kernel.removesuffix(".x86_64")
    made.append(Stub("kernel-headers", version))
    programs = {"/usr/sbin/dkms": (DOUBLE / "dkms").read_text()}
    # What of it is not a stub is Debian's: the plugin is dnf-plugins-core's.
    for name in ("setuptools", "wheel", "dnf-plugin-versionlock"):
        made.append(Stub(f"python3-{name}", "53.0.0-13.el9"))
    return [*made, Stub("dkms", "3.1.6-1.el9", "", programs)]


def build_apt(facts: dict[str, Any], out: Path, signer: Signer) -> None:
    """Write the apt repositories."""
    mirror = out / "mirror"
    for codename, release in facts["codenames"].items():
        for driver, about in facts["drivers"].items():
            tree = mirror / "amdgpu" / driver / "ubuntu"
            debs.publish(tree, codename, "repo.radeon.com", driver_stubs(about, release), signer)
        for rocm in facts["legacy"]:
            stubs = legacy_stubs(facts, rocm, f"~{release}")
            debs.publish(mirror / "rocm/apt" / rocm, codename, "repo.radeon.com", stubs, signer)
    for distribution in facts["distributions"]:
        for path, series in (("rocm/core/packages", "10.0"), ("rocm/packages-multi-arch", "7.14")):
            stubs = therock_stubs(facts, series)
            debs.publish(mirror / path / distribution, "stable", "AMD ROCm", stubs, signer)
    debs.publish(out / "distribution", "lab", "Apiary lab", distribution_stubs(), signer)
    for archive in ("ubuntu", "ubuntu_next"):
        for codename, kernel in facts[archive].items():
            tree = out / archive.replace("_", "-")
            debs.publish(tree, codename, "Ubuntu", ubuntu_stubs(kernel), signer)


def build_rpm(facts: dict[str, Any], out: Path, signer: Signer) -> None:
    """Write the rpm repositories, of one driver and one release of each stream."""
    mirror = out / "mirror"
    for path in facts["rpm"]["driver"]:
        stubs = driver_stubs(facts["drivers"]["30.30.4"], "el9" if "el" in path else "sle15")
        rpms.publish(mirror / "amdgpu/30.30.4" / path / "main/x86_64", stubs, signer)
    for path in facts["rpm"]["legacy"]:
        target = mirror / "rocm" / path / "7.2.4/main"
        rpms.publish(target, legacy_stubs(facts, "7.2.4", ""), signer)
    rpms.publish(out / "el9", el9_stubs(facts["rpm"]["kernel"]), signer)
    for path in facts["rpm"]["therock"]:
        target = mirror / "rocm/core/packages" / path / "x86_64"
        rpms.publish(target, therock_stubs(facts, "10.0"), signer)


def digest(with_rpm: bool) -> str:
    """Return a hash of what decides how the repositories look."""
    hashed = hashlib.sha256(f"{kernels()} {with_rpm}".encode())
    for path in sorted(path for path in HERE.rglob("*") if path.suffix != ".pyc"):
        hashed.update(path.read_bytes() if path.is_file() else b"")
    return hashed.hexdigest()


def build(out: Path, with_rpm: bool) -> None:
    """Make everything in a scratch directory beside OUTDIR, then put it in its place."""
    with held(out.with_name(out.name + ".lock")):
        _build(out, with_rpm)


def _build(out: Path, with_rpm: bool) -> None:
    made = digest(with_rpm)
    told = out / "facts.json"
    if told.exists() and json.loads(told.read_text())["made_by"] == made:
        return
    facts = yaml.safe_load((HERE / "stubs.yml").read_text(encoding="utf-8"))
    wanted = {"apt-ftparchive", "gpg"}
    ensure_programs(wanted | ({"rpmbuild", "rpmsign", "createrepo_c"} if with_rpm else set()))
    scratch = out.with_name(out.name + ".new")
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir(parents=True)
    with step("Making signed repositories of stub packages"), Signer("Lab ROCm stub") as signer:
        build_apt(facts, scratch, signer)
        if with_rpm:
            build_rpm(facts, scratch, signer)
        for path in ("rocm/rocm.gpg.key", "rocm/gpg/packages.gpg"):
            signer.export(scratch / "mirror" / path)
        signer.export(scratch / "mirror/rocm/packages-multi-arch/gpg/rocm.gpg")
        signer.export(scratch / "distribution/lab.asc")
        known = {"fingerprint": signer.fingerprint, "kernels": kernels(), "made_by": made}
    (scratch / "facts.json").write_text(json.dumps(known, indent=2, sort_keys=True) + "\n")
    shutil.make_archive(str(out), "tar", scratch)
    shutil.rmtree(out, ignore_errors=True)
    scratch.rename(out)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; every refusal is a finding on standard error."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("outdir", type=Path)
    parser.add_argument("--rpm", action="store_true", help="also the rpm repositories")
    arguments = parser.parse_args(argv)
    return guarded(lambda: build(arguments.outdir.resolve(), arguments.rpm))


if __name__ == "__main__":
    sys.exit(main())
