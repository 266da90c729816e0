# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Create, reuse, await and remove the containers that are the simulated hosts."""

from __future__ import annotations

import json
import shlex
import socket
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from . import network
from .console import await_condition, error, last_line, run, say, step
from .spec import HostSpec, archive, container_options
from .state import Lab, ensure_key

ADDRESS = "127.0.0.1"
USER = "ansible"
# Below the range the kernel takes for outgoing connections, so that a reboot finds its ports free.
FIRST_PORT, LAST_PORT = 20000, 32000


def inspect(lab: Lab) -> dict[str, dict[str, Any]]:
    """Return the containers of a lab by host name, as ``docker inspect`` tells them."""
    containers = _inspect_labels(f"apiary.lab={lab.name}", f"apiary.root={lab.root}")
    return {container["Config"]["Hostname"]: container for container in containers}


def of_others(lab: Lab) -> dict[str, str]:
    """Return the containers of all other labs of this machine, with the names of their labs."""
    found = {}
    for container in _inspect_labels("apiary.lab"):
        labels = container["Config"]["Labels"]
        if (labels["apiary.root"], labels["apiary.lab"]) != (str(lab.root), lab.name):
            found[container["Id"]] = labels["apiary.lab"]
    return found


def _inspect_labels(*labels: str) -> list[dict[str, Any]]:
    filters = [part for label in labels for part in ("--filter", f"label={label}")]
    listed = run(["docker", "ps", "--all", "--quiet", *filters])
    ids = listed.stdout.decode().split()
    containers: list[dict[str, Any]] = []
    if ids:
        containers = json.loads(run(["docker", "inspect", *ids]).stdout)
    return containers


def reconcile(lab: Lab, specs: Sequence[HostSpec]) -> dict[str, Any]:
    """Bring the lab to exactly these hosts and return what hosts.json records of each."""
    present, recorded = inspect(lab), lab.hosts()
    kept = [spec.name for spec in specs if _is(spec, present) and spec.name in recorded]
    stale = sorted(present.keys() - set(kept))
    if stale:
        say(f"Removing {', '.join(stale)}: not what is asked for now")
        remove(present[name]["Id"] for name in stale)
    stopped = [present[name]["Id"] for name in kept if not present[name]["State"]["Running"]]
    if stopped:
        run(["docker", "start", *stopped])
    hosts = {}
    for spec in specs:
        hosts[spec.name] = recorded[spec.name] if spec.name in kept else _create(lab, spec)
    lab.record(hosts)
    if len(kept) == len(hosts) and not stopped:
        _await_all(lab, hosts)
    else:
        with step(f"Booting {len(hosts) - len(kept) + len(stopped)} of {len(hosts)} hosts"):
            _await_all(lab, hosts)
    return hosts


def _is(spec: HostSpec, present: dict[str, dict[str, Any]]) -> bool:
    """Say whether this very host is there."""
    container = present.get(spec.name)
    return container is not None and container["Config"]["Labels"]["apiary.spec"] == spec.digest()


def remove(containers: Iterable[str]) -> None:
    """Remove containers at once, with what they hold."""
    ids = list(containers)
    if ids:
        run(["docker", "rm", "--force", "--volumes", *ids])


def ssh_command(lab: Lab, host: str, *, batch: bool = False) -> list[str]:
    """Return the ssh call that reaches a host with its own key, strictly checked."""
    entry = lab.hosts()[host]
    # Nobody's own ssh configuration has a say here.
    command = ["ssh", "-F", "none", "-i", str(lab.identity), "-p", str(entry["ssh_port"])]
    options = [
        "IdentitiesOnly=yes",
        "StrictHostKeyChecking=yes",
        f"UserKnownHostsFile={lab.known_hosts}",
    ]
    if batch:
        options += ["BatchMode=yes", "ConnectTimeout=5"]
    for option in options:
        command += ["-o", option]
    return [*command, f"{entry['user']}@{entry['address']}"]


