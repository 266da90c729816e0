# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which GPUs, CPUs and memory nodes this process really has, against what it was promised.

Without a GPU the device nodes are stubs: opening one gives ENXIO where the device cgroup and the
file mode let the process through, and EPERM or EACCES where they do not. That difference is all
the ROCm runtime's view of a host depends on, so the double reads it the same way.
"""

from __future__ import annotations

import errno
import os
import re
import socket
import subprocess
import typing

from engine_double.logs import StartupError, info, warning


class Gpu(typing.NamedTuple):
    """One GPU as the KFD driver lists it; ``bdf`` has #k where partitions share a socket."""

    bdf: str
    render_minor: int
    unique_id: int


def openable(path: str) -> bool:
    """Say whether the process may use a device node; no driver behind it (ENXIO) is a yes."""
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CLOEXEC))
    except OSError as problem:
        return problem.errno in (errno.ENXIO, errno.ENODEV)
    return True


def _properties(path: str) -> dict[str, int]:
    with open(path, encoding="ascii", errors="replace") as stream:
        pairs = [line.split() for line in stream]
    return {pair[0]: int(pair[1]) for pair in pairs if len(pair) == 2 and pair[1].isdigit()}


def kfd_gpus(root: str) -> list[Gpu]:
    """Return the host's GPUs in KFD node order, which is ROCr's and HIP's order."""
    nodes = os.path.join(root, "sys/class/kfd/kfd/topology/nodes")
    try:
        names = sorted((name for name in os.listdir(nodes) if name.isdigit()), key=int)
    except OSError:
        return []
    found = []
    for name in names:
        try:
            node = _properties(os.path.join(nodes, name, "properties"))
        except OSError:  # a node whose render device is not passed reads EPERM
            continue
        if node.get("simd_count", 0) > 0:
            found.append(node)
    seats = [(node.get("domain", 0), node["location_id"] >> 3) for node in found]
    gpus = []
    for node, seat in zip(found, seats):
        domain, place = seat
        function = node["location_id"] & 7
        shared = seats.count(seat) > 1
        bdf = f"{domain:04x}:{place >> 5:02x}:{place & 31:02x}.{0 if shared else function}"
        gpus.append(
            Gpu(
                f"{bdf}#{function}" if shared else bdf,
                node.get("drm_render_minor", -1),
                node.get("unique_id", 0),
            )
        )
    return gpus


def rocr_filter(gpus: list[Gpu], value: str | None) -> list[Gpu]:
    """Apply ROCR_VISIBLE_DEVICES: the first token that is not one device ends the list."""
    if value is None:
        return gpus
    chosen: list[Gpu] = []
    for token in value.split(","):
        token = token.strip().upper()
        if token.startswith("G"):
            found = [gpu for gpu in gpus if f"GPU-{gpu.unique_id:016X}".startswith(token)]
            match = found[0] if len(found) == 1 and 5 <= len(token) <= 20 else None
        else:
            match = gpus[int(token)] if token.isdigit() and int(token) < len(gpus) else None
        if match is None or match in chosen:
            break
        chosen.append(match)
    return chosen


def hip_filter(gpus: list[Gpu], environment: typing.Mapping[str, str]) -> list[Gpu]:
    """Apply HIP_VISIBLE_DEVICES or CUDA_VISIBLE_DEVICES, which vLLM wants to be the same."""
    hip, cuda = (environment.get(f"{name}_VISIBLE_DEVICES") for name in ("HIP", "CUDA"))
    if hip and cuda and hip != cuda:
        raise StartupError(
            "ValueError",
            f"Inconsistent GPU visibility env vars: HIP_VISIBLE_DEVICES={hip!r} "
            f"CUDA_VISIBLE_DEVICES={cuda!r}",
        )
    value = hip or cuda
    if not value:
        return gpus
    chosen: list[Gpu] = []
    for token in value.split(","):
        if not re.fullmatch(r"\s*-?\d+\s*", token):
            raise StartupError("ValueError", f"invalid literal for int() with base 10: {token!r}")
        number = int(token)
        if not 0 <= number < len(gpus) or gpus[number] in chosen:
            break
        chosen.append(gpus[number])
    return chosen


def visible_gpus(root: str, environment: typing.Mapping[str, str]) -> list[Gpu]:
    """Return the GPUs the engine would see, in HIP order."""
    if not openable(os.path.join(root, "dev/kfd")):
        return []
    passed = [
        gpu
        for gpu in kfd_gpus(root)
        if openable(os.path.join(root, f"dev/dri/renderD{gpu.render_minor}"))
    ]
    return hip_filter(rocr_filter(passed, environment.get("ROCR_VISIBLE_DEVICES")), environment)


def cpulist(text: str) -> frozenset[int]:
    """Read a kernel list such as 0-3,8 into numbers."""
    numbers: set[int] = set()
    for part in filter(None, (item.strip() for item in text.replace(" ", ",").split(","))):
        first, _, last = part.partition("-")
        numbers.update(range(int(first), int(last or first) + 1))
    return frozenset(numbers)


