# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A bare machine: the distribution's base system with git, make and Python, and nothing of ours."""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from labkit import apt_sources

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
# What the README asks for before anything else; certificates, because git fetches over TLS.
GIVEN = ("ca-certificates", "git", "make", "python3")
REPOSITORY = "apiary-lab-stranger"
# Nearly --privileged, which not every machine allows: enough for a Docker engine in the container.
OWN_ENGINE = (
    *("--cap-add", "ALL", "--cap-drop", "SYS_RESOURCE", "--device-cgroup-rule", "a *:* rwm"),
    *("--security-opt", "seccomp=unconfined", "--security-opt", "apparmor=unconfined"),
    *("--security-opt", "systempaths=unconfined", "--volume", "/sys/fs/cgroup:/sys/fs/cgroup"),
    *("--volume", "/var/lib/docker"),
)
# The machine's own network: what listens on its loopback is reached.
SAME_NETWORK = ("--network", "host")


@dataclass(frozen=True)
class Typed:
    """How a command ended that was typed on the machine."""

    command: str
    code: int
    said: str


@dataclass(frozen=True)
class Machine:
    """A running container."""

    name: str

    def type(self, command: str, environment: str | None = None, seconds: float = 1800) -> Typed:
        """Type a command in the clone; with the directory of a virtual environment, in that."""
        activate = f". {environment}/bin/activate; " if environment else ""
        done = subprocess.run(
            ["docker", "exec", self.name, "bash", "-c", f"cd /root/apiary; {activate}{command}"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=seconds,
        )
        return Typed(command, done.returncode, done.stdout)

    def put(self, path: str, text: str, mode: int = 0o644) -> None:
        """Write a file on the machine."""
        script = f'mkdir -p "$(dirname {path})"; cat > {path}; chmod {mode:o} {path}'
        command = ["docker", "exec", "--interactive", self.name, "sh", "-c", script]
        subprocess.run(command, input=text, text=True, check=True)


def image() -> str:
    """Return the base system's image, made by debootstrap where it is not there yet."""
    release = apt_sources.parse_os_release(Path("/etc/os-release").read_text())
    mirror = apt_sources.choose_mirror(release, apt_sources.read_sources())
    digest = hashlib.sha256(" ".join([*GIVEN, mirror.uri]).encode()).hexdigest()[:12]
    tag = f"{REPOSITORY}:{mirror.suite}-{digest}"
    if subprocess.run(["docker", "image", "inspect", tag], capture_output=True).returncode == 0:
        return tag
    with tempfile.TemporaryDirectory(prefix="apiary-stranger-") as scratch:
        command = ["debootstrap", "--variant=minbase", f"--include={','.join(GIVEN)}"]
        command += [f"--components={','.join(mirror.components)}"]
        command += [f"--keyring={mirror.keyring}"] if mirror.keyring else []
        quietly([*command, mirror.suite, f"{scratch}/root", mirror.uri])
        tree = f"tar -C {scratch}/root --numeric-owner --one-file-system -c ."
        quietly(["bash", "-o", "pipefail", "-c", f"{tree} | docker import - {tag}"])
    return tag


def start(name: str, repository: Path, options: Sequence[str] = SAME_NETWORK) -> Machine:
    """Start the machine, with a clone of the repository in /root/apiary."""
    quietly(
        [
            *("docker", "run", "--detach", "--init", "--name", name, *options),
            *("--volume", f"{repository}:/repository:ro", *ways_to_packages()),
            *(image(), "sleep", "infinity"),
        ]
    )
    clone = "git -c safe.directory='*' clone --quiet /repository /root/apiary"
    quietly(["docker", "exec", "--workdir", "/root", name, "bash", "-c", clone])
    return Machine(name)


def clone_of(directory: Path) -> Path:
    """Make a repository with what this checkout has, committed or not."""
    from release import export

    export(ROOT, directory)
    git = ["git", "-C", str(directory), "-c", "user.name=x", "-c", "user.email=x@example.org"]
    for words in (["init", "--quiet"], ["add", "--all"], ["commit", "--quiet", "--message=all"]):
        quietly([*git, *words])
    return directory


def ways_to_packages() -> list[str]:
    """Return Docker's options that let pip come to packages as this machine's pip does."""
    names = re.compile("(PIP|SSL|REQUESTS)_|(https?|no)_proxy$", re.IGNORECASE)
    options = [f"--env={name}" for name in sorted(os.environ) if names.match(name)]
    said = quietly([sys.executable, "-m", "pip", "config", "debug"])
    files = re.findall(r"^  (/\S+), exists: True", said, flags=re.MULTILINE)
    # Indexes and wheels may lie on this machine's own disk.
    said += "".join(Path(file).read_text() for file in files)
    named = re.findall(r"(?:file://|\s)(/\S+)", said)
    files += [one for one in named if one.startswith("/etc/") and Path(one).is_file()]
    beside = {Path("/", *Path(one).parts[1:3]) for one in named}
    folders = {one for one in beside if one.is_dir() and one.parts[1] in ("opt", "srv", "mnt")}
    for path in sorted({*files, *map(str, folders), "/etc/ssl/certs"}):
        options += ["--volume", f"{path}:{path}:ro"]
    return options


def quietly(command: list[str]) -> str:
    """Run a command of this machine; its output shows only where it fails."""
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert done.returncode == 0, f"{command[:4]}\n{done.stdout}"
    return done.stdout
