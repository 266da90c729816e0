# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Collect what a host's GPU tools and kernel print, verbatim: the document `apiary.evidence/v1`.

One self-contained file: the Ansible module imports it, and ``ssh HOST python3 -`` runs it with
nothing installed. It gathers and selects; it interprets nothing.
"""

from __future__ import annotations

import datetime
import errno
import glob
import json
import os
import platform
import resource
import shutil
import subprocess
import sys
import time
from typing import Any, Callable, Optional, Union

SCHEMA = "apiary.evidence/v1"
COLLECTOR = "1"

# A finished command: exit code (None: it did not end by itself), stdout, stderr, error text.
Ran = tuple[Optional[int], Union[bytes, str], Union[bytes, str], Optional[str]]
Runner = Callable[[list[str]], Ran]

TIMEOUT_SECONDS = 60.0
# A sysfs attribute fits one page; anything larger is not what we came for.
FILE_LIMIT = 65536
OPEN_FILES = 65536
TOOL_PATH = ("/opt/rocm/bin", "/usr/bin", "/bin", "/usr/sbin", "/sbin", "/usr/local/bin")
# ROCr filters and renumbers by these, and a shell profile may set them.
FILTERS = (
    "ROCR_VISIBLE_DEVICES",
    "HIP_VISIBLE_DEVICES",
    "CUDA_VISIBLE_DEVICES",
    "GPU_DEVICE_ORDINAL",
)

# name -> argvs, tried in order until one answers: older tools refuse options they don't know.
# Never `rocm-smi -d` beside topology: it sizes the matrix by the selection (rocm_smi.py).
COMMANDS = (
    ("uname", (("uname", "-srvm"),)),
    ("lscpu", (("lscpu", "--parse=CPU,CORE,SOCKET,NODE,ONLINE"),)),
    ("rocm_smi_version", (("rocm-smi", "--version"),)),
    (
        "rocm_smi_identity",
        (
            (
                "rocm-smi",
                "--showbus",
                "--showid",
                "--showuniqueid",
                "--showproductname",
                "--showdriverversion",
                "--showmeminfo",
                "vram",
                "--json",
            ),
            ("rocm-smi", "--showbus", "--showid", "--json"),
        ),
    ),
    (
        "rocm_smi_topology",
        (("rocm-smi", "--showtopo", "--json"), ("rocm-smi", "--showtopo")),
    ),
    (
        "rocm_smi_partition",
        (("rocm-smi", "--showcomputepartition", "--showmemorypartition", "--json"),),
    ),
    ("amd_smi_version", (("amd-smi", "version"),)),
    ("amd_smi_list", (("amd-smi", "list", "-e", "--json"), ("amd-smi", "list", "--json"))),
    (
        "amd_smi_topology",
        (("amd-smi", "topology", "--json"), ("amd-smi", "topology")),
    ),
    (
        "amd_smi_static",
        (
            (
                "amd-smi",
                "static",
                "--asic",
                "--bus",
                "--driver",
                "--vram",
                "--numa",
                "--partition",
                "--json",
            ),
            ("amd-smi", "static", "--json"),
        ),
    ),
)

NODES = "/sys/class/kfd/kfd/topology/nodes"
KFD_FILES = (
    "/sys/class/kfd/kfd/topology/system_properties",
    NODES + "/*/properties",
    NODES + "/*/gpu_id",
    NODES + "/*/name",
    NODES + "/*/mem_banks/*/properties",
    NODES + "/*/io_links/*/properties",
    NODES + "/*/p2p_links/*/properties",
)
HOST_FILES = (
    "/etc/os-release",
    "/proc/cmdline",
    "/proc/sys/kernel/numa_balancing",
    "/sys/module/amdgpu/version",
    "/sys/module/amdgpu/initstate",
    "/sys/devices/system/node/online",
    "/sys/devices/system/node/node*/cpulist",
    "/sys/devices/system/node/node*/distance",
    "/sys/devices/system/node/node*/meminfo",
)
SIBLINGS = "/sys/devices/system/cpu/cpu[0-9]*/topology/thread_siblings_list"
PCI_DEVICES = "/sys/bus/pci/devices"
PCI_ATTRIBUTES = (
    "vendor",
    "device",
    "subsystem_vendor",
    "subsystem_device",
    "class",
    "numa_node",
    "local_cpulist",
    "current_link_speed",
    "current_link_width",
    "max_link_speed",
    "max_link_width",
    "mem_info_vram_total",
    "mem_info_vram_used",
    "current_compute_partition",
    "current_memory_partition",
    "unique_id",
    "ras/umc_err_count",
)
PCI_LINKS = ("", "driver", "physfn")
DRM_LINKS = ("/sys/class/drm/card[0-9]*", "/sys/class/drm/renderD[0-9]*")
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


def raise_file_limit() -> None:
    """Allow more open files, as far as this user may: amd-smi needs many with 64 partitions."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = OPEN_FILES if hard == resource.RLIM_INFINITY else min(hard, OPEN_FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def run_command(argv: list[str]) -> Ran:
    """Run one tool; return its exit code, standard output, standard error and an error text.

    A tool that is absent or runs into the timeout has the exit code None.
    """
    path = find_tool(argv[0])
    if path is None:
        return None, b"", b"", "not found"
    try:
        done = subprocess.run(
            [path, *argv[1:]],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            env=environment(),
            timeout=TIMEOUT_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired as late:
        message = f"no answer within {TIMEOUT_SECONDS:g} s"
        return None, late.stdout or b"", late.stderr or b"", message
    except OSError as problem:
        return None, b"", b"", errno_name(problem)
    return done.returncode, done.stdout, done.stderr, None


def errno_name(problem: OSError) -> str:
    """Return EACCES and the like for an OSError."""
    return errno.errorcode.get(problem.errno or 0, str(problem.errno))


def record(run: Runner, argv: tuple[str, ...]) -> dict[str, Any]:
    """Run one command and return its entry."""
    start = time.monotonic()
    code, stdout, stderr, problem = run(list(argv))
    entry = {
        "argv": list(argv),
        "exit": code,
        "stdout": text(stdout),
        "stderr": text(stderr),
        "seconds": round(time.monotonic() - start, 3),
    }
    if problem is not None:
        entry["error"] = problem
    return entry


def text(data: bytes | str) -> str:
    """Return bytes as text, whatever they are."""
    return data.decode("utf-8", errors="replace") if isinstance(data, bytes) else data


def answered(entry: dict[str, Any]) -> bool:
    """Say whether an attempt is worth keeping: amd-smi reports refusals on stdout, with exit 0."""
    stdout = entry["stdout"].strip()
    if not stdout or '"error"' in stdout[:400]:
        return False
    # rocm-smi up to 5.2 exits 2 beside complete data.
    return entry["exit"] == 0 or stdout[-1] in "]}"


class Files:
    """Reads below a root, and remembers what was there but could not be read."""

    def __init__(self, root: str) -> None:
        self.root = root.rstrip("/")
        self.files: dict[str, str] = {}
        self.links: dict[str, str] = {}
        self.unreadable: dict[str, str] = {}

    def paths(self, pattern: str) -> list[str]:
        """Return the paths that match, as the host names them."""
        found = glob.glob(self.root + pattern)
        return sorted(path[len(self.root) :] for path in found)

    def read(self, path: str) -> str | None:
        """Keep the content of one file; return it, or None."""
        try:
            with open(self.root + path, "rb") as stream:
                content = text(stream.read(FILE_LIMIT))
        except OSError as problem:
            if problem.errno not in (errno.ENOENT, errno.ENOTDIR):
                self.unreadable[path] = errno_name(problem)
            return None
        self.files[path] = content
        return content

    def read_all(self, pattern: str) -> None:
        """Keep the content of every file that matches."""
        for path in self.paths(pattern):
            self.read(path)

    def link(self, path: str) -> None:
        """Keep the target of a symbolic link, if it is one."""
        try:
            self.links[path] = os.readlink(self.root + path)
        except OSError as problem:
            if problem.errno not in (errno.ENOENT, errno.EINVAL, errno.ENOTDIR):
                self.unreadable[path] = errno_name(problem)


def collect_files(root: str, siblings: bool) -> Files:
    """Read the kernel's view below ``root``: KFD, the AMD GPUs on PCI, DRM, NUMA."""
    found = Files(root)
    for pattern in HOST_FILES + KFD_FILES:
        found.read_all(pattern)
    if siblings:
        found.read_all(SIBLINGS)
    for device in found.paths(PCI_DEVICES + "/*"):
        probe = Files(root)
        vendor, kind = probe.read(device + "/vendor"), probe.read(device + "/class")
        if (vendor or "").strip() != AMD_VENDOR or not (kind or "").startswith(GPU_CLASSES):
            continue
        for name in PCI_ATTRIBUTES:
            found.read(device + "/" + name)
        for name in PCI_LINKS:
            found.link(device + "/" + name if name else device)
    for pattern in DRM_LINKS:
        for path in found.paths(pattern):
            if "-" not in os.path.basename(path):  # card0-DP-1 is a connector
                found.link(path)
    return found


def collect(run: Runner = run_command, root: str = "/") -> dict[str, Any]:
    """Return the evidence of this host.

    ``run`` takes an argv and returns (exit or None, stdout, stderr, error or None); ``root`` is
    where /sys, /proc and /etc are found.
    """
    started = datetime.datetime.now(datetime.timezone.utc)
    raise_file_limit()
    commands: dict[str, dict[str, Any]] = {}
    missing: dict[str, dict[str, Any]] = {}
    for name, attempts in COMMANDS:
        for number, argv in enumerate(attempts):
            entry = missing.get(argv[0]) or record(run, argv)
            if entry.get("error") == "not found":
                missing[argv[0]] = entry
            label = name if number == 0 else f"{name}_{number + 1}"
            commands[label] = dict(entry, argv=list(argv))
            if answered(entry) or argv[0] in missing:
                break
    found = collect_files(root, siblings=commands["lscpu"]["exit"] != 0)
    return {
        "schema": SCHEMA,
        "host": platform.node().split(".")[0],
        "collected_at": started.strftime("%Y-%m-%dT%H:%M:%SZ"),
        "collector": COLLECTOR,
        "commands": commands,
        "files": found.files,
        "links": found.links,
        "unreadable": found.unreadable,
    }


if __name__ == "__main__":
    sys.stdout.write(json.dumps(collect(), sort_keys=True) + "\n")
