# SPDX-License-Identifier: GPL-3.0-or-later

"""A host's mounts as its kernel and systemd tell them."""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Mapping
from dataclasses import dataclass

from ....module_utils.weights.readahead import unescape
from ...evidence.types import Evidence
from ...findings import error
from ..facts import output


@dataclass(frozen=True)
class ShownMount:
    """One entry of /proc/mounts."""

    source: str
    path: str
    type: str
    options: dict[str, str | bool]


@dataclass(frozen=True)
class HostMounts:
    """What is mounted, in the kernel's order; what would be, by fstab; mount units by hash."""

    mounts: tuple[ShownMount, ...]
    fstab: tuple[str, ...]
    unit_states: Mapping[str, str]
    unit_hashes: Mapping[str, str]

    def at(self, path: str) -> tuple[ShownMount, ...]:
        """Return the mounts at a path; the last lies on top."""
        return tuple(one for one in self.mounts if one.path == path)

    def holding(self, path: str) -> ShownMount | None:
        """Return the mount that a path lies on: of the longest mount points the topmost."""
        best: ShownMount | None = None
        for one in self.mounts:
            if below(path, one.path) and (best is None or len(one.path) >= len(best.path)):
                best = one
        return best

    def as_vllm_sees(self, path: str) -> str | None:
        """Return the file system type that vLLM takes a path for: the first of equal length.

        Source: vLLM 0.32.0, model_loader/weight_utils.py, _get_fs_type.
        """
        best: ShownMount | None = None
        for one in self.mounts:
            if below(path, one.path) and (best is None or len(one.path) > len(best.path)):
                best = one
        return best.type if best else None


def below(path: str, mount_point: str) -> bool:
    """Say whether a path is a mount point or lies below it."""
    return path == mount_point or path.startswith(mount_point.rstrip("/") + "/")


def unit_name(path: str, kind: str = "mount") -> str:
    """Return the unit of a mount point, as `systemd-escape --path --suffix` gives it."""
    escaped = ""
    for number, letter in enumerate(path.strip("/")):
        if letter == "/":
            escaped += "-"
        elif re.fullmatch(r"[A-Za-z0-9:_.]", letter) and not (letter == "." and number == 0):
            escaped += letter
        else:
            escaped += "".join(f"\\x{byte:02x}" for byte in letter.encode())
    return f"{escaped or '-'}.{kind}"


def units_of(path: str) -> list[str]:
    """Return the mounts that a path may lie on; in Wants= those that a host has not are ignored."""
    parts = posixpath.normpath(path).strip("/").split("/")
    return [unit_name("/".join(parts[:end])) for end in range(1, len(parts) + 1)]


def read_mounts(evidence: Evidence) -> HostMounts:
    """Return a host's mounts; raise WEIGHTS-EVIDENCE where the evidence does not tell them."""
    told = evidence.commands.get("mounts")
    if told is None or told.exit != 0:
        raise error("WEIGHTS-EVIDENCE", evidence.host, "has no list of mounts in its evidence")
    mounts = []
    for line in told.stdout.splitlines():
        words = line.split(" ")
        if len(words) < 4:
            continue
        source, path, kind = (unescape(word) for word in words[:3])
        options = dict(_option(word) for word in words[3].split(","))
        mounts.append(ShownMount(source, path, kind, options))
    return HostMounts(
        tuple(mounts),
        _fstab(output(evidence, "fstab")),
        _unit_states(output(evidence, "mount_units")),
        _unit_hashes(output(evidence, "mount_unit_hashes")),
    )


def _option(word: str) -> tuple[str, str | bool]:
    name, equals, value = word.partition("=")
    return name, value if equals else True


def _fstab(text: str) -> tuple[str, ...]:
    """Return the mount points of /etc/fstab, as `findmnt --fstab --json` tells them."""
    try:
        entries = json.loads(text or "{}").get("filesystems", [])
    except ValueError:
        return ()
    return tuple(str(one.get("target")).rstrip("/") or "/" for one in entries)


def _unit_states(text: str) -> dict[str, str]:
    """Return {unit: enabled, disabled, generated …} of `systemctl list-unit-files`."""
    rows = (line.split() for line in text.splitlines())
    return {words[0]: words[1] for words in rows if len(words) > 1}


def _unit_hashes(text: str) -> dict[str, str]:
    """Return {unit file's name: SHA-256}; sha256sum escapes a line whose name has a backslash."""
    found = {}
    for line in text.splitlines():
        escaped = line.startswith("\\")
        digest, _space, path = line.removeprefix("\\").partition("  ")
        if escaped:
            path = path.replace("\\\\", "\\")
        found[path.rsplit("/", 1)[-1]] = digest
    return found
