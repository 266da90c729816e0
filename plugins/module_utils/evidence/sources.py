# SPDX-License-Identifier: GPL-3.0-or-later

"""Where a host's tools are and how they are called, and what of its devices is a GPU.

Standard library, and no import of ours: over SSH its text stands in gpu.py (host/program.py).
"""

from __future__ import annotations

import errno
import glob
import os
import re
import shlex
import shutil
from collections.abc import Mapping
from typing import Any

# Name and argvs, tried in order until one answers.
Command = tuple[str, tuple[tuple[str, ...], ...]]
Commands = tuple[Command, ...]

TOOL_PATH = ("/opt/rocm/bin", "/usr/bin", "/bin", "/usr/sbin", "/sbin", "/usr/local/bin")
# ROCr filters and renumbers by these, and a shell profile may set them.
FILTERS = (
    "ROCR_VISIBLE_DEVICES",
    "HIP_VISIBLE_DEVICES",
    "CUDA_VISIBLE_DEVICES",
    "GPU_DEVICE_ORDINAL",
)


def tool(name: str, *forms: str) -> Command:
    """Return a command by its name and what is tried, each as a shell would split it."""
    return name, tuple(tuple(shlex.split(form)) for form in forms)


def listed(commands: Mapping[str, Any]) -> Commands:
    """Return commands by name, each with its form or the forms that are tried."""
    return tuple(
        tool(name, *([forms] if isinstance(forms, str) else forms))
        for name, forms in commands.items()
    )


# An older rocm-smi knows none of these, in whatever form it is asked.
REFUSED = re.compile(r"unrecognized arguments: (.*)")
# What engines measured of themselves as they started: no more of it, for it is their account's.
RECORDS, RECORD_BYTES = "/run/apiary/*/figures.json", 4096
PCI_DEVICES = "/sys/bus/pci/devices"
PCI_FUNCTION = re.compile(r"[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[01][0-9a-fA-F]\.[0-7](?=/|$)")
AMD_VENDOR = "0x1002"
# Processing accelerators and display controllers; the bridges of a card share its vendor id.
GPU_CLASSES = ("0x12", "0x03")


def environment() -> dict[str, str]:
    """Return the tools' environment: fixed locale, no GPU filters."""
    env = {key: value for key, value in os.environ.items() if key not in FILTERS}
    env.update(LC_ALL="C", LANG="C", TERM="dumb")
    return env


def find_tool(name: str) -> str | None:
    """Return the tool's path, from PATH or where ROCm and the distributions install it."""
    places = os.environ.get("PATH", "").split(os.pathsep) + list(TOOL_PATH)
    places += sorted(glob.glob("/opt/rocm-*/bin"), reverse=True)
    return shutil.which(name, path=os.pathsep.join(place for place in places if place))


def errno_name(problem: OSError) -> str:
    """Return EACCES and the like for an OSError."""
    return errno.errorcode.get(problem.errno or 0, str(problem.errno))


def text(data: bytes | str) -> str:
    """Return bytes as text, whatever they are."""
    return data.decode("utf-8", errors="replace") if isinstance(data, bytes) else data
