#!/usr/bin/env python3
# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Simulated GPU hosts: containers with real systemd, real sshd and a simulated /sys.

What is real in them and what is simulated: tests/lab/README.md.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from simgpu.machine import read_probe_ranks

from labkit import apt_sources, hosts, image, network, prerequisites, spec
from labkit.console import error, guarded, say
from labkit.state import Lab, open_lab

Command = Callable[[Lab, argparse.Namespace], None]

BIND_MOUNTS = {
    "engine_dir": "/opt/vllm",
    "models_dir": "/srv/models",
    "mirror_dir": "/opt/mirror",
}


def up(lab: Lab, arguments: argparse.Namespace) -> None:
    """Bring the lab to the hosts asked for, and tell where they are."""
    counts = {
        spec.GPU_HOSTS: arguments.hosts,
        spec.ROUTERS: arguments.routers,
        spec.MONITORING: arguments.monitoring,
        spec.STORAGE: arguments.storage,
    }
    members = {group: spec.host_names(count, spec.KINDS[group]) for group, count in counts.items()}
    names = members[spec.GPU_HOSTS]
    faults = spec.faults_by_host(arguments.fault, names)
    options = [
        f"--cpus-per-node {spec.cpus_per_node(os.cpu_count())}",
        f"--node-memory-gib {arguments.node_memory_gib}",
    ]
    options += _machine_options(arguments)
    mounts = _bind_mounts(arguments)
    os_release = apt_sources.parse_os_release(Path("/etc/os-release").read_text())
    mirror = apt_sources.choose_mirror(os_release, apt_sources.read_sources())
    tag = image.image_tag(mirror)
    with lab.locked():
        prerequisites.ensure_docker(lab)
        prerequisites.ensure_room(sum(counts.values()) + len(hosts.of_others(lab)))
        subnet = network.ensure(lab)
        specs = [
            spec.HostSpec(
                name,
                tag,
                tuple(options),
                faults.get(name, ()),
                mounts if group in (spec.GPU_HOSTS, spec.STORAGE) else (),
                group,
                network.address(subnet, group, number),
                network.address(subnet, "virtual") if group == spec.ROUTERS else None,
            )
            for group, named in members.items()
            for number, name in enumerate(named, 1)
        ]
        if not image.image_exists(tag):
            prerequisites.ensure_debootstrap()
            image.build_image(lab, mirror, tag)
        found = hosts.reconcile(lab, specs)
    if arguments.json:
        print(json.dumps({"hosts": found}, indent=2))
    else:
        _show(found)


def down(lab: Lab, arguments: argparse.Namespace) -> None:
    """Remove the lab; with --all also the image and our daemon, unless another lab is up."""
    with lab.locked():
        others: set[str] = set()
        if prerequisites.docker_answers():
            hosts.remove(container["Id"] for container in hosts.inspect(lab).values())
            network.remove(lab)
            others = set(hosts.of_others(lab).values())
            if arguments.all and not others:
                image.remove_images(lab)
        elif lab.hosts_file.exists():
            raise error(
                "LAB-DOCKER",
                lab.name,
                "the Docker engine does not answer, so the hosts cannot be removed"
                f"; start the engine, or delete {lab.directory} if it is gone for good",
            )
        lab.remove()
        say(f"The lab {lab.name} is down")
        if arguments.all and others:
            say(f"Image and Docker stay: the lab {', '.join(sorted(others))} is up")
        elif arguments.all:
            prerequisites.stop_docker(lab)


def status(lab: Lab, arguments: argparse.Namespace) -> None:
    """Tell which hosts are recorded, whether they run, and where."""
    recorded = lab.hosts()
    answers = prerequisites.docker_answers()
    present = hosts.inspect(lab) if answers else {}
    for name, host in recorded.items():
        absent = "gone" if answers else "unknown"
        host["state"] = present[name]["State"]["Status"] if name in present else absent
    if arguments.json:
        print(json.dumps({"hosts": recorded}, indent=2))
    elif recorded:
        _show(recorded)
    else:
        print(f"The lab {lab.name} is not up.")


def hardware(lab: Lab, arguments: argparse.Namespace) -> None:
    """Change the simulated hardware of a running host, until its next boot."""
    _require_up(lab, arguments.host)
    spec.check_faults(arguments.fault, " ".join(arguments.fault))
    options = [spec.fault_options(arguments.fault), *_machine_options(arguments)]
    hosts.change_hardware(lab, arguments.host, options)


