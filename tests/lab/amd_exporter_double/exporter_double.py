#!/usr/bin/env python3
# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A double of amd-metrics-exporter: its metrics, of a simulated /sys. Not AMD's; see README.md."""

from __future__ import annotations

import argparse
import glob
import json
import os
import socket
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

PCI = "sys/bus/pci/devices"
NODES = "sys/class/kfd/kfd/topology/nodes"
MIB = 2**20


def read(*parts):
    """A file's text, empty where it can't be read."""
    try:
        with open(os.path.join(*parts), encoding="utf-8") as stream:
            return stream.read().strip()
    except OSError:
        return ""


def number(*parts):
    """The first number in a file, 0 where there is none."""
    word = (read(*parts).split() or ["0"])[0]
    try:
        return float(word)
    except ValueError:
        return 0.0


def addresses(root):
    """The GPUs that the driver serves, in bus order: AMD's gpu_id is their place in it."""
    found = set()
    for path in glob.glob(os.path.join(root, NODES, "*/properties")):
        pairs = (line.split() for line in read(path).splitlines())
        own = {one[0]: int(one[1]) for one in pairs if len(one) == 2 and one[1].isdigit()}
        if own.get("simd_count"):
            place = own["location_id"]
            found.add(
                f"{own.get('domain', 0):04x}:{place >> 8 & 0xFF:02x}:{place >> 3 & 0x1F:02x}.0"
            )
    return sorted(found)


def errors(device, kind):
    """Memory errors of a kind over all blocks."""
    total = 0
    for path in glob.glob(os.path.join(device, "ras/*_err_count")):
        for line in read(path).splitlines():
            name, _, count = line.partition(":")
            if name.strip() == kind and count.strip().isdigit():
                total += int(count)
    return total


def fields(device):
    """What one GPU tells: {FIELD: [(further labels, value)]}."""
    hwmon = next(iter(glob.glob(os.path.join(device, "hwmon/hwmon*"))), "")
    total, used = number(device, "mem_info_vram_total"), number(device, "mem_info_vram_used")
    watts = number(hwmon, "power1_average") / 1e6
    links = [({"link_index": str(index)}, 0.0) for index in range(7)]
    clocks = [({"clock_index": "0", "clock_type": "system"}, 132.0)]
    clocks.append(({"clock_index": "8", "clock_type": "memory"}, 900.0))
    uncorrected = errors(device, "ue")
    said = {
        "GPU_HEALTH": float(uncorrected == 0),
        "GPU_PACKAGE_POWER": watts,
        "GPU_POWER_USAGE": watts,
        "GPU_ENERGY_CONSUMED": watts * time.monotonic() * 1e6,
        "GPU_JUNCTION_TEMPERATURE": number(hwmon, "temp2_input") / 1000,
        "GPU_MEMORY_TEMPERATURE": number(hwmon, "temp3_input") / 1000,
        "GPU_GFX_ACTIVITY": number(device, "gpu_busy_percent"),
        "GPU_UMC_ACTIVITY": number(device, "mem_busy_percent"),
        "GPU_CLOCK": clocks,
        "GPU_TOTAL_VRAM": total // MIB,
        "GPU_USED_VRAM": used // MIB,
        "GPU_FREE_VRAM": (total - used) // MIB,
        "PCIE_SPEED": number(device, "current_link_speed"),
        "PCIE_MAX_SPEED": number(device, "max_link_speed"),
        "PCIE_REPLAY_COUNT": number(device, "pcie_replay_count"),
        "PCIE_NACK_SENT_COUNT": 0.0,
        "PCIE_NACK_RECEIVED_COUNT": 0.0,
        "GPU_ECC_CORRECT_TOTAL": float(errors(device, "ce")),
        "GPU_ECC_UNCORRECT_TOTAL": float(uncorrected),
        "GPU_ECC_DEFERRED_TOTAL": float(errors(device, "de")),
        "GPU_XGMI_LINK_RX": links,
        "GPU_XGMI_LINK_TX": links,
    }
    for cause in ("PROCESSOR_HOT", "PPT", "SOCKET_THERMAL", "VR_THERMAL", "HBM_THERMAL"):
        said[f"GPU_VIOLATION_{cause}_RESIDENCY_PERCENTAGE"] = 0.0
    return {name: one if isinstance(one, list) else [({}, one)] for name, one in said.items()}


def exposition(config, root="/"):
    """The text of /metrics; without fields in the configuration, all of them."""
    prefix = config.get("CommonConfig", {}).get("MetricsFieldPrefix", "")
    gpu_config = config.get("GPUConfig", {})
    wanted = gpu_config.get("Fields") or None
    host = {"hostname": socket.gethostname()}
    samples = {"GPU_NODES_TOTAL": [(host, float(len(addresses(root))))]}
    for place, address in enumerate(addresses(root)):
        device = os.path.join(root, PCI, address)
        labels = {
            "gpu_id": str(place),
            "serial_number": read(device, "serial_number"),
            "card_model": read(device, "product_name"),
            "gpu_partition_id": "0",
            "gpu_compute_partition_type": read(device, "current_compute_partition").lower(),
            "gpu_memory_partition_type": read(device, "current_memory_partition").lower(),
            "deployment_mode": "baremetal",
            **host,
            **{name.lower(): one for name, one in gpu_config.get("CustomLabels", {}).items()},
        }
        for name, values in fields(device).items():
            samples.setdefault(name, []).extend(({**labels, **own}, one) for own, one in values)
    lines = []
    for name, values in samples.items():
        if wanted is not None and name not in wanted:
            continue
        told = prefix + name.lower()
        lines += [f"# HELP {told} {name} of a double, from simulated sysfs", f"# TYPE {told} gauge"]
        for labels, value in values:
            text = ",".join(f'{label}="{one}"' for label, one in sorted(labels.items()))
            lines.append(
                f"{told}{{{text}}} {value:g}" if value < 1e6 else f"{told}{{{text}}} {value}"
            )
    return "\n".join(lines) + "\n"


class Handler(BaseHTTPRequestHandler):
    """GET /metrics."""

    def do_GET(self):
        found = self.path == "/metrics"
        text = (
            exposition(self.server.config, self.server.root).encode() if found else b"not found\n"
        )
        self.send_response(200 if found else 404)
        self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_arguments):
        """Say nothing."""


def main():
    """Serve until ended, with the options of AMD's exporter."""
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("-amd-metrics-config", default="/etc/metrics/config.json")
    parser.add_argument("-bind", default="0.0.0.0")
    for name in ("enable-k8s", "enable-k8s-scl", "enable-cri", "enable-slurm-scl"):
        parser.add_argument(f"-{name}", default="true")
    parser.add_argument("--root", default="/", help="the double's own: where sys/ is")
    arguments = parser.parse_args()
    config = json.loads(read(arguments.amd_metrics_config) or "{}")
    server = ThreadingHTTPServer((arguments.bind, config.get("ServerPort", 5000)), Handler)
    server.config, server.root = config, arguments.root
    server.serve_forever()


if __name__ == "__main__":
    main()
