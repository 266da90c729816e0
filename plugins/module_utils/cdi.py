# SPDX-License-Identifier: GPL-3.0-or-later

"""Name a host's GPUs for container engines: the CDI specification of `amd.com/gpu`.

Installed on hosts as /usr/libexec/apiary/cdi, with a shebang, and run at every boot, because minor
numbers change; the controller imports it to say what that run will write. Standard library,
Python 3.9, one file there: the reader of KFD is put in place of its import.
Source of the format: https://github.com/cncf-tags/container-device-interface/blob/main/SPEC.md
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .durable import write_durably
from .kfd import read, served_gpus

KIND = "amd.com/gpu"
OUTPUT = "/etc/cdi/amd.json"
COMPUTE = "/dev/kfd"
# Names that begin with a digit came with 0.5.0, additionalGids with 0.7.0 (SPEC.md).
PLAIN, WITH_GROUPS = "0.5.0", "0.7.0"


@dataclass(frozen=True)
class Device:
    """One GPU or partition: its key (BDF, `#partition` where shared) and its DRM nodes' names."""

    key: str
    render: str
    card: str | None = None

    @property
    def name(self) -> str:
        """The key as CDI allows it: `0000:05:00.0`, of a partition `0000:05:00.0-p1`."""
        return self.key.replace("#", "-p")

    @property
    def nodes(self) -> tuple[str, ...]:
        """The device nodes that are this GPU's alone."""
        return tuple(f"/dev/dri/{name}" for name in (self.render, self.card) if name)


def ordered(devices: Iterable[Device]) -> list[Device]:
    """Return the devices as SMI numbers them: by bus address, then partition."""

    def place(device: Device) -> tuple[str, int]:
        address, _hash, partition = device.key.partition("#")
        return address, int(partition or 0)

    return sorted(devices, key=place)


def document(devices: Iterable[Device], version: str, gids: Iterable[int] = ()) -> dict[str, Any]:
    """Return the specification: every GPU by index and by address, and `all` of them.

    ``gids`` are the host's numeric groups of the nodes; specifications before 0.7.0 have none.
    """
    listed = ordered(devices)
    named = [(str(index), device.nodes) for index, device in enumerate(listed)]
    named += [(device.name, device.nodes) for device in listed]
    named.append(("all", tuple(node for device in listed for node in device.nodes)))
    edits: dict[str, Any] = {"deviceNodes": [{"path": COMPUTE}]}
    if order(version) >= order(WITH_GROUPS) and gids:
        edits["additionalGids"] = sorted(set(gids))
    return {
        "cdiVersion": version,
        "kind": KIND,
        "containerEdits": edits,
        "devices": [
            {"name": name, "containerEdits": {"deviceNodes": [{"path": node} for node in nodes]}}
            for name, nodes in named
        ],
    }


def dumps(specification: Mapping[str, Any]) -> str:
    """Return the specification as the text of its file."""
    return json.dumps(specification, indent=1, sort_keys=True) + "\n"


def order(version: str) -> tuple[int, ...]:
    """Return a version so that it compares as versions do."""
    return tuple(int(part) for part in re.findall(r"\d+", version))


def devices_of_host(root: str = "/") -> list[Device]:
    """Return every GPU and partition that the KFD serves, with the DRM nodes it has now.

    A GPU whose driver is going has no render node any more.
    """
    return ordered(
        Device(gpu.key, gpu.render, _card(root, gpu.render))
        for gpu in served_gpus(root)
        if gpu.bdf and gpu.render
    )


def _card(root: str, render: str) -> str | None:
    """Return the name of the card node that belongs to a render node."""
    link = os.path.join(root, "sys/class/drm", render)
    names = os.listdir(os.path.dirname(os.path.realpath(link))) if os.path.exists(link) else []
    cards = sorted(name for name in names if re.fullmatch(r"card\d+", name))
    return cards[0] if cards else None


def groups_of(devices: Sequence[Device], root: str = "/") -> list[int]:
    """Return the numeric groups of the nodes that compute needs; root's own gives nobody rights."""
    paths = [COMPUTE, *(device.nodes[0] for device in devices)]
    gids = set()
    for path in paths:
        if os.path.exists(root.rstrip("/") + path):
            gids.add(os.stat(root.rstrip("/") + path).st_gid)
    return sorted(gids - {0})


def write(path: str, content: str) -> None:
    """Replace the file in one step, if it differs: an engine may read it at any time."""
    if read(path) == content.strip():
        return
    os.makedirs(os.path.dirname(path), mode=0o755, exist_ok=True)
    write_durably(path, content)


def main(argv: Sequence[str] | None = None) -> int:
    """Write the specification of this host; without a GPU there is to be none."""
    parser = argparse.ArgumentParser(prog="cdi", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--cdi-version", choices=(PLAIN, WITH_GROUPS), default=PLAIN)
    parser.add_argument("--output", default=OUTPUT, help="the file to write")
    parser.add_argument("--root", default="/", help="where /sys and /dev are found")
    arguments = parser.parse_args(argv)
    devices = devices_of_host(arguments.root)
    if not devices:
        if os.path.exists(arguments.output):
            os.unlink(arguments.output)
        sys.stderr.write("CONTAINER-NO-GPU: this host: the kernel driver serves no GPU\n")
        return 1
    gids = groups_of(devices, arguments.root)
    write(arguments.output, dumps(document(devices, arguments.cdi_version, gids)))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