def ssh(lab: Lab, arguments: argparse.Namespace) -> None:
    """Become ssh to a host."""
    _require_up(lab, arguments.host)
    command = [*hosts.ssh_command(lab, arguments.host), *arguments.command]
    os.execvp("ssh", command)  # noqa: S606 (no shell is the point)


def _machine_options(arguments: argparse.Namespace) -> list[str]:
    options = []
    if arguments.kfd_order:
        options.append(f"--kfd-order {','.join(map(str, arguments.kfd_order))}")
    if arguments.bmc:
        options.append("--bmc")
    return options


def _require_up(lab: Lab, host: str) -> None:
    if host not in lab.hosts():
        raise error(
            "LAB-NOT-UP",
            f"{lab.name}/{host}",
            "no such host is up"
            f"; up are: {', '.join(lab.hosts()) or 'none'}; `make demo` starts them",
        )


def _bind_mounts(arguments: argparse.Namespace) -> tuple[tuple[Path, str], ...]:
    mounts = []
    for option, target in BIND_MOUNTS.items():
        path = getattr(arguments, option)
        if path is None:
            continue
        if not path.is_dir():
            flag = f"--{option.replace('_', '-')}"
            raise error("LAB-ARGUMENT", f"{flag} {path}", "not a directory")
        mounts.append((path.resolve(), target))
    return tuple(mounts)


def _show(found: dict[str, dict[str, Any]]) -> None:
    for name, host in found.items():
        faults = ", ".join(host["faults"]) or "none"
        state = f"  {host['state']}" if "state" in host else ""
        place = f"in the lab {host['address_in_lab']}"
        reached = f"ssh {host['address']}:{host['ssh_port']}"
        print(f"{name}  {reached}  {place}  faults: {faults}{state}")


def parse_arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    """Return the parsed command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="run", required=True, metavar="COMMAND")
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("--name", default="demo", help="the lab's name (default: demo)")
    machine = argparse.ArgumentParser(add_help=False)
    machine.add_argument(
        "--kfd-order",
        type=read_probe_ranks,
        metavar="RANKS",
        help="probe rank of each GPU in bus order, or 'bdf' (default: 1,3,2,0,5,7,6,4)",
    )
    machine.add_argument("--bmc", action="store_true", help="a BMC's display adapter is card0")

    def command(
        name: str, run: Command, help_text: str, *more: argparse.ArgumentParser
    ) -> argparse.ArgumentParser:
        sub = commands.add_parser(name, parents=[common, *more], help=help_text)
        sub.set_defaults(run=run)
        return sub

    start = command("up", up, "bring the lab to the hosts asked for", machine)
    start.add_argument("--hosts", type=int, default=1, metavar="N", help="how many (default: 1)")
    start.add_argument(
        "--routers", type=int, default=0, metavar="N", help="router hosts beside them (default: 0)"
    )
    for group in (spec.MONITORING, spec.STORAGE):
        start.add_argument(
            f"--{group}", type=int, default=0, metavar="N", help=f"hosts of {group} (default: 0)"
        )
    start.add_argument(
        "--fault", action="append", default=[], metavar="HOST=FAULT", help="may be repeated"
    )
    start.add_argument("--engine-dir", type=Path, help="bind to /opt/vllm, read-only")
    start.add_argument("--models-dir", type=Path, help="bind to /srv/models, read-only")
    start.add_argument("--mirror-dir", type=Path, help="bind to /opt/mirror, read-only")
    start.add_argument(
        "--node-memory-gib", type=int, default=1024, help="shown per NUMA node (default: 1024)"
    )
    start.add_argument("--json", action="store_true", help="print hosts.json")
    stop = command("down", down, "remove the lab")
    stop.add_argument(
        "--all", action="store_true", help="also the image, and Docker if we started it"
    )
    tell = command("status", status, "tell what is up")
    tell.add_argument("--json", action="store_true")
    change = command(
        "hardware", hardware, "change a running host's GPUs, until its next boot", machine
    )
    change.add_argument("host")
    change.add_argument(
        "--fault", action="append", default=[], metavar="FAULT", help="may be repeated"
    )
    shell = command("ssh", ssh, "log in to a host, or run a command there")
    shell.add_argument("host")
    shell.add_argument("command", nargs=argparse.REMAINDER)
    arguments = parser.parse_args(argv)
    if getattr(arguments, "hosts", 1) < 1 or getattr(arguments, "routers", 0) < 0:
        parser.error("--hosts takes a positive number, --routers one or none")
    return arguments


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; every refusal is a finding on standard error."""
    arguments = parse_arguments(argv)
    return guarded(lambda: arguments.run(open_lab(arguments.name), arguments))


if __name__ == "__main__":
    sys.exit(main())
