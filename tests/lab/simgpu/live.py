# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Put a generated tree over the live /sys of a container, and make its device nodes."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
from pathlib import Path

SUBTREES = ("class", "devices", "bus", "module")
SYS = Path("/sys")
DEV = Path("/dev")
SOURCE = "simgpu"


def mount(tree: Path, scratch: Path) -> None:
    """Overlay each subtree of /sys.

    Real entries stay visible; the upper layer makes the rest writable, so that a fault can
    be injected by writing to /sys, and the generated tree stays as it is.
    """
    for subtree in SUBTREES:
        layers = {"lowerdir": f"{tree / subtree}:{SYS / subtree}"}
        for name in ("upper", "work"):
            layer = scratch / subtree / name
            layer.mkdir(parents=True, exist_ok=True)
            layers[f"{name}dir"] = str(layer)
        options = ",".join(f"{name}={value}" for name, value in layers.items())
        overlay = ["mount", "-t", "overlay", SOURCE, "-o", options]
        subprocess.run([*overlay, str(SYS / subtree)], check=True)


def unmount(scratch: Path) -> None:
    """Take the overlays away, with all that was written to them."""
    for line in Path("/proc/self/mounts").read_text().splitlines():
        source, target, *_ = line.split()
        if source == SOURCE:
            # Lazily: whoever reads the old tree right now keeps it until done.
            subprocess.run(["umount", "--lazy", target], check=True)
    if scratch.is_dir():
        shutil.rmtree(scratch)


def make_device_nodes() -> None:
    """Make what the kernel and udev make from sysfs: /dev/kfd, /dev/dri and its by-path links."""
    shutil.rmtree(DEV / "dri", ignore_errors=True)
    (DEV / "kfd").unlink(missing_ok=True)
    _node(DEV / "kfd", SYS / "class/kfd/kfd", "render")
    for entry in sorted(SYS.glob("class/drm/*[0-9]")):
        kind = "render" if entry.name.startswith("renderD") else "card"
        node = DEV / "dri" / entry.name
        _node(node, entry, "render" if kind == "render" else "video")
        device = (entry / "device").resolve()
        bus = "platform" if device.parent.name == "platform" else "pci"
        link = DEV / "dri/by-path" / f"{bus}-{device.name}-{kind}"
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(f"../{entry.name}")


def _node(path: Path, entry: Path, group: str) -> None:
    number = entry / "dev"
    if not number.exists():
        return
    major, minor = (int(word) for word in number.read_text().split(":"))
    path.parent.mkdir(parents=True, exist_ok=True)
    os.mknod(path, stat.S_IFCHR | 0o660, os.makedev(major, minor))
    path.chmod(0o660)  # whatever the umask
    shutil.chown(path, "root", group)