def change_hardware(lab: Lab, host: str, options: Sequence[str]) -> None:
    """Give a running host other hardware, until its next boot.

    What it was made with besides faults (CPUs, memory) stays; ``options`` are simulated_sysfs.py's.
    """
    boot = "python3 /opt/simgpu/simulated_sysfs.py boot /run/simgpu/sys $SIMGPU_OPTIONS"
    change = f". /etc/default/simgpu && {boot} {' '.join(options)}"
    run([*ssh_command(lab, host, batch=True), f"sudo sh -c {shlex.quote(change)}"])


def _create(lab: Lab, spec: HostSpec) -> dict[str, Any]:
    container = f"{network.name_of(lab)}-{spec.name}"
    host_key = ensure_key(lab.host_key(spec.name), spec.name)
    identity = ensure_key(lab.identity, f"apiary lab {lab.name}")
    ports = free_ports(len(spec.ports), taken=_claimed_ports())
    publish = [
        f"--publish={ADDRESS}:{outer}:{inner}"
        for outer, inner in zip(ports, spec.ports, strict=True)
    ]
    run(["docker", "create", *_create_options(lab, spec, container), *publish, spec.image])
    contents = archive(spec, host_key, identity.with_suffix(".pub"))
    run(["docker", "cp", "-", f"{container}:/"], data=contents)
    run(["docker", "start", container])
    return {
        "group": spec.group,
        "address": ADDRESS,
        "address_in_lab": spec.address,
        "virtual_address": spec.virtual_address,
        "ssh_port": ports[0],
        "user": USER,
        "ports": dict(zip(map(str, spec.ports[1:]), ports[1:], strict=True)),
        "faults": list(spec.faults),
        "container": container,
    }


def _create_options(lab: Lab, spec: HostSpec, container: str) -> list[str]:
    own = [
        f"--name={container}",
        f"--hostname={spec.name}",
        f"--network={network.name_of(lab)}",
        f"--ip={spec.address}",
        f"--label=apiary.lab={lab.name}",
        f"--label=apiary.root={lab.root}",
        f"--label=apiary.spec={spec.digest()}",
    ]
    return [*own, *container_options(), *spec.volumes]


def _claimed_ports() -> set[int]:
    """Return the ports of every lab's hosts, of those that do not run as well."""
    return {
        int(binding["HostPort"])
        for container in _inspect_labels("apiary.lab")
        for bindings in container["HostConfig"]["PortBindings"].values()
        for binding in bindings
    }


def free_ports(count: int, taken: set[int]) -> list[int]:
    """Return ports of the loopback address that nobody listens on."""
    free: list[int] = []
    for port in range(FIRST_PORT, LAST_PORT):
        if port in taken:
            continue
        with socket.socket() as probe:
            try:
                probe.bind((ADDRESS, port))
            except OSError:
                continue
        free.append(port)
        if len(free) == count:
            return free
    raise error(
        "LAB-PORTS",
        ADDRESS,
        f"no {count} free ports between {FIRST_PORT} and {LAST_PORT}",
    )


def _await_all(lab: Lab, hosts: dict[str, Any]) -> None:
    with ThreadPoolExecutor(max_workers=8) as pool:
        for ready in [pool.submit(_await_ready, lab, name) for name in hosts]:
            ready.result()


def _await_ready(lab: Lab, host: str) -> None:
    """Wait until the host has booted and answers over SSH; refuse with what it says if not."""
    ask = "systemctl is-system-running --wait; systemctl is-active simgpu.service"
    said = ""

    def booted() -> bool:
        nonlocal said
        done = run([*ssh_command(lab, host, batch=True), ask], check=False)
        said = (done.stderr + done.stdout).decode(errors="replace")
        return done.stdout.split() in ([b"running", b"active"], [b"degraded", b"active"])

    if not await_condition(booted, 120):
        raise error(
            "LAB-HOST",
            host,
            f"did not boot within 120 s: {last_line(said)}"
            f"; see `docker exec {lab.hosts()[host]['container']} journalctl --boot --no-pager`",
        )
