# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Start, await and end the machines: one process of QEMU each, known by its pid file."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import tarfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from labkit import hosts
from labkit.console import await_condition, error, last_line, run
from labkit.state import Lab, ensure_key

from . import disk

PROGRAM = "qemu-system-x86_64"
# Emulation is slow, and the machine may be busy.
BOOT_SECONDS = 600


@dataclass(frozen=True)
class Machine:
    """One machine: CPUs and memory (MiB) of each NUMA node, address on the private network."""

    name: str
    nodes: tuple[tuple[int, int], ...]
    number: int

    @property
    def address(self) -> str:
        return f"10.77.0.{self.number}"

    @property
    def mac(self) -> str:
        """Return the first five bytes of the hardware addresses."""
        return f"52:54:00:77:{self.number:02x}"


# The host that is tuned and mounts, with two memory nodes; the server of the weights, smaller.
CLIENT = Machine("gpu-vm", ((2, 1024), (2, 1024)), 1)
SERVER = Machine("nfs-vm", ((1, 768),), 2)
MACHINES = (CLIENT, SERVER)


def start_all(lab: Lab, base: Path) -> None:
    """Start every machine, and record how to reach them."""
    # What another process takes in between is told by QEMU.
    ports = hosts.free_ports(len(MACHINES), taken=set())
    pairs = zip(MACHINES, ports, strict=True)
    lab.record({machine.name: start(lab, base, machine, port) for machine, port in pairs})


