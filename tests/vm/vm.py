#!/usr/bin/env python3
# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Two virtual machines with a kernel of their own: a host to tune, and a server of weights.

Emulated in software, so that they run anywhere; what they are for: tests/vm/README.md.
"""

from __future__ import annotations

import argparse
import fcntl
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

REPOSITORY = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(REPOSITORY / "tests/lab"))

from labkit import apt_sources, hosts, prerequisites  # noqa: E402
from labkit.console import error, guarded, say, step  # noqa: E402
from labkit.state import Lab, open_lab  # noqa: E402
from vmkit import disk, machine  # noqa: E402


def up(lab: Lab, arguments: argparse.Namespace) -> None:
    """Start both machines on fresh disks, and wait until they answer."""
    del arguments
    base = ensure_disk(lab)
    down(lab)
    try:
        with step("Booting two machines"):
            machine.start_all(lab, base)
            with ThreadPoolExecutor() as pool:
                for booted in [
                    pool.submit(machine.await_boot, lab, one) for one in machine.MACHINES
                ]:
                    booted.result()
    except BaseException:
        down(lab)
        raise


def ensure_disk(lab: Lab) -> Path:
    """Return the disk that machines start from; build it where it is not there yet."""
    prerequisites.ensure_programs({"ssh", "ssh-keygen", "qemu-img"})
    os_release = apt_sources.parse_os_release(Path("/etc/os-release").read_text())
    mirror = apt_sources.choose_mirror(os_release, apt_sources.read_sources())
    base = lab.directory / disk.disk_name(mirror)
    if not base.exists():
        prerequisites.ensure_debootstrap()
        for stale in lab.directory.glob("*.img"):
            stale.unlink()
        disk.build(mirror, base, lab.directory / "build.log")
    return base


def down(lab: Lab, arguments: argparse.Namespace | None = None) -> None:
    """End the machines; with --all remove the disk that they start from, too."""
    for one in machine.MACHINES:
        machine.end(lab, one)
    lab.hosts_file.unlink(missing_ok=True)
    if arguments and arguments.all:
        lab.remove()


def status(lab: Lab, arguments: argparse.Namespace) -> None:
    """Tell which machines run, and where."""
    del arguments
    for name, host in lab.hosts().items():
        print(f"{name}  ssh {host['address']}:{host['ssh_port']}")


def ssh(lab: Lab, arguments: argparse.Namespace) -> None:
    """Become ssh to a machine."""
    if arguments.host not in lab.hosts():
        raise error("LAB-NOT-UP", arguments.host, "does not run")
    command = [*hosts.ssh_command(lab, arguments.host), *arguments.command]
    os.execvp("ssh", command)  # noqa: S606 (no shell is the point)


def test(lab: Lab, arguments: argparse.Namespace) -> None:
    """Start the machines, run the tests against them, and end them, whatever happens."""
    started = time.monotonic()
    up(lab, arguments)
    try:
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "tests/vm", *arguments.pytest],
            cwd=REPOSITORY,
            env={**os.environ, "APIARY_LAB": lab.name},
        )
    finally:
        down(lab)
    say(f"{time.monotonic() - started:.0f} s in all")
    if done.returncode != 0:
        logs = lab.directory / "*.console"
        raise error("LAB-TESTS", "tests/vm", f"failed; see above, and the consoles in {logs}")


@contextmanager
def alone(lab: Lab) -> Iterator[None]:
    """Hold this lab for one command at a time; a build takes too long to hold all labs."""
    lab.directory.mkdir(parents=True, exist_ok=True)
    with (lab.root / f"{lab.name}.lock").open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def end_politely(number: int, frame: FrameType | None) -> None:
    """Leave through every `finally`: a CI system that gives up must not leave machines behind."""
    del frame
    raise SystemExit(128 + number)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; every refusal is a finding on standard error."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    for run in (up, down, status, ssh, test):
        sub = commands.add_parser(run.__name__, help=(run.__doc__ or "").splitlines()[0])
        sub.add_argument("--name", default="vm", help="the lab's name (default: vm)")
        sub.set_defaults(run=run)
        if run is down:
            sub.add_argument("--all", action="store_true", help="also the disk they start from")
        if run is ssh:
            sub.add_argument("host")
            sub.add_argument("command", nargs=argparse.REMAINDER)
        if run is test:
            sub.add_argument("pytest", nargs=argparse.REMAINDER, help="arguments for pytest")
    arguments = parser.parse_args(argv)
    signal.signal(signal.SIGTERM, end_politely)
    lab = open_lab(arguments.name)
    if arguments.run in (ssh, status):
        return guarded(lambda: arguments.run(lab, arguments))
    with alone(lab):
        return guarded(lambda: arguments.run(lab, arguments))


if __name__ == "__main__":
    sys.exit(main())
