# SPDX-License-Identifier: GPL-3.0-or-later

"""Verify a release without a network: who signed it, and whether its files are those signed."""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from ansible_collections.apiary.instinct.plugins.plugin_utils.documents import knowledge
from ansible_collections.apiary.instinct.plugins.plugin_utils.findings import (
    ApiaryError,
    Finding,
    error,
)

from apiary.help.doctor.judge import check
from apiary.help.doctor.types import Check

SUMS, PROVENANCE = "SHA256SUMS", "provenance.json"
_OWN = {name + suffix for name in (SUMS, PROVENANCE) for suffix in ("", ".sig")}
_LINE = re.compile(r"([0-9a-f]{64})  ([A-Za-z0-9][A-Za-z0-9._+-]*)")
_KEY = re.compile(r"((?:sk-)?(?:ssh|ecdsa)-[a-z0-9@.-]+ [A-Za-z0-9+/=]+)(?: .*)?")
_LARGEST = 1 << 20  # of a list, a statement or a key; real ones are some KiB


def verify_release(place: Path, key: Path | None) -> tuple[Check, ...]:
    """Return the checks of a release's directory, or of one of its files and what signs it."""
    directory, only = (place, None) if place.is_dir() else (place.parent, place.name)
    try:
        signers = _signers(key)
        sums = _signed(directory, SUMS, signers)
        listed = {m[2]: m[1] for m in map(_LINE.fullmatch, sums.decode().splitlines()) if m}
        statement = _signed(directory, PROVENANCE, signers)
        origin = _origin(directory / PROVENANCE, statement, listed)
    except ApiaryError as refusal:
        # Without a signature, what is written there proves nothing, so no file is compared.
        return (check("release", "signature", str(directory), refusal.findings),)
    files = "1 file" if only else f"{len(listed)} files"
    return (
        check("release", "signature", f"of {SUMS} and {PROVENANCE}"),
        check("release", "provenance", origin),
        check("release", "files", files, _files(directory, only, listed)),
    )


def _signers(key: Path | None) -> str:
    """Return who may sign, as ssh-keygen reads it: the key that is given, or those pinned."""
    facts = knowledge("doctor.yml")["release"]
    lines = _read(key).decode(errors="replace").splitlines() if key else facts["signers"]
    keys = [match[1] for match in map(_KEY.fullmatch, lines) if match]
    if not keys:
        found = "no public key of OpenSSH" if key else "none given, and none is pinned"
        raise error("DOCTOR-RELEASE-KEY", str(key or "--release-key"), found)
    return "".join(f"{facts['name']} {entry}\n" for entry in keys)


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as stream:
            return stream.read(_LARGEST)
    except OSError as problem:
        raise error("DOCTOR-RELEASE-ABSENT", str(path), f"{problem.strerror}") from problem


def _signed(directory: Path, name: str, signers: str) -> bytes:
    """Return a file's content that one of the signers signed."""
    content, signature = _read(directory / name), (directory / f"{name}.sig").absolute()
    if not signature.is_file():
        raise error("DOCTOR-RELEASE-UNSIGNED", name, f"there is no {signature.name} beside it")
    with tempfile.NamedTemporaryFile("w") as allowed:
        allowed.write(signers)
        allowed.flush()
        namespace = knowledge("doctor.yml")["release"]["name"]
        common = ("-n", namespace, "-s", str(signature))
        whole, by = _ssh_keygen(content, "check-novalidate", *common)
        if not whole:
            raise error("DOCTOR-RELEASE-SIGNATURE", name, f"{signature.name} is not of it: {by}")
        if not _ssh_keygen(content, "verify", "-f", allowed.name, "-I", namespace, *common)[0]:
            raise error("DOCTOR-RELEASE-SIGNER", name, f"signed by another key: {by}")
    return content


def _ssh_keygen(content: bytes, *words: str) -> tuple[bool, str]:
    """Return whether ssh-keygen agrees, and the last words that it prints."""
    command = ["ssh-keygen", "-Y", *words]
    try:
        done = subprocess.run(command, input=content, capture_output=True, timeout=60, check=False)
    except OSError as problem:
        raise error("DOCTOR-RELEASE-TOOL", "ssh-keygen", f"{problem.strerror}") from problem
    printed = (done.stdout + done.stderr).decode(errors="replace").strip().splitlines()
    return done.returncode == 0, printed[-1] if printed else "no reason given"


def _origin(path: Path, statement: bytes, listed: Mapping[str, str]) -> str:
    """Return what the provenance says of commit and builder; it is of these very files."""
    try:
        document = json.loads(statement)
        subjects = {entry["name"]: entry["digest"]["sha256"] for entry in document["subject"]}
        predicate = document["predicate"]
        commit = predicate["buildDefinition"]["externalParameters"]["commit"]
        origin = f"commit {commit}, built by {predicate['runDetails']['builder']['id']}"
    except (ValueError, LookupError, TypeError) as problem:
        message = f"is not a statement of provenance: {problem!r}"
        raise error("DOCTOR-RELEASE-PROVENANCE", str(path), message) from problem
    if subjects != listed:
        raise error("DOCTOR-RELEASE-PROVENANCE", str(path), f"is of other files than {SUMS}")
    return origin


def _files(directory: Path, only: str | None, listed: Mapping[str, str]) -> Iterator[Finding]:
    """Yield where the files differ from what is signed."""
    there = {path.name for path in directory.iterdir()} if only is None else {only}
    for name in sorted(there - listed.keys() - _OWN):
        yield Finding("DOCTOR-RELEASE-EXTRA", name, f"is not listed in {SUMS}")
    for name in sorted(listed.keys() & there if only else listed):
        path = directory / name
        if not path.is_file():
            yield Finding("DOCTOR-RELEASE-MISSING", name, f"is listed in {SUMS} and not there")
            continue
        with path.open("rb") as stream:
            digest = hashlib.file_digest(stream, "sha256").hexdigest()
        if digest != listed[name]:
            yield Finding(
                "DOCTOR-RELEASE-CHANGED", name, f"has SHA-256 {digest}, signed is {listed[name]}"
            )
