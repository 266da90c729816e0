# SPDX-License-Identifier: GPL-3.0-or-later

"""What evidence says of a Kubernetes node: its kubelet, its settings, its pods and devices."""

from __future__ import annotations

import json
import re
import shlex
from dataclasses import dataclass
from typing import Any

import yaml

from ...documents import knowledge
from ...evidence.types import Evidence
from ..facts import command, os_release
from .objects import version


@dataclass(frozen=True)
class Pod:
    """A pod whose sandbox is ready."""

    name: str
    namespace: str


@dataclass(frozen=True)
class Node:
    """One node. ``config`` is what the kubelet reads now, drop-ins merged; None: it has none.

    ``service`` is what starts the kubelet, ``reads_arguments`` whether its unit reads further ones.
    ``arguments`` are those of the running kubelet; None where it does not run. ``pods`` is None
    where the container runtime did not answer. ``registered`` maps resources to their devices, as
    the kubelet last wrote it down; None where it wrote nothing.
    """

    version: tuple[int, ...]
    service: str
    active: bool
    reads_arguments: bool
    arguments: tuple[str, ...] | None
    arguments_path: str
    arguments_text: str
    config_path: str
    config: dict[str, Any] | None
    pods: tuple[Pod, ...] | None
    registered: dict[str, tuple[str, ...]] | None
    distribution: str | None
    driver: tuple[int, ...]
    exporter: tuple[int, ...]
    exporter_socket: bool
    dra: bool


def read_node(evidence: Evidence) -> Node | None:
    """Return the node that a host is; None where it has no kubelet of any kind."""
    told = command(evidence, "kubelet_version")
    facts = knowledge("host/kubernetes.yml")
    other = command(evidence, "kubernetes_distribution")
    found = re.search(r"\b(k3s|rke2|microk8s|k0s)\S*", other.stdout) if other else None
    distribution = found[1] if found else None
    if told is None and distribution is None:
        return None
    service = command(evidence, "kubelet_service")
    paths = facts["kubelet"]["arguments"]
    unit = service.stdout if service else ""
    path = paths.get(os_release(evidence).id, paths["other"])
    path = next((one for one in paths.values() if f"={one} (" in unit), path)
    arguments = _arguments(evidence)
    named = [word for word in arguments or () if word.startswith("--config=")]
    config_path = named[-1].partition("=")[2] if named else facts["kubelet"]["config"]
    text = evidence.files.get(path, "")
    exporter = command(evidence, "exporter_package")
    sockets = (*evidence.files, *evidence.unreadable)
    return Node(
        version=version(told.stdout.rpartition(" ")[2]) if told else (),
        service=found[0] if found else "kubelet.service",
        active=distribution is not None or "ActiveState=active" in unit,
        reads_arguments="ExecStart=" not in unit or facts["kubelet"]["extra_arguments"] in unit,
        arguments=arguments,
        arguments_path=path,
        arguments_text=text,
        config_path=config_path,
        config=_config(evidence, config_path, arguments or extra_arguments(text)),
        pods=_pods(evidence),
        registered=_registered(evidence),
        distribution=distribution,
        driver=version(evidence.files.get("/sys/module/amdgpu/version", "")),
        exporter=version(exporter.stdout) if exporter else (),
        # A socket can't be read, which is how it shows.
        exporter_socket=any(
            one.startswith(facts["plugin"]["exporter_directory"]) for one in evidence.unreadable
        ),
        dra=any(one.startswith(facts["dra"]["sockets"]) for one in sockets),
    )


def extra_arguments(text: str) -> tuple[str, ...]:
    """Return the words of KUBELET_EXTRA_ARGS= in an environment file."""
    words: list[str] = []
    for line in text.splitlines():
        name, equals, value = line.strip().partition("=")
        if equals and name == "KUBELET_EXTRA_ARGS":
            words = _words(_unquoted(value))
    return tuple(words)


def with_extra_argument(text: str, argument: str) -> str:
    """Return the environment file with one more word in KUBELET_EXTRA_ARGS=, the rest as it is."""
    return _with_words(text, (*extra_arguments(text), argument))


