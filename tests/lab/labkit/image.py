# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Build the host image: the machine's own release by debootstrap, configured, imported."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from .apt_sources import Mirror
from .console import error, last_line, run, step
from .state import Lab

REPOSITORY_NAME = "apiary-lab"
SHAPE = Path(__file__).resolve().parents[1] / "image"
CONFIGURE = SHAPE / "configure.sh"
PACKAGES = SHAPE / "packages.txt"
PREINSTALLED = SHAPE / "preinstalled.txt"


def package_names() -> list[str]:
    """Return the packages of the host image."""
    lines = [line for path in (PACKAGES, PREINSTALLED) for line in path.read_text().splitlines()]
    return [line.strip() for line in lines if line.strip() and not line.startswith("#")]


def image_tag(mirror: Mirror) -> str:
    """Return the image's name: another release, package or way to build makes another image."""
    digest = hashlib.sha256(Path(__file__).read_bytes() + CONFIGURE.read_bytes())
    digest.update(" ".join([*package_names(), *mirror.components]).encode())
    return f"{REPOSITORY_NAME}:{mirror.distribution}-{mirror.suite}-{digest.hexdigest()[:12]}"


def image_exists(tag: str) -> bool:
    """Say whether the engine has this image."""
    return run(["docker", "image", "inspect", tag], check=False).returncode == 0


def build_image(lab: Lab, mirror: Mirror, tag: str) -> None:
    """Make the image; everything it downloads comes from the machine's own mirror."""
    with (
        step(f"Building the host image from {mirror.suite} packages (about a minute)"),
        _scratch_tree(lab) as tree,
        lab.build_log.open("wb") as log,
    ):
        _logged(lab, log.fileno(), debootstrap_command(mirror, tree), environment=_proxy())
        shutil.copy(CONFIGURE, tree / "configure.sh")
        _logged(lab, log.fileno(), ["chroot", str(tree), "/configure.sh"])
        (tree / "configure.sh").unlink()
        _import(lab, log.fileno(), tree, tag)
    lab.build_log.unlink()


def debootstrap_command(mirror: Mirror, tree: Path) -> list[str]:
    """Return the debootstrap call for this mirror."""
    command = [
        "debootstrap",
        "--variant=minbase",
        f"--components={','.join(mirror.components)}",
        f"--include={','.join(package_names())}",
    ]
    if mirror.keyring:
        command.append(f"--keyring={mirror.keyring}")
    return [*command, mirror.suite, str(tree), mirror.uri]


def remove_images(lab: Lab) -> None:
    """Remove every image of the lab that no container uses, and what a killed build left."""
    for leftover in lab.root.glob("build-*"):
        _remove_tree(leftover)
    lab.build_log.unlink(missing_ok=True)
    tags = run(["docker", "image", "ls", "--format", "{{.Repository}}:{{.Tag}}", REPOSITORY_NAME])
    for tag in tags.stdout.decode().split():
        run(["docker", "image", "rm", tag], check=False)


@contextmanager
def _scratch_tree(lab: Lab) -> Iterator[Path]:
    scratch = Path(tempfile.mkdtemp(prefix="build-", dir=lab.root))
    try:
        yield scratch / "root"
    finally:
        _remove_tree(scratch)


def _remove_tree(top: Path) -> None:
    """Remove a build directory; a killed debootstrap leaves /proc and /sys mounted in it."""
    mounts = [line.split()[1] for line in Path("/proc/self/mounts").read_text().splitlines()]
    for mount in reversed(mounts):
        if mount.startswith(f"{top}/"):
            run(["umount", mount])
    shutil.rmtree(top)


def _proxy() -> dict[str, str]:
    """Return the environment for debootstrap, with the proxy that apt is configured to use."""
    said = run(["apt-config", "dump", "--format", "%v%n", "Acquire::http::Proxy"], check=False)
    proxy = said.stdout.decode().strip()
    return {**os.environ, "http_proxy": proxy} if proxy.startswith("http") else dict(os.environ)


def _logged(
    lab: Lab, log: int, command: list[str], environment: dict[str, str] | None = None
) -> None:
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment
    )
    if done.returncode != 0:
        raise _failed(lab, command[0], lab.build_log.read_text(errors="replace"))


def _import(lab: Lab, log: int, tree: Path, tag: str) -> None:
    changes = ["--change", 'CMD ["/lib/systemd/systemd"]', "--change", "ENV container=docker"]
    with subprocess.Popen(
        ["tar", "-C", str(tree), "--numeric-owner", "--one-file-system", "-c", "."],
        stdout=subprocess.PIPE,
        stderr=log,
    ) as pack:
        done = subprocess.run(
            ["docker", "import", *changes, "-", tag], stdin=pack.stdout, capture_output=True
        )
    if pack.returncode != 0 or done.returncode != 0:
        raise _failed(lab, "docker import", done.stderr.decode(errors="replace"))


def _failed(lab: Lab, subject: str, output: str) -> Exception:
    return error("LAB-IMAGE", subject, f"{last_line(output)}; see {lab.build_log}")
