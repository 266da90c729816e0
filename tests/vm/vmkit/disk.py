# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Build the disk that every machine starts from: a bare Debian or Ubuntu that GRUB boots."""

from __future__ import annotations

import hashlib
import os
import shutil
import struct
import subprocess
from pathlib import Path

from labkit import image, prerequisites
from labkit.apt_sources import Mirror
from labkit.console import error, last_line, step

SHAPE = Path(__file__).resolve().parents[1] / "image"
MIB = 2**20
DISK_BYTES = 4096 * MIB
# Where partitioning tools start the first partition: GRUB's own code lies before it.
PARTITION_BYTES = MIB
SECTOR = 512
INSTALLED = "BOOT-LOADER-INSTALLED"
BOOT_LOADER = "install-boot-loader.sh"


def package_names() -> list[str]:
    """Return the packages of the disk: those of the simulated hosts, a kernel, NFS."""
    lines = [*image.PACKAGES.read_text().splitlines()]
    lines += (SHAPE / "packages.txt").read_text().splitlines()
    names = {line.strip() for line in lines if line.strip() and not line.startswith("#")}
    # A host without GPUs; and it is large.
    return sorted(names - {"rocm-smi"})


def disk_name(mirror: Mirror) -> str:
    """Return the disk's file name: another release, package or way to build makes another disk."""
    digest = hashlib.sha256(Path(__file__).read_bytes())
    for path in sorted(SHAPE.iterdir()):
        digest.update(path.read_bytes())
    digest.update(" ".join([mirror.suite, *package_names()]).encode())
    return f"{mirror.distribution}-{mirror.suite}-{digest.hexdigest()[:12]}.img"


def build(mirror: Mirror, disk: Path, log: Path) -> None:
    """Make the disk; everything it downloads comes from the machine's own mirror.

    Nothing is mounted for it: the file system is written by mke2fs, and GRUB is installed by the
    machine itself, booted once with QEMU's own loader.
    """
    scratch = disk.with_suffix(".build")
    if scratch.exists():
        image._remove_tree(scratch)
    scratch.mkdir(parents=True)
    tree, part = scratch / "root", scratch / "disk.img"
    try:
        with step(f"Making a {mirror.suite} tree with a kernel"):
            _make_tree(mirror, tree, log)
        with step("Writing the disk"):
            _write_disk(tree, part, log)
        with step("Booting it once, to install its boot loader"):
            _install_boot_loader(tree, part, log)
        part.replace(disk)
    finally:
        image._remove_tree(scratch)


def _make_tree(mirror: Mirror, tree: Path, log: Path) -> None:
    command = [
        f"--include={','.join(package_names())}" if part.startswith("--include=") else part
        for part in image.debootstrap_command(mirror, tree)
    ]
    _logged(command, log, {**image._proxy(), "DEBIAN_FRONTEND": "noninteractive"})
    shutil.copy(SHAPE / "seed.service", tree / "etc/systemd/system")
    shutil.copy(SHAPE / BOOT_LOADER, tree / "root")
    shutil.copy(SHAPE / "configure.sh", tree)
    _logged(["chroot", tree, "/configure.sh"], log)
    (tree / "configure.sh").unlink()


def _write_disk(tree: Path, disk: Path, log: Path) -> None:
    with disk.open("wb") as handle:
        handle.truncate(DISK_BYTES)
        handle.write(_partition_table())
    _logged(
        [
            *("mke2fs", "-q", "-F", "-t", "ext4", "-L", "apiary"),
            *("-E", f"offset={PARTITION_BYTES},lazy_itable_init=1", "-d", tree, disk),
            f"{(DISK_BYTES - PARTITION_BYTES) // 1024}k",
        ],
        log,
    )


def _partition_table() -> bytes:
    """Return a master boot record with one bootable Linux partition, addressed by block only."""
    whatever = b"\xfe\xff\xff"
    start, sectors = PARTITION_BYTES // SECTOR, (DISK_BYTES - PARTITION_BYTES) // SECTOR
    entry = struct.pack("<B3sB3sII", 0x80, whatever, 0x83, whatever, start, sectors)
    return bytes(446) + entry + bytes(48) + b"\x55\xaa"


def _install_boot_loader(tree: Path, disk: Path, log: Path) -> None:
    kernel = max((tree / "boot").glob("vmlinuz-*"))
    initrd = tree / "boot" / kernel.name.replace("vmlinuz", "initrd.img")
    arguments = [
        "root=/dev/vda1 rw console=ttyS0 quiet",
        f"systemd.run=/root/{BOOT_LOADER}",
        "systemd.run_success_action=poweroff systemd.run_failure_action=poweroff",
    ]
    console = disk.with_suffix(".console")
    _logged(
        [
            *emulator(cpus=2),
            *("-m", "1G", "-no-reboot", "-serial", f"file:{console}"),
            *("-drive", f"file={disk},if=virtio,format=raw,cache=unsafe"),
            *("-kernel", kernel, "-initrd", initrd, "-append", " ".join(arguments)),
        ],
        log,
    )
    said = console.read_text(errors="replace")
    with log.open("a") as handle:
        handle.write(said)
    if INSTALLED not in said:
        raise _failed("boot loader", said, log)


def emulator(cpus: int, sockets: int = 1) -> list[str]:
    """Return QEMU's command for a machine without disks and network, emulated in software."""
    prerequisites.ensure_programs({"qemu-system-x86_64", "qemu-img", "mke2fs"})
    return [
        *("qemu-system-x86_64", "-nodefaults", "-no-user-config", "-machine", "q35"),
        # KVM inside a virtual machine hangs on some of those that this has to run on.
        *("-accel", "tcg,thread=multi,tb-size=256", "-cpu", "max"),
        *("-smp", f"{cpus},sockets={sockets},cores={cpus // sockets},threads=1"),
        *("-display", "none", "-device", "virtio-rng-pci"),
    ]


def _logged(
    command: list[str | Path], log: Path, environment: dict[str, str] | None = None
) -> None:
    with log.open("ab") as handle:
        done = subprocess.run(
            [str(part) for part in command],
            stdin=subprocess.DEVNULL,
            stdout=handle,
            stderr=handle,
            env=environment or dict(os.environ),
        )
    if done.returncode != 0:
        raise _failed(str(command[0]), log.read_text(errors="replace"), log)


def _failed(subject: str, output: str, log: Path) -> Exception:
    return error("LAB-DISK", subject, f"{last_line(output)}; see {log}")
