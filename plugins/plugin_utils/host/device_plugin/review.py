# SPDX-License-Identifier: GPL-3.0-or-later

"""What speaks against the plugin on a node, and what holds on a right one."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from ...documents import knowledge
from ...evidence.types import Evidence
from ...findings import Finding
from ...topology.types import Topology
from ..types import Check
from .node import Node, holds, state_policy
from .objects import Settings, image, version

# Source: github.com/distribution/reference, its grammar.
_REGISTRY = re.compile(
    r"(?:[A-Za-z0-9][A-Za-z0-9.-]*|\[[0-9A-Fa-f:]+\])(?::[0-9]+)?"
    r"(?:/[a-z0-9]+(?:[._-]+[a-z0-9]+)*)*"
)
_TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")
_DIGEST = re.compile(r"(?:sha256:[0-9a-f]{64})?")
_TOLERATION = ("key", "operator", "value", "effect", "tolerationSeconds")


def review(settings: Settings, node: Node, host: Topology) -> Iterator[Finding]:
    """Yield every reason against applying these settings to this node."""
    yield from _inputs(settings, host.host)
    yield from _supported(node, host.host)
    yield from _owners(settings, node, host.host)
    yield from _floors(settings, node, host.host)
    yield from _naming(settings, host)
    yield from _uncounted(settings, host)
    yield from _pinned(settings)
    if settings.health_enabled and not settings.dra_version and not node.exporter_socket:
        yield Finding(
            "KUBE-NO-EXPORTER",
            host.host,
            "the plugin's health check finds no socket of the metrics exporter, so it sees only"
            " whether the driver answers",
        )


def _inputs(settings: Settings, host: str) -> Iterator[Finding]:
    """Refuse what no object of a cluster, and no layout, can have."""
    keys = [key for one in settings.tolerations for key in one if key not in _TOLERATION]
    tag = "a tag such as 1.31.0.9"
    hashed = "sha256: and 64 hexadecimal digits, or nothing"
    checked = (
        ("registry", settings.registry, _REGISTRY, "a registry such as docker.io/rocm"),
        ("version", settings.version, _TAG, tag),
        ("dra_version", settings.dra_version or "0", _TAG, tag),
        ("exporter_version", settings.exporter_version or "0", _TAG, tag),
        ("digest", settings.digest, _DIGEST, hashed),
        ("labeller_digest", settings.labeller_digest, _DIGEST, hashed),
    )
    wrong = [
        (name, repr(found), expected)
        for name, found, pattern, expected in checked
        if not pattern.fullmatch(found)
    ]
    if keys:
        wrong.append(("tolerations", ", ".join(map(str, keys)), ", ".join(_TOLERATION)))
    if any(count <= 0 for count in settings.pod_gpus):
        wrong.append(("pod_gpus", str(list(settings.pod_gpus)), "numbers of GPUs above 0"))
    for name, found, expected in wrong:
        yield Finding(
            "KUBE-INPUT",
            f"{host}: device_plugin_{name}",
            f"found {found}, expected {expected}",
            name=name,
        )


def _supported(node: Node, host: str) -> Iterator[Finding]:
    facts = knowledge("host/kubernetes.yml")["supported"]
    oldest, newest = version(facts["oldest"]), version(facts["newest"])
    if node.version and not oldest <= node.version[:2] <= newest:
        yield Finding(
            "KUBE-VERSION",
            host,
            f"runs Kubernetes {_text(node.version)}, expected {facts['oldest']} to"
            f" {facts['newest']}",
        )


def _owners(settings: Settings, node: Node, host: str) -> Iterator[Finding]:
    """Refuse a second owner: the GPU operator, or a DRA driver beside the plugin."""
    facts = knowledge("host/kubernetes.yml")
    operator = facts["operator"]
    owned = [
        pod.name
        for pod in node.pods or ()
        if pod.namespace == operator["namespace"] or pod.name.startswith(operator["pod"])
    ]
    if owned and settings.state == "present":
        yield Finding(
            "KUBE-OPERATOR",
            host,
            f"runs pods of AMD's GPU operator ({', '.join(sorted(owned))}), which brings its own"
            " device plugin and labeller",
        )
    resources = (node.registered or {}).items()
    plugin = any(name.startswith("amd.com/") and found for name, found in resources)
    both = node.dra if not settings.dra_version else plugin
    if both and settings.state == "present":
        asked, there = ("a DRA driver", "the device plugin's resources")
        if not settings.dra_version:
            asked, there = "the device plugin", "a DRA driver (gpu.amd.com)"
        yield Finding(
            "KUBE-DRA-EXCLUSIVE",
            host,
            f"is to have {asked} and has {there}: both would give the same GPU away",
        )
    if (
        settings.dra_version
        and node.version
        and node.version[:2] < version(facts["dra"]["kubernetes"])
    ):
        yield Finding(
            "KUBE-DRA-KUBERNETES",
            host,
            f"runs Kubernetes {_text(node.version)}, which has no DRA that AMD's driver knows;"
            f" expected at least {facts['dra']['kubernetes']}",
        )


def _floors(settings: Settings, node: Node, host: str) -> Iterator[Finding]:
    """Refuse a component that is known to be wrong beside this host's driver."""
    versions = {
        "plugin": "" if settings.dra_version else settings.version,
        "dra": settings.dra_version,
        "exporter": settings.exporter_version or _text(node.exporter),
    }
    for name, floor in knowledge("host/kubernetes.yml")["floors"].items():
        found = version(versions[name])
        # Without AMD's own driver nothing tells its version; the newest known needs the most.
        newer = not node.driver or node.driver >= version(floor["driver"])
        if found and newer and found < version(floor["version"]):
            yield Finding(
                floor["code"],
                host,
                f"{name} {versions[name]} beside driver {_text(node.driver) or 'unknown'}:"
                f" {floor['why']}; expected at least {floor['version']}",
                source=floor["source"],
                version=floor["version"],
            )


