# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the tests on virtual machines share: playbooks as an operator runs them, and waiting."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from dataclasses import dataclass
from pathlib import Path

from support.host.lab import connected, lab_variables
from support.waiting import await_true

ROOT = Path(__file__).parents[3]
HOST, SERVER = "gpu-vm", "nfs-vm"
MOUNT = "/srv/models"
MODEL = f"{MOUNT}/org/name/current/model.safetensors"
READAHEAD_KIB = 15360
# In emulation a key exchange takes seconds, and compression is no help on the loopback interface.
SSH = "-o ControlMaster=auto -o ControlPersist=900s"


def connect(name):
    """A machine of the lab that APIARY_LAB names, as testinfra sees it, with root's rights."""
    return connected(lab_variables()[name])


@dataclass(frozen=True)
class Played:
    """How a playbook ended: exit code, names of the tasks that changed something, the output."""

    code: int
    changed: list[str]
    output: str


def play(playbook, *options, host=HOST):
    """Run a playbook on one machine, and require that nothing failed."""
    played = attempt(playbook, *options, host=host)
    assert played.code == 0, played.output
    return played


def attempt(playbook, *options, host=HOST):
    """Run a playbook on one machine."""
    command = ["ansible-playbook", "-i", "inventory/lab", "--limit", host, playbook]
    done = subprocess.run(
        [*command, "-e", "@tests/vm/settings.yml", *options],
        cwd=ROOT,
        env={**os.environ, "ANSIBLE_NOCOLOR": "1", "ANSIBLE_SSH_ARGS": SSH},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    changed, task = [], ""
    for line in done.stdout.splitlines():
        named = re.match(r"TASK \[(.*)\] \**$", line)
        task = named[1] if named else task
        if line.startswith(f"changed: [{host}"):
            changed.append(task)
    return Played(done.returncode, list(dict.fromkeys(changed)), done.stdout)


def site(*options):
    """Run the site playbook, as far as it concerns a host without GPUs."""
    return play("playbooks/site.yml", "--tags", "host_tuning,weight_cache", *options)


def kernel_arguments(machine):
    """The words of the command line that the kernel was booted with."""
    return shlex.split(machine.check_output("cat /proc/cmdline"))


def mounted(machine):
    """File system types and options of what is mounted for the weights, in the kernel's order."""
    lines = [line.split() for line in machine.check_output("cat /proc/mounts").splitlines()]
    return [(words[2], set(words[3].split(","))) for words in lines if words[1] == MOUNT]


def readahead(machine):
    """KiB that the kernel reads ahead from the mount."""
    device = machine.check_output(f"mountpoint --fs-devno {MOUNT}")
    return int(machine.check_output(f"cat /sys/class/bdi/{device}/read_ahead_kb"))


def boot_id(machine):
    """What tells one boot from another; None while the machine does not answer."""
    try:
        return machine.check_output("cat /proc/sys/kernel/random/boot_id")
    except RuntimeError:  # ssh itself failed
        return None


def await_reboot(machine, before, seconds=600):
    """Wait until the machine has another boot than the given one."""
    await_true(lambda: boot_id(machine) not in (before, None), seconds)
