# SPDX-License-Identifier: GPL-3.0-or-later

"""Set the readahead of the mounts that this host's weights come from.

Installed on hosts as /usr/libexec/apiary/weights-readahead: udev runs it when a mount's device
appears, for the kernel forgets the value with the mount; the role runs the same code.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import time
from typing import Any

from ..finding import Finding

CONFIGURATION = "/etc/apiary/weights.json"
# The device appears before the mount does.
WAIT_SECONDS = 10.0
POLL_SECONDS = 0.05


def device_of(path: str, root: str = "/") -> str | None:
    """Return major:minor of what is mounted on top at a path, or None."""
    found = None
    with open(os.path.join(root, "proc/self/mountinfo"), encoding="utf-8") as stream:
        for line in stream:
            words = line.split(" ")
            if len(words) > 4 and unescape(words[4]) == path:
                found = words[2]
    return found


def unescape(text: str) -> str:
    """Return a field of mountinfo with its octal escapes resolved."""
    raw = re.sub(
        rb"\\([0-7]{3})",
        lambda one: bytes([int(one.group(1), 8)]),
        text.encode("utf-8", "surrogateescape"),
    )
    return raw.decode("utf-8", errors="surrogateescape")


def set_readahead(device: str, kib: int, root: str = "/") -> bool:
    """Set a device's readahead; return whether it was another. Raises OSError."""
    path = os.path.join(root, f"sys/class/bdi/{device}/read_ahead_kb")
    with open(path, encoding="ascii") as stream:
        if stream.read().strip() == str(kib):
            return False
    with open(path, "w", encoding="ascii") as stream:
        stream.write(f"{kib}\n")
    return True


def wanted(root: str = "/") -> dict[str, int]:
    """Return {mount point: KiB} of the mounts whose readahead is ours."""
    with open(root.rstrip("/") + CONFIGURATION, encoding="utf-8") as stream:
        settings: dict[str, Any] = json.load(stream)
    return {
        str(one["path"]): int(one["readahead_kib"])
        for one in settings["mounts"]
        if one["readahead_kib"]
    }


def apply(device: str | None, root: str = "/", wait: float = WAIT_SECONDS) -> None:
    """Set the readahead of one device's mount once it is there, or of all that are."""
    deadline = time.monotonic() + wait
    mounts = wanted(root)
    while True:
        devices = {path: device_of(path, root) for path in mounts}
        done = False
        for path, found in devices.items():
            if found and device in (None, found):
                set_readahead(found, mounts[path], root)
                done = True
        # Other file systems' devices come this way, too, and their mount never is one of ours.
        if done or device is None or all(devices.values()) or time.monotonic() > deadline:
            return
        time.sleep(POLL_SECONDS)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="weights-readahead", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--device", help="major:minor; default: every mount of ours")
    arguments = parser.parse_args(argv)
    try:
        apply(arguments.device)
    except (OSError, ValueError, KeyError) as failure:
        finding = Finding("WEIGHTS-READAHEAD", arguments.device or "all", str(failure))
        sys.stderr.write(f"{finding}\n")
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
