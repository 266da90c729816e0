# SPDX-License-Identifier: GPL-3.0-or-later

"""A Kubernetes node with AMD GPUs: its kubelet's managers, and the cluster's device plugin."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import yaml

from ...documents import knowledge, to_document
from ...evidence.types import Evidence
from ...findings import ApiaryError, Finding, has_errors
from ...topology.host import from_evidence
from ...topology.types import Topology
from .. import resources
from ..facts import unknown
from ..types import MANAGED, HostFile, Kept, Skipped
from . import kubelet
from .kubelet import manager_settings
from .node import (
    Node,
    extra_arguments,
    holds,
    merged,
    pinned,
    read_node,
    state_policy,
    with_extra_argument,
    without_extra_argument,
)
from .objects import DevicePluginPlan, Settings, manifests, to_yaml, version
from .review import checks, naming, review

__all__ = ["DevicePluginPlan", "Settings", "decide"]

SYSCTL = "/etc/sysctl.d/90-apiary-kubernetes.conf"


def decide(settings: Settings, evidence: Evidence) -> DevicePluginPlan:
    """Return what one node gets and lacks; a host without a kubelet gets nothing."""
    node = read_node(evidence)
    if node is None:
        return DevicePluginPlan(
            node=False, skipped=(Skipped("device_plugin", "the host has no kubelet"),)
        )
    host = from_evidence(evidence)
    findings = list(review(settings, node, host)) if settings.state == "present" else []
    skipped: list[Skipped] = []
    wanted: dict[str, Any] = {}
    if not settings.kubelet_enabled:
        skipped.append(Skipped("kubelet", "device_plugin_kubelet_enabled is false"))
    elif node.distribution in kubelet.facts()["others"] and settings.state == "absent":
        skipped.append(Kept("kubelet", f"{node.distribution} configures its own kubelet"))
    elif settings.state == "present":
        wanted, found = _wanted(settings, node, host, evidence)
        findings += found
    elif not node.distribution and not has_drop_ins(node):
        kept = "its settings were merged into its configuration; /var/lib/apiary/originals has it"
        skipped.append(Skipped("kubelet", kept))
    undone = settings.state == "absent" and not skipped
    # Nothing of ours would be read: neither files nor a restart have an effect.
    unread = any(one.code in ("KUBE-UNIT", "KUBE-DISTRIBUTION") for one in findings)
    managed = (bool(wanted) and not unread) or undone
    files: list[HostFile] = []
    if managed:
        for one in _kubelet_files(settings, node, wanted, evidence):
            # Without its very text a file of others can't be written anew.
            ours = one.path in (drop_in_path(), kubelet.path(node))
            why = None if ours else unknown(evidence, one.path)
            if why:
                findings.append(_unknown(evidence.host, one.path, why, wanted, node))
            else:
                files.append(one)
    restart = managed and _needs_restart(settings, node, wanted, files, evidence)
    if restart:
        findings += _undrained(settings, node, evidence)
    # A run that was killed has stopped the kubelet, which would refuse a state of another policy.
    if restart or (managed and not node.active and stale_states(wanted, evidence)):
        states = knowledge("host/kubernetes.yml")["kubelet"]["state_files"]
        gone = [states[name] for name in ("cpu", "memory") if states[name] in evidence.files]
        # First: while settings differ, the next run knows that they go.
        files = [*(HostFile(path, None) for path in gone), *files]
    least = knowledge("host/kubernetes.yml")["inotify"]["least"]
    sysctl, live = resources.at_least(SYSCTL, least, evidence, settings.state)
    objects = manifests(settings, naming(settings, host))
    stopped = restart and not has_errors(findings)
    return DevicePluginPlan(
        files=(*files, sysctl),
        resources=(
            {
                "kind": "offline_files",
                "service": node.service,
                "files": to_document(files),
                "restart": stopped,
                "awaits": knowledge("host/kubernetes.yml")["kubelet"]["state_files"]["cpu"],
            },
            *resources.files((sysctl,), keep_original=True),
            resources.live("device_plugin", live, settings.state),
        ),
        checks=tuple(checks(settings, node, host, wanted, evidence)),
        findings=tuple(findings),
        skipped=tuple(skipped),
        restart=stopped,
        live=live,
        manifests=objects,
        manifests_text=to_yaml(objects),
    )


def drop_in_path() -> str:
    """Return the path of our drop-in."""
    drop_in = knowledge("host/kubernetes.yml")["kubelet"]["drop_in"]
    return f"{drop_in['directory']}/{drop_in['file']}"


def _unknown(host: str, path: str, why: str, wanted: dict[str, Any], node: Node) -> Finding:
    """Return the refusal to write a file of others anew, and what to do by hand."""
    kubelet = knowledge("host/kubernetes.yml")["kubelet"]
    argument = f"--config-dir={kubelet['drop_in']['directory']}"
    by_hand = f"{'add' if wanted else 'remove'} {argument} in KUBELET_EXTRA_ARGS"
    if path == node.config_path:
        by_hand = "set " + json.dumps(wanted, sort_keys=True)
    return Finding(
        "KUBE-FILE-UNKNOWN",
        f"{host}: {path}",
        f"found {why}, expected a text that can be written again whole",
        path=path,
        by_hand=by_hand,
    )


def _wanted(
    settings: Settings, node: Node, host: Topology, evidence: Evidence
) -> tuple[dict[str, Any], list[Finding]]:
    """Return the kubelet's settings and what stands against them."""
    try:
        wanted = manager_settings(settings, host, node.version)
    except ApiaryError as refusal:
        wanted, refused = {}, refusal.findings
    else:
        refused = ()
    if node.distribution:
        return wanted, [*kubelet.findings(node, wanted, evidence), *refused]
    return wanted, [*_against(node, wanted, evidence), *refused]


