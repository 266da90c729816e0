#!/usr/bin/env python3
# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Simulate the sysfs of a host with eight MI325X; runs inside the host, Python 3.9 or newer."""

from __future__ import annotations

import argparse
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from simgpu import live, mi325x
from simgpu.faults import SYNTAX, FaultError, parse_faults
from simgpu.kfd import write_kfd
from simgpu.machine import Machine, read_probe_ranks
from simgpu.numa import write_numa
from simgpu.pci import write_bmc, write_gpus
from simgpu.tree import Tree


def generate(root: Path, machine: Machine) -> None:
    """Write what the kernel of this machine would show below /sys, in place of what is there."""
    if root.is_dir():
        shutil.rmtree(root)
    tree = Tree(root)
    for subtree in live.SUBTREES:
        tree.directory(subtree)
    write_numa(tree, machine)
    write_gpus(tree, machine)
    write_kfd(tree, machine)
    if machine.bmc:
        write_bmc(tree)


def boot(root: Path, machine: Machine) -> None:
    """Make this host the machine: a fresh tree over /sys, and the devices that it names."""
    scratch = root.resolve().parent / "overlay"
    live.unmount(scratch)
    generate(root, machine)
    live.mount(root.resolve(), scratch)
    live.make_device_nodes()


def parse_arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    """Return the parsed command line."""
    hardware = argparse.ArgumentParser(add_help=False)
    hardware.add_argument("root", type=Path, help="where the tree is written")
    hardware.add_argument("--numa-nodes", type=int, default=2)
    hardware.add_argument("--cpus-per-node", type=int, default=1)
    hardware.add_argument("--node-memory-gib", type=int, default=1024)
    hardware.add_argument("--bmc", action="store_true", help="a BMC's display adapter is card0")
    hardware.add_argument(
        "--kfd-order",
        type=read_probe_ranks,
        default=mi325x.PROBE_RANKS,
        help="probe rank of each GPU in bus order, or 'bdf'; the default is not the bus order",
    )
    hardware.add_argument("--fault", action="append", default=[])
    parser = argparse.ArgumentParser(description=__doc__)
    commands = parser.add_subparsers(required=True)
    for run, text in (
        (generate, "write a tree"),
        (boot, "write it and put it over this host's /sys, in place of an earlier one"),
    ):
        command = commands.add_parser(
            run.__name__,
            parents=[hardware],
            help=text,
            epilog=SYNTAX,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        command.set_defaults(run=run)
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command."""
    arguments = parse_arguments(argv)
    try:
        faults = parse_faults(arguments.fault)
    except FaultError as problem:
        print(f"simulated_sysfs.py: {problem}", file=sys.stderr)
        return 2
    machine = Machine(
        numa_nodes=arguments.numa_nodes,
        cpus_per_node=arguments.cpus_per_node,
        node_memory_gib=arguments.node_memory_gib,
        bmc=arguments.bmc,
        probe_ranks=arguments.kfd_order,
        faults=faults,
    )
    arguments.run(arguments.root, machine)
    return 0


if __name__ == "__main__":
    sys.exit(main())