def start(lab: Lab, base: Path, machine: Machine, port: int) -> dict[str, Any]:
    """Start a machine with a fresh disk; return what hosts.json records of it."""
    overlay = lab.directory / f"{machine.name}.qcow2"
    overlay.unlink(missing_ok=True)
    run(["qemu-img", "create", "-q", "-f", "qcow2", "-b", base, "-F", "raw", overlay])
    (lab.directory / f"{machine.name}.seed").write_bytes(seed(lab, machine))
    with (lab.directory / f"{machine.name}.qemu.log").open("wb") as log:
        process = subprocess.Popen(
            qemu_command(machine, port),
            cwd=lab.directory,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    pid_file(lab, machine).write_text(f"{process.pid}\n")
    return {"address": hosts.ADDRESS, "ssh_port": port, "user": hosts.USER, "ports": {}}


def qemu_command(machine: Machine, port: int) -> list[str]:
    """Return QEMU's command; its files are relative to the lab's directory.

    A Unix socket's path must be short, which a checkout's need not be.
    """
    cpus = sum(count for count, _ in machine.nodes)
    emulator = disk.emulator(cpus, sockets=len(machine.nodes))
    command = [*emulator, "-name", machine.name, "-boot", "c"]
    command += ["-m", f"{sum(memory for _, memory in machine.nodes)}M"]
    first = 0
    for number, (count, memory) in enumerate(machine.nodes):
        command += ["-object", f"memory-backend-ram,id=m{number},size={memory}M"]
        numa = f"node,nodeid={number},cpus={first}-{first + count - 1},memdev=m{number}"
        command += ["-numa", numa]
        first += count
    for number in range(1, len(machine.nodes)):
        command += ["-numa", f"dist,src={number - 1},dst={number},val=32"]
    (other,) = (one for one in MACHINES if one is not machine)
    network = f"local.type=unix,local.path={machine.name}.net"
    network += f",remote.type=unix,remote.path={other.name}.net"
    return [
        *command,
        *("-drive", f"file={machine.name}.qcow2,if=virtio,format=qcow2,cache=unsafe"),
        *("-drive", f"file={machine.name}.seed,if=virtio,format=raw,readonly=on"),
        *("-netdev", f"user,id=uplink,hostfwd=tcp:{hosts.ADDRESS}:{port}-:22"),
        *("-device", f"virtio-net-pci,netdev=uplink,mac={machine.mac}:01,romfile="),
        *("-netdev", f"dgram,id=private,{network}"),
        *("-device", f"virtio-net-pci,netdev=private,mac={machine.mac}:02,romfile="),
        *("-serial", f"file:{machine.name}.console"),
        # GRUB waits for ever where there is no screen at all.
        *("-vga", "std"),
    ]


def seed(lab: Lab, machine: Machine) -> bytes:
    """Return a tar of what makes this machine one of its own: name, keys, addresses."""
    host_key = ensure_key(lab.host_key(machine.name), machine.name)
    identity = ensure_key(lab.identity, f"apiary lab {lab.name}")
    names = "".join(f"{one.address} {one.name}\n" for one in MACHINES)
    files = {
        "etc/hostname": (f"{machine.name}\n".encode(), 0o644),
        "etc/hosts": (f"127.0.0.1 localhost\n{names}".encode(), 0o644),
        "etc/systemd/network/uplink.network": (
            # What QEMU's own network gives everyone.
            _network(f"{machine.mac}:01", "10.0.2.15/24", "Gateway=10.0.2.2\nDNS=10.0.2.3\n"),
            0o644,
        ),
        "etc/systemd/network/private.network": (
            _network(f"{machine.mac}:02", f"{machine.address}/24"),
            0o644,
        ),
        "etc/ssh/ssh_host_ed25519_key": (host_key.read_bytes(), 0o600),
        "etc/ssh/ssh_host_ed25519_key.pub": (host_key.with_suffix(".pub").read_bytes(), 0o644),
        # sshd accepts a key file that root owns, whoever logs in.
        "home/ansible/.ssh/authorized_keys": (
            identity.with_suffix(".pub").read_bytes(),
            0o644,
        ),
    }
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for path, (content, mode) in files.items():
            entry = tarfile.TarInfo(path)
            entry.size, entry.mode = len(content), mode
            tar.addfile(entry, io.BytesIO(content))
    return buffer.getvalue()


def _network(mac: str, address: str, more: str = "") -> bytes:
    # Nobody announces IPv6 here, and boot would wait for it.
    quiet = "LinkLocalAddressing=no\nIPv6AcceptRA=no\n"
    return f"[Match]\nMACAddress={mac}\n\n[Network]\nAddress={address}\n{more}{quiet}".encode()


def await_boot(lab: Lab, machine: Machine) -> None:
    """Wait until the machine has booted and answers over SSH; refuse with its last words if not."""
    said = ""

    def booted() -> bool:
        nonlocal said
        ask = [*hosts.ssh_command(lab, machine.name, batch=True), "systemctl is-system-running"]
        done = run(ask, check=False)
        said = (done.stderr + done.stdout).decode(errors="replace")
        return done.stdout.strip() in (b"running", b"degraded") or not running(lab, machine)

    if not await_condition(booted, BOOT_SECONDS) or not running(lab, machine):
        log = lab.directory / f"{machine.name}.qemu.log"
        raise error(
            "LAB-HOST",
            machine.name,
            f"did not boot within {BOOT_SECONDS} s: {last_line(log.read_text() or said)}"
            f"; see {machine.name}.console and {log}",
        )


def pid_file(lab: Lab, machine: Machine) -> Path:
    """Return the file that holds the pid of the machine's QEMU."""
    return lab.directory / f"{machine.name}.pid"


def running(lab: Lab, machine: Machine) -> bool:
    """Say whether the process in the pid file is the machine's."""
    try:
        pid = int(pid_file(lab, machine).read_text())
        arguments = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        directory = Path(f"/proc/{pid}/cwd").readlink()
    except (OSError, ValueError):
        return False
    # Another process may have the number by now; one that has ended has no arguments.
    return machine.name.encode() in arguments and directory == lab.directory


def end(lab: Lab, machine: Machine) -> None:
    """End the machine as if its power were cut, and remove what only it used."""
    if running(lab, machine):
        pid = int(pid_file(lab, machine).read_text())
        os.kill(pid, signal.SIGTERM)
        if not await_condition(lambda: not running(lab, machine), 10):
            os.kill(pid, signal.SIGKILL)
            await_condition(lambda: not running(lab, machine), 10)
    for suffix in ("qcow2", "seed", "net", "pid"):
        (lab.directory / f"{machine.name}.{suffix}").unlink(missing_ok=True)
