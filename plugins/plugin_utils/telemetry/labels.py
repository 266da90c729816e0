# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The labels of every series: one source for targets, rules and dashboards."""

from __future__ import annotations

# What a host's series carry.
HOST = ("host", "rack", "failure_domain")
# What an engine's carry: the replica's index as text, and the NUMA node of its CPUs and memory.
REPLICA = ("deployment", *HOST, "replica", "numa_node")
# What a GPU's carry; `gpu` is the BDF (#partition behind it where GPUs are cut), `gpu_id` AMD's
# number of today. deployment and replica are those that have the GPU now.
GPU = (*HOST, "gpu", "gpu_id", "numa_node", "hive", "deployment", "replica")
DEPLOYMENT = ("deployment",)
# A router's host, and the deployment whose requests it takes.
ROUTER = ("host", "deployment")

SETS: dict[str, tuple[str, ...]] = {
    "deployment": DEPLOYMENT,
    "gpu": GPU,
    "host": HOST,
    "replica": REPLICA,
    "router": ROUTER,
}

# The jobs of Prometheus; each is a file of targets. PLAIN: node_exporters without TLS, as `node`.
ENGINE, HAPROXY, AMD, NODE, PLAIN = "vllm", "haproxy", "amd-metrics", "node", "node-plain"
PROMETHEUS, ALERTMANAGER = "prometheus", "alertmanager"
JOBS = (ENGINE, HAPROXY, AMD, NODE, PLAIN, PROMETHEUS, ALERTMANAGER)


def known(**labels: str | None) -> dict[str, str]:
    """Return the labels that have a value, sorted; an empty one is none to Prometheus."""
    return {name: value for name, value in sorted(labels.items()) if value}
