# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Stub packages and signed repositories for apt."""

from __future__ import annotations

import gzip
import tempfile
from collections.abc import Iterable
from pathlib import Path

from labkit.console import run
from repository.signing import Signer
from repository.stub import Stub, executable


def control(stub: Stub) -> str:
    """Return a package's control file."""
    version = f"{stub.epoch}:{stub.version}" if stub.epoch else stub.version
    depends = f"Depends: {stub.depends}\n" if stub.depends else ""
    return (
        f"Package: {stub.name}\nVersion: {version}\nArchitecture: amd64\n"
        f"Maintainer: Apiary lab <lab@example.invalid>\nSection: devel\nPriority: optional\n"
        f"{depends}Description: stub for the lab, not AMD's\n"
    )


def write_tree(stub: Stub, tree: Path) -> None:
    """Lay out what a package installs."""
    for path, content in stub.files.items():
        target = tree / path.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content if isinstance(content, bytes) else content.encode())
        target.chmod(0o755 if executable(content) else 0o644)
    for path, target_path in stub.links.items():
        link = tree / path.lstrip("/")
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(target_path)


def build_deb(stub: Stub, pool: Path) -> None:
    """Write one package into the pool."""
    with tempfile.TemporaryDirectory() as scratch:
        tree = Path(scratch)
        tree.chmod(0o755)
        write_tree(stub, tree)
        (tree / "DEBIAN").mkdir()
        (tree / "DEBIAN/control").write_text(control(stub))
        for name, script in stub.scripts.items():
            path = tree / "DEBIAN" / name
            path.write_text(script)
            path.chmod(0o755)
        target = pool / f"{stub.name}_{stub.version}_amd64.deb"
        run(["dpkg-deb", "--root-owner-group", "-Zgzip", "-z1", "--build", tree, target])


def publish(tree: Path, suite: str, origin: str, stubs: Iterable[Stub], signer: Signer) -> None:
    """Add a signed suite, whose packages lie in a pool of its own, to an apt repository."""
    pool = tree / "pool" / suite
    index = tree / "dists" / suite / "main/binary-amd64"
    for directory in (pool, index):
        directory.mkdir(parents=True, exist_ok=True)
    for stub in stubs:
        build_deb(stub, pool)
    listed = run(["env", "-C", tree, "apt-ftparchive", "packages", f"pool/{suite}"]).stdout
    (index / "Packages").write_bytes(listed)
    (index / "Packages.gz").write_bytes(gzip.compress(listed, mtime=0))
    sign(tree / "dists" / suite, suite, origin, signer)


def sign(dists: Path, suite: str, origin: str, signer: Signer) -> None:
    """Write and sign the Release file of a suite."""
    for stale in ("Release", "InRelease", "Release.gpg"):
        (dists / stale).unlink(missing_ok=True)
    fields = {
        "Origin": origin,
        "Suite": suite,
        "Codename": suite,
        "Components": "main",
        "Architectures": "amd64",
    }
    options = [
        part
        for key, value in fields.items()
        for part in ("-o", f"APT::FTPArchive::Release::{key}={value}")
    ]
    released = run(["apt-ftparchive", *options, "release", dists]).stdout
    (dists / "Release").write_bytes(released)
    signer.clearsign(dists / "Release", dists / "InRelease")
    signer.detach(dists / "Release", dists / "Release.gpg")
