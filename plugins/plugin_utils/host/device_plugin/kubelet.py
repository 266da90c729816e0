# SPDX-License-Identifier: GPL-3.0-or-later

"""The kubelet's CPU, memory and topology managers: settings that fit the host and its pods.

K3s and RKE2 start the kubelet themselves: there they are flags in a file of theirs.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import yaml

from ...documents import knowledge
from ...evidence.types import Evidence
from ...findings import Finding, error
from ...numbers import format_cpulist, parse_cpulist
from ...topology.types import Topology
from ..facts import command
from ..types import HostFile
from .node import Node
from .objects import Settings, format_memory, parse_memory, shares


def manager_settings(
    settings: Settings, host: Topology, kubernetes: tuple[int, ...]
) -> dict[str, Any]:
    """Return the keys of KubeletConfiguration that pin pods to a socket's CPUs, memory and GPUs.

    Raises KUBE-CPUS-UNKNOWN, KUBE-NUMA-NODES, KUBE-QUANTITY or KUBE-RESERVED where the host can't
    have them.
    """
    facts = knowledge("host/kubernetes.yml")["kubelet"]
    policy = topology_policy(settings, host)
    config: dict[str, Any] = {
        "cpuManagerPolicy": "static",
        # Two pods on the two threads of a core would share its caches and its time.
        "cpuManagerPolicyOptions": {"full-pcpus-only": "true"},
        "reservedSystemCPUs": reserved_cpus(host),
        "topologyManagerPolicy": policy,
        "topologyManagerScope": "pod",
    }
    options = _topology_options(policy, host, kubernetes)
    if options:
        config["topologyManagerPolicyOptions"] = options
    sizes = {
        name: _bytes(host.host, f"device_plugin_{name}", getattr(settings, name))
        for name in ("system_memory", "kubelet_memory", "eviction_memory")
    }
    config["systemReserved"] = {"memory": format_memory(sizes["system_memory"])}
    config["kubeReserved"] = {"memory": format_memory(sizes["kubelet_memory"])}
    config["evictionHard"] = {
        "memory.available": format_memory(sizes["eviction_memory"]),
        **facts["eviction"]["defaults"],
    }
    if settings.memory_manager_enabled:
        config["memoryManagerPolicy"] = "Static"
        config["reservedMemory"] = reserved_memory(host, sum(sizes.values()))
    return config


def topology_policy(settings: Settings, host: Topology) -> str:
    """Return the policy: a pod that needs more than a NUMA node's GPUs rules out the strict one.

    Where nothing tells how large the pods are, none may be refused.
    """
    if settings.topology_manager_policy != "auto":
        return settings.topology_manager_policy
    on_node = Counter(gpu.numa_node for gpu in host.gpus if gpu.numa_node is not None)
    most = max(on_node.values(), default=0)
    fits = bool(settings.pod_gpus) and max(settings.pod_gpus) <= most
    return "single-numa-node" if fits else "best-effort"


def reserved_cpus(host: Topology) -> str:
    """Return the CPUs that the system keeps, the same ones that a plan leaves free."""
    rule = knowledge("placement.yml")["system_cores"]
    kept: list[int] = []
    first: list[int] = []
    for node in host.numa_nodes:
        count = min(rule["most"]["value"], len(node.cores) // rule["one_of"]["value"])
        kept += [cpu for core in node.cores[:count] for cpu in parse_cpulist(core)]
        first = first or [cpu for core in node.cores[:1] for cpu in parse_cpulist(core)]
    if not first:
        raise error(
            "KUBE-CPUS-UNKNOWN",
            host.host,
            "its evidence does not tell the CPUs of its NUMA nodes, so none can be reserved",
        )
    # The static policy does not start without a CPU for the system.
    return format_cpulist(kept or first)


def reserved_memory(host: Topology, total: int) -> list[dict[str, Any]]:
    """Return each NUMA node's part of ``total`` bytes; the kubelet wants their sum to be exact.

    ``total`` is systemReserved + kubeReserved + the hard eviction threshold.
    """
    nodes = [node for node in host.numa_nodes if node.memory_bytes != 0]
    if not nodes:
        raise error("KUBE-RESERVED", host.host, "its evidence names no NUMA node with memory")
    parts = list(zip(nodes, shares(total, len(nodes)), strict=True))
    for node, part in parts:
        if part <= 0 or (node.memory_bytes is not None and part >= node.memory_bytes):
            raise error(
                "KUBE-RESERVED",
                host.host,
                f"NUMA node {node.id} has {node.memory_bytes} bytes and would reserve {part}",
                source=knowledge("host/kubernetes.yml")["kubelet"]["reserved"]["source"],
            )
    return [{"numaNode": node.id, "limits": {"memory": format_memory(p)}} for node, p in parts]


def _topology_options(
    policy: str, host: Topology, kubernetes: tuple[int, ...]
) -> dict[str, str] | None:
    managers = knowledge("host/kubernetes.yml")["kubelet"]["managers"]
    count = len(host.numa_nodes)
    if policy == "none" or count <= managers["most_numa_nodes"]:
        return None
    since = tuple(int(part) for part in managers["numa_option_since"].split("."))
    if kubernetes[:2] < since:
        raise error(
            "KUBE-NUMA-NODES",
            host.host,
            f"has {count} NUMA nodes; the topology manager of this kubelet starts with at most"
            f" {managers['most_numa_nodes']}",
            numa_option_since=managers["numa_option_since"],
        )
    return {managers["numa_option"]: str(count)}


def _bytes(host: str, name: str, text: str) -> int:
    size = parse_memory(text)
    if size is None:
        raise error(
            "KUBE-QUANTITY",
            host,
            f"{name} is {text!r}, expected a whole amount of memory such as 4Gi",
            name=name,
        )
    return size


def facts() -> Mapping[str, Any]:
    """Return what is known of such distributions."""
    known: Mapping[str, Any] = knowledge("host/kubernetes.yml")["kubelet"]["embedded"]
    return known


def path(node: Node) -> str:
    """Return the file that the distribution reads our flags from."""
    return str(facts()["file"].format(name=node.distribution))


def settings_file(node: Node, wanted: Mapping[str, Any], header: str) -> HostFile:
    """Return that file; without settings it is to be gone."""
    if not wanted:
        return HostFile(path(node), None)
    flags = [f"{facts()['flags'][key]}={_value(key, value)}" for key, value in wanted.items()]
    # With the plus, flags of other files stay.
    return HostFile(path(node), header + yaml.safe_dump({"kubelet-arg+": flags}, width=1000))


def _value(key: str, value: Any) -> str:
    """Return a setting as its flag has it: maps and lists joined as the kubelet parses them."""
    if key == "reservedMemory":
        return ";".join(f"{one['numaNode']}:{_value('', one['limits'])}" for one in value)
    if isinstance(value, Mapping):
        sign = "<" if key == "evictionHard" else "="
        return ",".join(f"{name}{sign}{each}" for name, each in value.items())
    return str(value)


def findings(node: Node, wanted: Mapping[str, Any], evidence: Evidence) -> Iterator[Finding]:
    """Refuse distributions without such a file, and flags of others that decide the same."""
    known = facts()
    if node.distribution in known["others"]:
        yield Finding(
            "KUBE-DISTRIBUTION",
            evidence.host,
            f"its kubelet is started by {node.distribution}, expected a file for its settings",
            by_hand=json.dumps(wanted, sort_keys=True),
            place=known["others"][node.distribution],
        )
    found = command(evidence, "embedded_flags")
    given = {line.strip().rstrip("=") for line in found.stdout.splitlines()} if found else set()
    both = sorted(given & {known["flags"][key] for key in wanted})
    if both:
        yield Finding(
            "KUBE-FLAGS",
            evidence.host,
            f"its kubelet is given {', '.join(both)} by another file of {node.distribution}",
            source=known["source"],
            arguments_path=f"/etc/rancher/{node.distribution}",
        )