def partition_modes(host: Topology) -> set[tuple[str, str]]:
    """Return the compute and memory partition modes that the host's GPUs have, lower-case."""
    return {
        (gpu.compute_partition.lower(), (gpu.memory_partition or "").lower())
        for gpu in host.gpus
        if gpu.compute_partition
    }


def naming(settings: Settings, host: Topology) -> str:
    """Return the plugin's resource naming strategy: one name where all GPUs are cut alike."""
    if settings.naming != "auto":
        return settings.naming
    return "mixed" if len(partition_modes(host)) > 1 else "single"


def expected_resources(settings: Settings, host: Topology) -> dict[str, int] | None:
    """Return how many devices of each name the node is to offer; None where that is unknown."""
    if naming(settings, host) == "single":
        return {"amd.com/gpu": len(host.gpus)}
    counts: dict[str, int] = {}
    for gpu in host.gpus:
        if not (gpu.compute_partition and gpu.memory_partition):
            return None
        name = f"amd.com/{gpu.compute_partition}_{gpu.memory_partition}".lower()
        counts[name] = counts.get(name, 0) + 1
    return counts


def _naming(settings: Settings, host: Topology) -> Iterator[Finding]:
    modes = partition_modes(host)
    if settings.naming == "single" and len(modes) > 1:
        yield Finding(
            "KUBE-HETEROGENEOUS",
            host.host,
            "its GPUs are cut in several ways ("
            + ", ".join("/".join(filter(None, mode)) for mode in sorted(modes))
            + "), and with device_plugin_naming=single the plugin refuses such a node",
        )


def _uncounted(settings: Settings, host: Topology) -> Iterator[Finding]:
    """Warn of a plugin that counts none of the GPUs that are cut in one way."""
    facts = knowledge("host/kubernetes.yml")["plugin"]["uncounted"]
    mode = facts["compute_partition"]
    cut = any(compute == mode for compute, _memory in partition_modes(host))
    if cut and settings.version in facts["versions"] and not settings.dra_version:
        yield Finding(
            "KUBE-PLUGIN-UNCOUNTED",
            host.host,
            f"plugin {settings.version} beside GPUs cut in {mode.upper()}",
        )


def _pinned(settings: Settings) -> Iterator[Finding]:
    """Warn of images that may change under their tag."""
    prefix = knowledge("host/kubernetes.yml")["plugin"]["labeller_tag_prefix"]
    images = []
    if not settings.dra_version:
        images.append(("device_plugin_digest", settings.version, settings.digest))
    if settings.labeller_enabled:
        tag = prefix + settings.version
        images.append(("device_plugin_labeller_digest", tag, settings.labeller_digest))
    for variable, tag, digest in images:
        if not digest:
            yield Finding(
                "KUBE-UNPINNED",
                image(settings, tag, ""),
                "is named by its tag, which its registry can move; expected a digest",
                variable=variable,
            )


def _text(numbers: tuple[int, ...]) -> str:
    return ".".join(map(str, numbers))


def checks(
    settings: Settings, node: Node, host: Topology, wanted: dict[str, Any], evidence: Evidence
) -> Iterator[Check]:
    """Yield every check of a node, whatever its state."""
    if settings.state == "absent":
        return
    if not node.distribution:
        yield Check.of(
            "KUBE-KUBELET-DOWN",
            "kubelet.service",
            node.active,
            "active" if node.active else "not active",
            "active",
        )
    for key, value in sorted(wanted.items()):
        found = (node.config or {}).get(key)
        yield Check.of(
            "KUBE-KUBELET-SETTING",
            key,
            None if node.config is None else holds(found, value),
            _shown(found),
            _shown(value),
        )
    yield from _policies(wanted, evidence)
    if not settings.dra_version:
        yield _resources(settings, node, host)


def _policies(wanted: dict[str, Any], evidence: Evidence) -> Iterator[Check]:
    """Yield whether the running kubelet lives by the policies: its state files say so."""
    states = knowledge("host/kubernetes.yml")["kubelet"]["state_files"]
    for name, key in (("cpu", "cpuManagerPolicy"), ("memory", "memoryManagerPolicy")):
        if key not in wanted:
            continue
        found = state_policy(evidence, states[name])
        yield Check.of(
            "KUBE-KUBELET-POLICY",
            states[name],
            None if found is None else found.lower() == wanted[key].lower(),
            found or "nothing",
            wanted[key],
        )


def _resources(settings: Settings, node: Node, host: Topology) -> Check:
    """Return whether the kubelet has every GPU from the plugin, under the right name."""
    expected = expected_resources(settings, host)
    found = None
    if node.registered is not None:
        counts = {name: len(ids) for name, ids in node.registered.items()}
        found = {name: n for name, n in sorted(counts.items()) if name.startswith("amd.com/")}
    complete = None
    if expected is not None:
        complete = found == expected
    return Check.of(
        "KUBE-RESOURCES",
        "amd.com",
        complete,
        "no device plugin" if not found else _shown(found),
        "unknown, as the partition modes are" if expected is None else _shown(expected),
    )


def _shown(value: Any) -> str:
    if value is None:
        return "nothing"
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True)