def _against(node: Node, wanted: dict[str, Any], evidence: Evidence) -> Iterator[Finding]:
    """Yield what stands against the settings on a kubelet that a unit of its own starts."""
    facts = knowledge("host/kubernetes.yml")["kubelet"]
    flags = [
        word for word in node.arguments or () if word.partition("=")[0] in facts["flags"]["names"]
    ]
    if flags:
        yield Finding(
            "KUBE-FLAGS",
            evidence.host,
            f"its kubelet is started with {', '.join(flags)}, which beats the configuration",
            source=facts["flags"]["source"],
            arguments_path=node.arguments_path,
        )
    directory = facts["drop_in"]["directory"]
    others = [
        word
        for word in node.arguments or ()
        if word.startswith("--config-dir=") and word != f"--config-dir={directory}"
    ]
    if others:
        yield Finding(
            "KUBE-CONFIG-DIR",
            evidence.host,
            f"its kubelet is started with {others[0]}, expected --config-dir={directory}",
        )
    if not has_drop_ins(node) and node.config is None:
        yield Finding(
            "KUBE-NO-CONFIG",
            evidence.host,
            f"has no readable {node.config_path}, and its kubelet knows no drop-ins",
            since=facts["drop_in"]["since"],
        )
    if not reads_settings(node) and not holds(node.config or {}, wanted):
        yield Finding(
            "KUBE-UNIT",
            evidence.host,
            "its kubelet's unit reads no KUBELET_EXTRA_ARGS, and "
            f"{node.config_path} does not have what fits the host and its pods",
            by_hand=json.dumps(wanted, sort_keys=True),
            path=node.config_path,
        )


def reads_settings(node: Node) -> bool:
    """Return whether the kubelet can be made to read a drop-in: by its unit, or it does already."""
    directory = knowledge("host/kubernetes.yml")["kubelet"]["drop_in"]["directory"]
    return node.reads_arguments or f"--config-dir={directory}" in (node.arguments or ())


def has_drop_ins(node: Node) -> bool:
    """Say whether the kubelet can read a directory of drop-ins."""
    since = knowledge("host/kubernetes.yml")["kubelet"]["drop_in"]["since"]
    return node.version >= version(since)


