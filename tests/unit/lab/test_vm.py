# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The virtual machines: what QEMU is told, what a machine is given, which process is ended."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import tarfile
from contextlib import contextmanager
from pathlib import Path

import pytest

from labkit.console import await_condition
from labkit.state import Lab
from vmkit import disk, machine


@pytest.fixture
def lab(tmp_path):
    one = Lab(tmp_path, "vm")
    one.directory.mkdir()
    return one


@pytest.fixture(autouse=True)
def nothing_is_installed(monkeypatch):
    monkeypatch.setattr(disk.prerequisites, "ensure_programs", lambda wanted: None)


def words(one):
    return machine.qemu_command(one, 2222)


def test_the_host_has_two_memory_nodes_that_share_its_cpus_and_memory():
    command = " ".join(words(machine.CLIENT))
    assert "-smp 4,sockets=2,cores=2,threads=1 " in command
    assert "-m 2048M" in command
    assert "node,nodeid=0,cpus=0-1,memdev=m0" in command
    assert "node,nodeid=1,cpus=2-3,memdev=m1" in command
    assert "dist,src=0,dst=1,val=32" in command


@pytest.mark.parametrize("one", machine.MACHINES, ids=lambda one: one.name)
def test_it_boots_by_its_own_boot_loader(one):
    assert "-kernel" not in words(one)


def test_each_sends_to_the_other():
    ends = [
        next(word for word in words(one) if word.startswith("dgram")) for one in machine.MACHINES
    ]
    assert "local.path=gpu-vm.net,remote.type=unix,remote.path=nfs-vm.net" in ends[0]
    assert "local.path=nfs-vm.net,remote.type=unix,remote.path=gpu-vm.net" in ends[1]


def test_seed_has_the_keys_that_known_hosts_has(lab):
    content = machine.seed(lab, machine.SERVER)
    with tarfile.open(fileobj=io.BytesIO(content)) as tar:
        files = {one.name: (tar.extractfile(one).read(), one.mode) for one in tar}
    key = files["etc/ssh/ssh_host_ed25519_key"]
    assert key == (lab.host_key("nfs-vm").read_bytes(), 0o600)
    assert files["etc/hostname"][0] == b"nfs-vm\n"
    assert b"Address=10.77.0.2/24" in files["etc/systemd/network/private.network"][0]
    # A block device has whole sectors.
    assert len(content) % disk.SECTOR == 0


def test_partition_is_the_rest_of_the_disk_and_bootable():
    table = disk._partition_table()
    assert len(table) == disk.SECTOR
    assert table[-2:] == b"\x55\xaa"
    assert table[446] == 0x80
    start = int.from_bytes(table[454:458], "little")
    sectors = int.from_bytes(table[458:462], "little")
    assert (start + sectors) * disk.SECTOR == disk.DISK_BYTES


@contextmanager
def sleeper(directory, name):
    """A process that has a name among its arguments; it ends whatever the test finds."""
    command = [sys.executable, "-c", "import signal; signal.pause()", name]
    process = subprocess.Popen(command, cwd=directory, start_new_session=True)
    shown = Path(f"/proc/{process.pid}/cmdline")
    try:
        # A process shows its arguments a moment after its program was started.
        assert await_condition(lambda: name.encode() in shown.read_bytes(), 10)
        yield process
    finally:
        process.kill()
        process.wait()


def test_end_ends_the_machine_and_removes_its_disk(lab):
    with sleeper(lab.directory, "gpu-vm") as process:
        machine.pid_file(lab, machine.CLIENT).write_text(f"{process.pid}\n")
        (lab.directory / "gpu-vm.qcow2").touch()
        machine.end(lab, machine.CLIENT)
        assert process.wait(120) < 0
    assert list(lab.directory.iterdir()) == []


@pytest.mark.parametrize("name", ["gpu-vm", "something-else"])
def test_end_leaves_a_process_that_only_has_the_number(lab, tmp_path, name):
    place = tmp_path if name == "gpu-vm" else lab.directory
    with sleeper(place, name) as process:
        machine.pid_file(lab, machine.CLIENT).write_text(f"{process.pid}\n")
        machine.end(lab, machine.CLIENT)
        assert process.poll() is None


def test_a_damaged_pid_file_ends_nobody(lab):
    machine.pid_file(lab, machine.CLIENT).write_text("")
    assert not machine.running(lab, machine.CLIENT)
    machine.pid_file(lab, machine.CLIENT).write_text(f"{os.getpid()}\n")
    assert not machine.running(lab, machine.CLIENT)
