# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Where a lab keeps what it knows: its key, the hosts' keys, and how to reach them."""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .console import REPOSITORY, error, run


@dataclass(frozen=True)
class Lab:
    """The files of one named lab under the state root."""

    root: Path
    name: str

    @property
    def directory(self) -> Path:
        return self.root / self.name

    @property
    def hosts_file(self) -> Path:
        return self.directory / "hosts.json"

    @property
    def known_hosts(self) -> Path:
        return self.directory / "known_hosts"

    @property
    def identity(self) -> Path:
        return self.directory / "id_ed25519"

    @property
    def build_log(self) -> Path:
        return self.root / "image-build.log"

    @property
    def dockerd_log(self) -> Path:
        return self.root / "dockerd.log"

    @property
    def dockerd_pid(self) -> Path:
        return self.root / "dockerd.pid"

    def host_key(self, host: str) -> Path:
        """Return the path of the private host key that is injected into a host."""
        return self.directory / "host_keys" / host

    def hosts(self) -> dict[str, Any]:
        """Return the hosts that are up, as hosts.json tells them; none when it is not there."""
        if not self.hosts_file.exists():
            return {}
        try:
            hosts: dict[str, Any] = json.loads(self.hosts_file.read_text())["hosts"]
        except (ValueError, KeyError) as problem:
            raise error(
                "LAB-STATE",
                str(self.hosts_file),
                "is not the JSON that the lab wrote",
            ) from problem
        return hosts

    def record(self, hosts: Mapping[str, Any]) -> None:
        """Write hosts.json and known_hosts so that a reader never sees half a file."""
        _replace(self.hosts_file, json.dumps({"hosts": dict(hosts)}, indent=2) + "\n")
        lines = []
        for name, host in hosts.items():
            key = self.host_key(name).with_suffix(".pub").read_text().split()[:2]
            lines.append(f"[{host['address']}]:{host['ssh_port']} {' '.join(key)}\n")
        _replace(self.known_hosts, "".join(lines))

    def remove(self) -> None:
        """Forget this lab."""
        shutil.rmtree(self.directory, ignore_errors=True)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Change one lab of the machine at a time: ports and networks are chosen among all."""
        self.root.mkdir(parents=True, exist_ok=True)
        with held(Path(tempfile.gettempdir()) / f"apiary-lab-{os.getuid()}.lock"):
            yield


@contextmanager
def held(lock: Path) -> Iterator[None]:
    """Hold a lock that other processes wait for."""
    lock.parent.mkdir(parents=True, exist_ok=True)
    with lock.open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def open_lab(name: str) -> Lab:
    """Return the lab of this name, below ``$APIARY_LAB_DIR`` or ``<repo>/.lab``."""
    if not re.fullmatch(r"[a-z0-9][a-z0-9-]{0,29}", name):
        raise error(
            "LAB-ARGUMENT",
            f"--name {name}",
            "not a lab name",
        )
    root = os.environ.get("APIARY_LAB_DIR")
    return Lab(Path(root).resolve() if root else REPOSITORY / ".lab", name)


def ensure_key(path: Path, comment: str) -> Path:
    """Make an Ed25519 key pair unless it is there, and return the private key's path."""
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", comment, "-f", path])
    return path


def _replace(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    scratch = path.with_suffix(".new")
    scratch.write_text(text)
    scratch.replace(path)
