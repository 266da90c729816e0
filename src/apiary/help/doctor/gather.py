# SPDX-License-Identifier: GPL-3.0-or-later

"""Look at this machine for `apiary doctor`; nothing is changed."""

from __future__ import annotations

import os
import platform
import resource
import shutil
import stat
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from importlib import metadata
from pathlib import Path

from ansible_collections.apiary.instinct.plugins.plugin_utils.documents import (
    from_document,
    knowledge,
)

from apiary.app.ask_ansible import ask_ansible, inventory_files
from apiary.help.doctor.types import AnsibleFacts, Artifacts, Controller

# OpenSSH's own, of the kinds that paramiko can use.
IDENTITIES = ("~/.ssh/id_rsa", "~/.ssh/id_ecdsa", "~/.ssh/id_ed25519")
_VAULT = b"$ANSIBLE_VAULT"
_INLINE = b"!vault"
_SECONDS = 60
# Of a file of variables; a larger one is a disk image that lies about.
_LARGEST = 4 << 20


def inspect_ansible(vaulted: Sequence[str] = (), passwords: Sequence[str] = ()) -> AnsibleFacts:
    """Return what Ansible says of itself; ``passwords`` are files of vault passwords besides."""
    collections = knowledge("doctor.yml")["collections"]
    request = {"ansible": {"collections": collections, "vaulted": vaulted}}
    try:
        answer, printed = ask_ansible(request, passwords, timeout=_SECONDS)
        facts = answer.get("ansible") or {"refused": answer["error"]}
    except subprocess.TimeoutExpired:
        printed, facts = "", {"refused": f"it did not answer within {_SECONDS} s"}
    if str(facts["refused"]).isdigit():
        # It ended with a status alone, and its reason is the first line on stderr.
        facts["refused"] = printed.partition("\n")[0].removeprefix("ERROR: ")
    return from_document(AnsibleFacts, {**facts, "expected": own_version()}, "ansible")


def own_version() -> str | None:
    """Return this command's version; None where it runs from a tree without being installed."""
    try:
        return metadata.version("apiary")
    except metadata.PackageNotFoundError:
        return None


def inspect_controller(ansible: AnsibleFacts, keys: Iterable[str] = ()) -> Controller:
    """Return what this machine is; ``keys`` are private key files that the inventory names."""
    beside = Path(sys.executable).with_name("ansible-playbook")
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    files = [os.path.expanduser(name) for name in dict.fromkeys((*IDENTITIES, *keys))]
    private = [name for name in files if os.path.isfile(name)]
    shared = [name for name in private if open_to_others(name)]
    return Controller(
        python=sys.executable,
        version=platform.python_version(),
        ansible=ansible,
        playbook=shutil.which("ansible-playbook"),
        expected=str(beside) if beside.exists() else None,
        ssh=_ssh(),
        agent=_agent(),
        keys=tuple(name for name in private if name not in shared),
        open_keys=tuple(shared),
        open_files=None if soft == resource.RLIM_INFINITY else soft,
        now=time.time(),
    )


def open_to_others(name: str) -> bool:
    """Return whether others may read a file of ours; a program that prints a password they may."""
    try:
        status = os.stat(name)
    except OSError:
        return False
    runs = bool(status.st_mode & stat.S_IXUSR)
    return not runs and status.st_uid == os.getuid() and bool(status.st_mode & 0o077)


def _ssh() -> str | None:
    if shutil.which("ssh") is None:
        return None
    done = subprocess.run(
        ["ssh", "-V"], capture_output=True, text=True, errors="replace", check=False, timeout=20
    )
    return (done.stderr or done.stdout).strip().split(",")[0]


def _agent() -> int | None:
    """Return how many keys the agent holds; None where there is none that answers."""
    if not os.environ.get("SSH_AUTH_SOCK") or shutil.which("ssh-add") is None:
        return None
    try:
        done = subprocess.run(
            ["ssh-add", "-l"], capture_output=True, text=True, check=False, timeout=10
        )
    except subprocess.TimeoutExpired:
        return None
    if done.returncode == 0:
        return len(done.stdout.splitlines())
    return 0 if done.returncode == 1 else None  # 2: nobody answers, ssh-add(1)


def inspect_artifacts(path: str) -> Artifacts:
    """Return the room where documents go; what is not there yet is made in what is."""
    there = Path(path).absolute()
    while not there.exists() and there != there.parent:
        there = there.parent
    try:
        room = os.statvfs(there)
        free = room.f_bavail * room.f_frsize >> 20
    except OSError:
        free = None
    writable = there.is_dir() and os.access(there, os.W_OK | os.X_OK)
    return Artifacts(path, writable, free, there.is_dir())


def encrypted_files(sources: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return files of the inventory that are encrypted, and those with encrypted values in them."""
    whole, partly = [], []
    for path in dict.fromkeys(path for source in sources for path in inventory_files(source)):
        try:
            if path.stat().st_size > _LARGEST:
                continue
            content = path.read_bytes()
        except OSError:
            continue
        if content.startswith(_VAULT):
            whole.append(str(path))
        elif _INLINE in content and _VAULT in content:
            partly.append(str(path))
    return whole, partly
