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
        overlay = ["mount", "-t", "overlay", "simgpu", "-o", options]
        subprocess.run([*overlay, str(SYS / subtree)], check=True)


def make_device_nodes() -> None:
    """Make what the kernel and udev make from sysfs: /dev/kfd, /dev/dri and its by-path links."""
    _node(DEV / "kfd", SYS / "class/kfd/kfd", "render")
    for entry in sorted(SYS.glob("class/drm/*[0-9]")):
        kind = "render" if entry.name.startswith("renderD") else "card"
        node = DEV / "dri" / entry.name
        _node(node, entry, "render" if kind == "render" else "video")
        bdf = (entry / "device").resolve().name
        link = DEV / "dri/by-path" / f"pci-{bdf}-{kind}"
        link.parent.mkdir(parents=True, exist_ok=True)
        link.unlink(missing_ok=True)
        link.symlink_to(f"../{entry.name}")


def _node(path: Path, entry: Path, group: str) -> None:
    number = entry / "dev"
    if not number.exists():
        return
    major, minor = (int(word) for word in number.read_text().split(":"))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    os.mknod(path, stat.S_IFCHR | 0o660, os.makedev(major, minor))
    path.chmod(0o660)  # whatever the umask
    shutil.chown(path, "root", group)