def own_unit() -> str | None:
    """Return the name of the systemd service this process runs in."""
    try:
        with open("/proc/self/cgroup", encoding="ascii") as stream:
            paths = [line.rstrip("\n").split(":", 2)[2] for line in stream]
    except OSError:
        return None
    names = [part for path in paths for part in path.split("/") if part.endswith(".service")]
    return names[-1] if names else None


def memory_policy(unit: str | None) -> tuple[str, frozenset[int]]:
    """Return (policy, nodes) that systemd applies to the unit, or a container's control group.

    The lab's kernel has one memory node and may not keep set_mempolicy, so systemd is asked.
    """
    if unit is None:
        return "cpuset", cpulist(_allowed_nodes())
    command = ["systemctl", "show", "--property=NUMAPolicy,NUMAMask", unit]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True)
    except (OSError, subprocess.SubprocessError) as problem:
        return f"unknown, {problem}", frozenset()
    shown = dict(line.split("=", 1) for line in done.stdout.splitlines() if "=" in line)
    return shown.get("NUMAPolicy", "") or "default", cpulist(shown.get("NUMAMask", ""))


def _allowed_nodes() -> str:
    with open("/proc/self/status", encoding="utf-8") as stream:
        told = dict(line.split(":", 1) for line in stream if ":" in line)
    return told.get("Mems_allowed_list", "").strip()


def _kernel_nodes() -> frozenset[int]:
    """Return the memory nodes of the kernel itself, whatever the lab's /sys shows."""
    with open("/proc/buddyinfo", encoding="utf-8") as stream:
        return frozenset(int(line.split()[1].rstrip(",")) for line in stream)


def check_promises(gpus: list[Gpu], environment: typing.Mapping[str, str]) -> None:
    """Compare what the unit promised in APIARY_* with what there is; refuse any difference."""
    promised = environment.get("APIARY_GPUS")
    if promised is None:
        warning("double.py:0", "APIARY_GPUS is not set: the GPUs are not checked")
    else:
        wanted = sorted(item.strip().lower() for item in promised.split(",") if item.strip())
        found = sorted(gpu.bdf for gpu in gpus)
        _compare("APIARY_GPUS", ",".join(wanted), ",".join(found), wanted == found)
    promised = environment.get("APIARY_CPUS")
    if promised is None:
        warning("double.py:0", "APIARY_CPUS is not set: the CPU affinity is not checked")
    else:
        mine = frozenset(os.sched_getaffinity(0))
        _compare("APIARY_CPUS", promised, _spell(mine), cpulist(promised) == mine)
    promised = environment.get("APIARY_MEMORY_NODES")
    if promised is None:
        warning("double.py:0", "APIARY_MEMORY_NODES is not set: the memory policy is not checked")
    else:
        policy, nodes = memory_policy(own_unit())
        held = policy not in ("default", "local") and nodes == cpulist(promised)
        # No container can have a node that the kernel below has not.
        held = held or (policy == "cpuset" and not cpulist(promised) <= _kernel_nodes())
        _compare("APIARY_MEMORY_NODES", promised, f"{_spell(nodes)} (policy {policy})", held)


def _compare(name: str, promised: str, found: str, held: bool) -> None:
    if not held:
        raise StartupError("PromiseBroken", f"{name}: promised {promised}; found {found or 'none'}")
    info("double.py:0", f"{name}: {promised} as promised")


def _spell(numbers: frozenset[int]) -> str:
    spans: list[list[int]] = []
    for number in sorted(numbers):
        if spans and spans[-1][1] == number - 1:
            spans[-1][1] = number
        else:
            spans.append([number, number])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in spans)


def claim(gpus: list[Gpu], root: str, utilization: float) -> list[socket.socket]:
    """Take each GPU's memory for this engine, or refuse as vLLM does when it is not free.

    The claim is an abstract socket of the host's network namespace: the kernel drops it with the
    process, however it ends. Memory that sysfs shows as used counts as well.
    """
    claims: list[socket.socket] = []
    for index, gpu in enumerate(gpus):
        total, used = _vram(root, gpu.bdf)
        claims.append(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM))
        try:
            claims[-1].bind(f"\0apiary-lab-gpu:{os.path.realpath(root)}:{gpu.bdf}")
        except OSError:
            used = total
        free = total - used
        if free < utilization * total or used == total:
            for holder in claims:
                holder.close()
            raise StartupError(
                "ValueError",
                f"Free memory on device cuda:{index} ({free / 2**30:.2f}/{total / 2**30:.2f} GiB) "
                "on startup is less than desired GPU memory utilization "
                f"({utilization}, {utilization * total / 2**30:.2f} GiB). Decrease GPU memory "
                f"utilization or reduce GPU memory used by other processes. (GPU {gpu.bdf})",
            )
    return claims


def _vram(root: str, bdf: str) -> tuple[int, int]:
    device = os.path.join(root, "sys/bus/pci/devices", bdf.partition("#")[0])
    values = []
    for name in ("total", "used"):
        try:
            with open(os.path.join(device, f"mem_info_vram_{name}"), encoding="ascii") as stream:
                values.append(int(stream.read()))
        except (OSError, ValueError):
            return 2**38, 0
    return values[0], values[1]