def _kubelet_files(
    settings: Settings, node: Node, wanted: dict[str, Any], evidence: Evidence
) -> Iterator[HostFile]:
    """Yield the drop-in and the argument that has it read; before 1.30 the merged configuration."""
    facts = knowledge("host/kubernetes.yml")["kubelet"]
    directory = facts["drop_in"]["directory"]
    argument = f"--config-dir={directory}"
    present = settings.state == "present"
    if node.distribution:
        yield kubelet.settings_file(node, wanted, MANAGED)
        return
    if present and not reads_settings(node):
        return  # it has them already
    if not has_drop_ins(node):
        if wanted and node.config is not None:
            text = yaml.safe_dump(merged(node.config, wanted), sort_keys=True)
            held = all(holds(node.config.get(key), value) for key, value in wanted.items())
            # Comments and order of a file that is right already are left alone.
            if not held:
                yield HostFile(node.config_path, text)
        return
    drop_in = {"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration"}
    text = MANAGED + yaml.safe_dump(drop_in | wanted, sort_keys=True)
    ours = drop_in_path()
    yield HostFile(ours, text if present else None)
    before, running = node.arguments_text, argument in (node.arguments or ())
    listed = argument in extra_arguments(before)
    if present and not listed and not running:
        yield HostFile(node.arguments_path, with_extra_argument(before, argument))
    # Unread, the file may be what told the running kubelet.
    listed = listed or (running and node.arguments_path in evidence.unreadable)
    others = [path for path in evidence.files if path.startswith(directory + "/") and path != ours]
    # Drop-ins of somebody else still have to be read.
    if not present and listed and not others:
        yield HostFile(node.arguments_path, without_extra_argument(before, argument))


def _needs_restart(
    settings: Settings,
    node: Node,
    wanted: dict[str, Any],
    files: list[HostFile],
    evidence: Evidence,
) -> bool:
    """Say whether the kubelet must read its settings again: they change, or it has older ones."""
    if any(evidence.files.get(one.path) != one.content for one in files):
        return True
    if settings.state == "absent" or not node.active or node.distribution:
        return False
    argument = f"--config-dir={knowledge('host/kubernetes.yml')['kubelet']['drop_in']['directory']}"
    running = node.arguments is not None and argument not in node.arguments
    # What its unit does not bring it, no restart does.
    unread = has_drop_ins(node) and node.reads_arguments and running
    return unread or bool(stale_states(wanted, evidence))


def stale_states(wanted: dict[str, Any], evidence: Evidence) -> dict[str, str]:
    """Return the managers whose state file shows another policy than is wanted, and which."""
    states = knowledge("host/kubernetes.yml")["kubelet"]["state_files"]
    policies = {"cpu": "cpuManagerPolicy", "memory": "memoryManagerPolicy"}
    stale = {}
    for name, key in policies.items():
        found = state_policy(evidence, states[name])
        if key in wanted and found is not None and found.lower() != wanted[key].lower():
            stale[name] = found
    return stale


def _undrained(settings: Settings, node: Node, evidence: Evidence) -> Iterator[Finding]:
    """Refuse to restart the kubelet beside pods that it would pin otherwise."""
    if not node.active:
        return
    drain = "drain the node (kubectl drain --ignore-daemonsets)"
    held = pinned(evidence)
    if held:
        yield Finding(
            "KUBE-NOT-DRAINED",
            evidence.host,
            f"its kubelet must restart with other settings, and {len(held)} pods hold CPUs of"
            " their own, which it would forget",
            drain=drain,
        )
        return
    running = [
        f"{pod.namespace}/{pod.name}"
        for pod in node.pods or ()
        if pod.namespace not in settings.system_namespaces
    ]
    if settings.kubelet_restart_allowed or (node.pods is not None and not running):
        return
    shown = ", ".join(sorted(running)[:5]) + (" …" if len(running) > 5 else "")
    what = f"{shown} run" if running else "nothing tells which pods run (crictl did not answer)"
    yield Finding(
        "KUBE-NOT-DRAINED",
        evidence.host,
        f"its kubelet must restart with other settings, and {what}",
        drain=drain,
    )
