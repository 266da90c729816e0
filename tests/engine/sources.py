# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The Python sources of vLLM releases, by pip from wherever it is configured to look."""

from __future__ import annotations

import hashlib
import re
import shutil
import tarfile
import tempfile
from pathlib import Path

from engine.environment import REQUIREMENTS, Environment, UnavailableError, pip

PINS = REQUIREMENTS / "engine-sources.txt"
_PIN = re.compile(r"(?m)^vllm==(\S+) \\\n((?: +--hash=sha256:[0-9a-f]{64}(?: \\)?\n)+)")
_KEPT = (".py", "/PKG-INFO")


def pins() -> dict[str, str]:
    """Return the pinned releases, each with its entry in the requirements file."""
    return {match[1]: match[0] for match in _PIN.finditer(PINS.read_text(encoding="utf-8"))}


def newest(env: Environment) -> str:
    """Return the newest release that pip finds."""
    listed = pip(env.python, "index", "versions", "vllm", problem="pip cannot list vLLM's releases")
    match = re.search(r"(?m)^vllm \(([0-9.]+)\)$", listed)
    if match is None:
        raise UnavailableError("pip listed no release of vLLM")
    return match[1]


def sources(version: str, home: Path, env: Environment) -> Path:
    """Return the directory that holds a release's `vllm` package; fetch it if it is not there.

    The hash of a pinned release is checked; another one (the newest, after the pins were made) is
    taken as pip gives it.
    """
    target = home / "sources" / version
    if target.is_dir():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
        archive = _download(version, Path(scratch), env)
        unpacked = Path(scratch) / "unpacked"
        _unpack(archive, unpacked, version)
        try:
            unpacked.rename(target)
        except OSError:
            if not target.is_dir():  # else another run was faster
                raise
    return target


def _download(version: str, scratch: Path, env: Environment) -> Path:
    wanted = scratch / "requirements.txt"
    entry = pins().get(version)
    wanted.write_text(entry or f"vllm=={version}\n")
    pip(
        env.python,
        *("download", "--no-deps", "--no-binary=vllm", "--no-build-isolation"),
        *(["--require-hashes"] if entry else []),
        *("--dest", scratch, "--requirement", wanted),
        problem=f"vLLM {version} cannot be had",
        # pip asks the release for its metadata; so it need not ask for a GPU and a compiler.
        VLLM_TARGET_DEVICE="empty",
        VLLM_VERSION_OVERRIDE=version,
    )
    archive = scratch / f"vllm-{version}.tar.gz"
    if entry is None:
        digest = hashlib.sha256(archive.read_bytes()).hexdigest()
        print(f"test-engine: not pinned yet: vllm=={version} --hash=sha256:{digest}")
    return archive


def _unpack(archive: Path, target: Path, version: str) -> None:
    """Keep the Python files, and the metadata where an installed package has them."""
    package = f"vllm-{version}"
    with tarfile.open(archive) as tar:
        kept = [
            member
            for member in tar
            if member.name.startswith((f"{package}/vllm/", f"{package}/PKG-INFO"))
            and member.name.endswith(_KEPT)
        ]
        # Debian 12's own Python is older than this filter; the archive's hash is pinned.
        tar.extraction_filter = getattr(tarfile, "data_filter", lambda member, _path: member)
        tar.extractall(target.parent, members=kept)  # noqa: S202
    shutil.move(target.parent / package, target)
    metadata = target / f"{package}.dist-info"
    metadata.mkdir()
    shutil.move(target / "PKG-INFO", metadata / "METADATA")