def without_extra_argument(text: str, argument: str) -> str:
    """Return the environment file without a word of KUBELET_EXTRA_ARGS=."""
    words = extra_arguments(text)
    if argument not in words:
        return text
    return _with_words(text, tuple(word for word in words if word != argument))


def _with_words(text: str, words: tuple[str, ...]) -> str:
    line = "KUBELET_EXTRA_ARGS=" + shlex.quote(" ".join(words))
    lines = text.splitlines()
    places = [
        index
        for index, old in enumerate(lines)
        if old.strip().partition("=")[0] == "KUBELET_EXTRA_ARGS"
    ]
    if places:
        lines[places[-1]] = line
    else:
        lines.append(line)
    return "\n".join(lines) + "\n"


def _unquoted(value: str) -> str:
    value = value.strip()
    return value[1:-1] if len(value) > 1 and value[0] == value[-1] and value[0] in "'\"" else value


def _words(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError:
        return text.split()


def _arguments(evidence: Evidence) -> tuple[str, ...] | None:
    said = command(evidence, "kubelet_process")
    lines = said.stdout.splitlines() if said else []
    return tuple(lines[0].split()[1:]) if lines else None


def _config(evidence: Evidence, path: str, arguments: tuple[str, ...]) -> dict[str, Any] | None:
    """Return the configuration file with the drop-ins that the kubelet is told to read."""
    facts = knowledge("host/kubernetes.yml")["kubelet"]
    text = evidence.files.get(path)
    if text is None:
        return None
    config = _mapping(text)
    directory = facts["drop_in"]["directory"]
    if f"--config-dir={directory}" in arguments:
        for path in sorted(evidence.files):
            if path.startswith(directory + "/") and path.endswith(".conf"):
                config = merged(config, _mapping(evidence.files[path]))
    return config


def merged(base: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    """Return a configuration with another on top, as the kubelet does it: lists are replaced.

    Source: kubernetes.io, Kubelet Configuration Directory Merging.
    """
    result = dict(base)
    for key, value in over.items():
        old = result.get(key)
        if isinstance(old, dict) and isinstance(value, dict):
            result[key] = merged(old, value)
        else:
            result[key] = value
    return result


def holds(found: Any, wanted: Any) -> bool:
    """Say whether a value has all that is wanted of it; maps may have more."""
    if isinstance(wanted, dict) and isinstance(found, dict):
        return all(holds(found.get(key), value) for key, value in wanted.items())
    return bool(found == wanted)


def _mapping(text: str) -> dict[str, Any]:
    try:
        read = yaml.safe_load(text)
    except yaml.YAMLError:
        return {}
    return read if isinstance(read, dict) else {}


def _pods(evidence: Evidence) -> tuple[Pod, ...] | None:
    """Return what `crictl pods` lists; its creation column has spaces, so it is read from STATE."""
    said = command(evidence, "pods")
    if said is None:
        return None
    pods = []
    for line in said.stdout.splitlines()[1:]:
        words = line.split()
        if "Ready" in words:
            place = words.index("Ready")
            name, namespace = words[place + 1 : place + 3]
            pods.append(Pod(name, namespace))
    return tuple(pods)


def _registered(evidence: Evidence) -> dict[str, tuple[str, ...]] | None:
    path = knowledge("host/kubernetes.yml")["kubelet"]["checkpoint"]
    try:
        read = json.loads(evidence.files[path])["Data"]["RegisteredDevices"]
        return {str(name): tuple(devices) for name, devices in (read or {}).items()}
    except (KeyError, ValueError, TypeError, AttributeError):
        return None


def state_policy(evidence: Evidence, path: str) -> str | None:
    """Return the policy that a manager of the kubelet runs by, from its state file."""
    return _state(evidence, path).get("policyName")


def pinned(evidence: Evidence) -> tuple[str, ...]:
    """Return the ids of pods that hold CPUs of their own."""
    path = knowledge("host/kubernetes.yml")["kubelet"]["state_files"]["cpu"]
    return tuple(sorted(_state(evidence, path).get("entries") or {}))


def _state(evidence: Evidence, path: str) -> dict[str, Any]:
    try:
        read = json.loads(evidence.files.get(path, "{}"))
    except ValueError:
        return {}
    return read if isinstance(read, dict) else {}
