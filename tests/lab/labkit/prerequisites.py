# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""See to it that Docker, debootstrap and ssh are there; install them where the lab may."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from pathlib import Path

from .console import await_condition, error, last_line, run, say, step
from .state import Lab, held

# Program -> the distribution's package that brings it.
PROGRAMS = {
    "dockerd": "docker.io",
    "docker": "docker.io",
    "apt-ftparchive": "apt-utils",
    "chromium": "chromium",
    "createrepo_c": "createrepo-c",
    "debootstrap": "debootstrap",
    "gcc": "build-essential",
    "gpg": "gnupg",
    "haproxy": "haproxy",
    "ip": "iproute2",
    "lua5.3": "lua5.3",
    "rpmbuild": "rpm",
    "rpmsign": "rpm",
    "ssh": "openssh-client",
    "ssh-keygen": "openssh-client",
    "mke2fs": "e2fsprogs",
    "qemu-img": "qemu-utils",
    "qemu-system-x86_64": "qemu-system-x86",
    "fish": "fish",
    "zsh": "zsh",
}
# Held while packages are installed: pytest's workers, and several labs, may want them at once.
APT_LOCK = Path("/run/lock/apiary-lab-apt")
# inotify instances of a host, of what else root may run, and how many hosts a default fits.
WATCHERS_OF_A_HOST, OTHER_WATCHERS, FEW_HOSTS = 12, 100, 4


def docker_answers() -> bool:
    """Say whether a Docker engine answers this user."""
    return (
        shutil.which("docker") is not None and run(["docker", "info"], check=False).returncode == 0
    )


def ensure_docker(lab: Lab) -> None:
    """Make a Docker engine answer, ip and ssh be there, announcing every change to the machine."""
    wanted = {"ip", "ssh", "ssh-keygen"} | (set() if docker_answers() else {"docker", "dockerd"})
    ensure_programs(wanted)
    if not docker_answers():
        _start_docker(lab)


def ensure_room(hosts: int, inotify: Path = Path("/proc/sys/fs/inotify")) -> None:
    """Have the kernel let so many hosts of systemd run beside what runs: root shares one limit."""
    limit = inotify / "max_user_instances"
    wanted = OTHER_WATCHERS + WATCHERS_OF_A_HOST * hosts
    if not limit.exists() or int(limit.read_text()) >= wanted:
        return
    # Few hosts mostly fit into what the limit leaves.
    if os.geteuid() != 0 and hosts <= FEW_HOSTS:
        return
    try:
        limit.write_text(f"{wanted}\n")
    except OSError as failure:
        raise error(
            "LAB-INOTIFY",
            str(limit),
            f"{hosts} hosts need {wanted}, and it cannot be set: {failure.strerror}"
            f"; run `sysctl -w fs.inotify.max_user_instances={wanted}` as root",
        ) from failure
    say(f"Set fs.inotify.max_user_instances to {wanted}, until this machine's next boot")


def ensure_debootstrap() -> None:
    """Make debootstrap usable: it makes device nodes and owners, so it takes root."""
    if os.geteuid() != 0:
        raise error(
            "LAB-ROOT",
            "host image",
            "debootstrap makes a root filesystem, which takes root",
        )
    ensure_programs({"debootstrap"})


def ensure_programs(wanted: set[str]) -> None:
    """Make programs be there, from the distribution's packages, with a word about it."""
    missing = sorted(program for program in wanted if shutil.which(program) is None)
    if missing:
        _install(missing)


def _install(programs: list[str]) -> None:
    packages = sorted({PROGRAMS[program] for program in programs})
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        raise error(
            "LAB-PREREQUISITE",
            ", ".join(programs),
            f"missing, from {' '.join(packages)}; installing it takes root and apt-get"
            f"; run `apt-get install {' '.join(packages)}` as root (or what this machine uses "
            "instead), and run this again",
        )
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    with (
        step(f"Installing {' '.join(packages)} from the distribution's packages"),
        held(APT_LOCK),
    ):
        _apt(["update"], environment)
        # Since Debian 13 the client is a package of its own.
        if "docker.io" in packages and run(["apt-cache", "show", "docker-cli"], check=False).stdout:
            packages.append("docker-cli")
        _apt(["install", "--no-install-recommends", *packages], environment)


def _apt(arguments: list[str], environment: dict[str, str]) -> None:
    done = subprocess.run(
        ["apt-get", "-qq", "-y", *arguments], env=environment, capture_output=True
    )
    if done.returncode != 0:
        output = (done.stderr or done.stdout).decode(errors="replace")
        raise error(
            "LAB-PREREQUISITE",
            f"apt-get {arguments[0]}",
            last_line(output),
        )


def _start_docker(lab: Lab) -> None:
    if os.geteuid() != 0:
        raise error(
            "LAB-DOCKER",
            "Docker engine",
            "does not answer this user",
        )
    if Path("/run/systemd/system").is_dir():
        with step("Starting the Docker daemon by systemctl"):
            run(["systemctl", "start", "docker.service"])
            await_condition(docker_answers, 60)
    else:
        with step(f"Starting the Docker daemon in the background, log in {lab.dockerd_log}"):
            _spawn_dockerd(lab)
    if not docker_answers():
        said = lab.dockerd_log.read_text(errors="replace") if lab.dockerd_log.exists() else ""
        raise error(
            "LAB-DOCKER",
            "Docker engine",
            f"does not answer after its start: {last_line(said)}"
            f"; see {lab.dockerd_log} or `journalctl -u docker`, and make `docker info` work",
        )


def _spawn_dockerd(lab: Lab) -> None:
    lab.root.mkdir(parents=True, exist_ok=True)
    with lab.dockerd_log.open("ab") as log:
        daemon = subprocess.Popen(
            ["dockerd"],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    lab.dockerd_pid.write_text(f"{daemon.pid}\n")
    await_condition(lambda: daemon.poll() is not None or docker_answers(), 60)


def stop_docker(lab: Lab) -> None:
    """Stop the daemon if it is the one that this lab started."""
    if not lab.dockerd_pid.exists():
        return
    pid = int(lab.dockerd_pid.read_text())
    name = Path(f"/proc/{pid}/comm")
    if name.exists() and name.read_text().strip() == "dockerd":
        say("Stopping the Docker daemon that the lab started")
        os.kill(pid, signal.SIGTERM)
        await_condition(lambda: not name.exists() or _is_zombie(pid), 60)
    lab.dockerd_pid.unlink()
    lab.dockerd_log.unlink(missing_ok=True)


def _is_zombie(pid: int) -> bool:
    try:
        return ") Z " in Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return True
