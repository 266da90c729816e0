# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Where a release comes from, and who says so: provenance, and signatures by `ssh-keygen -Y sign`.

The provenance is an in-toto statement with SLSA's predicate: the commit and the pinned requirements
that the files were built of, with what, by whom, when. It is signed as SHA256SUMS is, and not
listed there, because two who build the same commit get the same sums and another provenance.
"""

from __future__ import annotations

import hashlib
import json
import platform
import subprocess
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path

# As `apiary doctor --release` verifies them (knowledge/doctor.yml).
NAMESPACE = "apiary-release"
SUMS, PROVENANCE = "SHA256SUMS", "provenance.json"
STATEMENT, PREDICATE = "https://in-toto.io/Statement/v1", "https://slsa.dev/provenance/v1"
BUILD_TYPE = "urn:apiary:make-release:v1"
# What reads the tree and writes the files; requirements/dev.txt pins them with what they need.
TOOLS = ("ansible-core", "build", "cyclonedx-python-lib", "hatchling")
PINS = ("requirements/dev.txt", "requirements/runtime.txt")


class SigningError(Exception):
    """Why something is not signed; ``subject`` is what it is about."""

    def __init__(self, subject: str, message: str) -> None:
        super().__init__(message)
        self.subject = subject


@dataclass(frozen=True)
class Build:
    """One build: what was built of which commit, by whom (a URI), between two moments."""

    version: str
    commit: str
    epoch: int
    builder: str
    began: float
    ended: float


def statement(build: Build, subjects: Mapping[str, str], materials: list[dict[str, object]]) -> str:
    """Return the statement of provenance as JSON; ``subjects`` have their SHA-256."""
    document = {
        "_type": STATEMENT,
        "subject": [
            {"name": name, "digest": {"sha256": digest}} for name, digest in subjects.items()
        ],
        "predicateType": PREDICATE,
        "predicate": {
            "buildDefinition": {
                "buildType": BUILD_TYPE,
                "externalParameters": {"version": build.version, "commit": build.commit},
                "internalParameters": {"SOURCE_DATE_EPOCH": build.epoch},
                "resolvedDependencies": materials,
            },
            "runDetails": {
                "builder": {
                    "id": build.builder,
                    # zlib decides how bytes are packed: docs/decisions/0022-release.md
                    "version": {
                        "python": platform.python_version(),
                        "zlib": zlib.ZLIB_RUNTIME_VERSION,
                    },
                },
                "metadata": {"startedOn": _time(build.began), "finishedOn": _time(build.ended)},
            },
        },
    }
    return json.dumps(document, indent=1) + "\n"


def materials(root: Path, commit: str) -> list[dict[str, object]]:
    """Return what a release is built of: the commit, the pins, the tools by their files' list."""
    resolved: list[dict[str, object]] = [
        {"uri": f"git+urn:apiary@{commit}", "digest": {"gitCommit": commit}}
    ]
    for name in PINS:
        resolved.append({"uri": f"file:{name}", "digest": {"sha256": _sha256(root / name)}})
    for name in TOOLS:
        package = metadata.distribution(name)
        record = hashlib.sha256((package.read_text("RECORD") or "").encode()).hexdigest()
        resolved.append(
            {
                "uri": f"pkg:pypi/{name}@{package.version}",
                "digest": {"sha256": record},
                "annotations": {"digest of": "RECORD, which has that of every installed file"},
            }
        )
    return resolved


def usable(key: Path, root: Path) -> None:
    """Refuse a key that is not there, or that lies where it could be committed."""
    if not key.is_file():
        raise SigningError(str(key), "there is no such key")
    if key.resolve().is_relative_to(root.resolve()):
        raise SigningError(str(key), "a key must not lie in the repository")


def sign(path: Path, key: Path) -> Path:
    """Sign a file and return the signature, which lies beside it.

    ``key`` is a private key, or the public one of a key that ssh-agent or a token holds.
    """
    signature = path.with_name(f"{path.name}.sig")
    signature.unlink(missing_ok=True)
    command = ["ssh-keygen", "-Y", "sign", "-n", NAMESPACE, "-f", str(key), str(path)]
    # Whoever signs is asked for the passphrase at the terminal.
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if done.returncode != 0 or not signature.exists():
        raise SigningError(str(key), done.stderr.strip() or "ssh-keygen wrote no signature")
    return signature


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _time(moment: float) -> str:
    return f"{datetime.fromtimestamp(moment, UTC):%Y-%m-%dT%H:%M:%SZ}"
