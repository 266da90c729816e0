# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What is collected of a host's GPUs: commands, files and links, as tables.

Standard library, and no import of ours: over SSH its text stands in gpu.py (host/program.py).
"""

from __future__ import annotations

import glob
import os
import re
import shlex
import shutil

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


FAILED = "amdgpu.*(probe|Fatal error|\\*ERROR\\*|failed)|kfd.*(rror|ailed)"
LOG_LINES = 200
# Older tools refuse options they don't know.
# Never `rocm-smi -d` beside topology: it sizes the matrix by the selection (rocm_smi.py).
COMMANDS: Commands = (
    tool("uname", "uname -srvm"),
    tool("lscpu", "lscpu --parse=CPU,CORE,SOCKET,NODE,ONLINE"),
    tool("numactl", "numactl -H"),
    tool("lspci", "lspci -D -nn -k -PP", "lspci -D -nn -k", "lspci -D -nn"),
    # Of a log of megabytes, the GPUs that the driver could not bring up; needs root where the
    # kernel restricts dmesg.
    tool("amdgpu_log", f"sh -c \"dmesg | grep -E '{FAILED}' | tail -n {LOG_LINES}\""),
    tool("amd_smi_version", "amd-smi version"),
    tool("amd_smi_list", "amd-smi list -e --json", "amd-smi list --json", "amd-smi list"),
    tool("amd_smi_topology", "amd-smi topology --json", "amd-smi topology"),
    tool(
        "amd_smi_static",
        "amd-smi static --asic --bus --driver --vram --numa --partition --json",
        "amd-smi static --json",
        "amd-smi static",
    ),
    tool("amd_smi_xgmi", "amd-smi xgmi --json", "amd-smi xgmi"),
    tool("amd_smi_partition", "amd-smi partition --json", "amd-smi partition --current"),
    tool("rocm_smi_version", "rocm-smi --version"),
    tool(
        "rocm_smi_identity",
        "rocm-smi --showbus --showid --showuniqueid --showproductname --showdriverversion"
        " --showmeminfo vram --json",
        "rocm-smi --showbus --showid --json",
        "rocm-smi --showbus --showid",
    ),
    tool(
        "rocm_smi_topology",
        "rocm-smi --showtopo --showtopoaccess --json",
        "rocm-smi --showtopo --json",
        "rocm-smi --showtopo",
    ),
    # Bandwidth is the one table of rocm-smi that has no JSON.
    tool("rocm_smi_bandwidth", "rocm-smi --shownodesbw"),
    tool(
        "rocm_smi_partition",
        "rocm-smi --showcomputepartition --showmemorypartition --json",
        "rocm-smi --showcomputepartition --showmemorypartition",
    ),
    tool("rocm_smi_metrics", "rocm-smi --showmetrics --json", "rocm-smi --showmetrics"),
    tool("rocminfo", "rocminfo"),
)
# An older rocm-smi knows none of these, in whatever form it is asked.
REFUSED = re.compile(r"unrecognized arguments: (.*)")
# Long, and needed for the state of the xGMI ports only: not where amd-smi has told it.
UNLESS = {
    "rocm_smi_metrics": ("amd_smi_xgmi", re.compile(r"link_(?:port_)?status|LINK .{0,200}STATUS"))
}

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
    "/opt/rocm/.info/version",
    "/proc/sys/kernel/numa_balancing",
    "/proc/sys/kernel/osrelease",
    "/sys/class/dmi/id/bios_date",
    "/sys/class/dmi/id/bios_version",
    "/sys/class/dmi/id/product_name",
    "/sys/module/amdgpu/version",
    "/sys/module/amdgpu/initstate",
    "/sys/module/amdgpu/parameters/pcie_p2p",
    "/sys/devices/system/node/online",
    "/sys/devices/system/node/node*/cpulist",
    "/sys/devices/system/node/node*/distance",
    "/sys/devices/system/node/node*/meminfo",
)
# What engines measured of themselves as they started: no more of it, for it is their account's.
RECORDS, RECORD_BYTES = "/run/apiary/*/figures.json", 4096
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
    "vbios_version",
    "ras/umc_err_count",
    "xgmi_num_links",
    "xgmi_num_hops",
    "xgmi_hive_info/xgmi_hive_id",
)
BRIDGE_ATTRIBUTES = (
    "vendor",
    "device",
    "class",
    "current_link_speed",
    "current_link_width",
    "max_link_speed",
    "max_link_width",
)
PCI_FUNCTION = re.compile(r"[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[01][0-9a-fA-F]\.[0-7](?=/|$)")
# Network interfaces: the directory, and what is read of each.
INTERFACE_FILES = (
    ("/sys/class/net", ("speed", "operstate", "device/numa_node")),
    (
        "/sys/class/infiniband",
        ("device/numa_node", "ports/1/state", "ports/1/rate", "ports/1/link_layer"),
    ),
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
