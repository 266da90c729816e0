# SPDX-License-Identifier: GPL-3.0-or-later

"""The manifest of a model's directory: what it holds, and whether it still does.

``<directory>/.apiary-manifest.json`` is the document `apiary.weights/v1`: repository, revision,
and size and SHA-256 of every file. Published files bear the manifest's time as their own, so that
one that was touched since shows without being read.
"""

from __future__ import annotations

import concurrent.futures
import datetime
import hashlib
import json
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Callable

from ..finding import ApiaryError, error

SCHEMA = "apiary.weights/v1"
NAME = ".apiary-manifest.json"
COMMIT = re.compile(r"[0-9a-f]{40}")
REPOSITORY = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*/[A-Za-z0-9][A-Za-z0-9._-]*")
SHA256 = re.compile(r"[0-9a-f]{64}")
TIME = "%Y-%m-%dT%H:%M:%SZ"
CHUNK = 4 * 2**20

# How closely files are looked at: their sizes; and the hashes of small ones, which an engine runs
# or reads as its settings; and of those touched since; and of all.
LEVELS = ("sizes", "small", "touched", "hashes")
SMALL, LARGEST_TEXT = 2**20, 64 * 2**20
TEXTS = (".py", ".json", ".jinja")


@dataclass(frozen=True, order=True)
class ManifestFile:
    """One file: its path below the directory, bytes, and SHA-256 in hexadecimal."""

    path: str
    size: int
    sha256: str

    @property
    def is_small(self) -> bool:
        """Return whether its hash costs little: a small file, or code, settings or a template."""
        return self.size < SMALL or (self.size <= LARGEST_TEXT and self.path.endswith(TEXTS))


@dataclass(frozen=True)
class Manifest:
    """What one revision of a repository holds."""

    repository: str
    revision: str
    created_at: str
    files: tuple[ManifestFile, ...]
    # How files were chosen, as the writer was told: another choice is another job.
    selection: dict[str, Any] = field(default_factory=dict)

    @property
    def total_bytes(self) -> int:
        return sum(one.size for one in self.files)

    @property
    def timestamp(self) -> int:
        """The time in seconds that published files bear."""
        moment = datetime.datetime.strptime(self.created_at, TIME)
        return int(moment.replace(tzinfo=datetime.timezone.utc).timestamp())

    def document(self) -> dict[str, Any]:
        """Return `apiary.weights/v1`."""
        return {
            "schema": SCHEMA,
            "repository": self.repository,
            "revision": self.revision,
            "created_at": self.created_at,
            "total_bytes": self.total_bytes,
            "selection": self.selection,
            "files": [
                {"path": one.path, "size": one.size, "sha256": one.sha256}
                for one in sorted(self.files)
            ],
        }


@dataclass(frozen=True)
class Deviation:
    """A file not as the manifest has it: `missing`, `size`, `hash`, `unreadable`, `unlisted`."""

    path: str
    kind: str
    found: str
    expected: str

    def __str__(self) -> str:
        if self.kind in ("missing", "unreadable", "unlisted"):
            return f"{self.path} ({self.found})"
        return f"{self.path} ({self.kind}: found {self.found}, expected {self.expected})"


def safe_path(path: str) -> bool:
    """Say whether a path stays below its directory and takes none of our own names."""
    parts = path.split("/")
    return (
        path.isprintable()
        and "\\" not in path
        and not any(part in ("", ".", "..") for part in parts)
        and not parts[0].startswith(".apiary-")
    )


def render(manifest: Manifest) -> str:
    """Return the manifest's text."""
    return json.dumps(manifest.document(), indent=1, sort_keys=True) + "\n"


def parse(text: str, subject: str) -> Manifest:
    """Return a manifest from its text; ``subject`` is its path, for what is wrong with it."""

    def refuse(message: str) -> ApiaryError:
        return error("WEIGHTS-MANIFEST-INVALID", subject, message)

    try:
        document = json.loads(text)
    except ValueError as failure:
        raise refuse(f"is no JSON: {failure}") from failure
    if not isinstance(document, dict) or document.get("schema") != SCHEMA:
        found = document.get("schema") if isinstance(document, dict) else type(document).__name__
        raise refuse(f"found the schema {found}, expected {SCHEMA}")
    try:
        manifest = Manifest(
            repository=str(document["repository"]),
            revision=str(document["revision"]),
            created_at=str(document["created_at"]),
            files=tuple(
                ManifestFile(str(one["path"]), one["size"], str(one["sha256"]))
                for one in document["files"]
            ),
            selection=dict(document.get("selection", {})),
        )
        manifest.timestamp  # noqa: B018 - a time that cannot be read is refused here
        total = document["total_bytes"]
    except (AttributeError, KeyError, TypeError, ValueError) as failure:
        raise refuse(f"lacks or mistakes a field: {failure!r}") from failure
    for one in manifest.files:
        # bool is an int, too.
        if isinstance(one.size, bool) or not isinstance(one.size, int) or one.size < 0:
            raise refuse(f"{one.path!r}: found the size {one.size!r}, expected bytes")
        if not safe_path(one.path):
            raise refuse(f"{one.path!r} leads out of the directory or takes a reserved name")
        if not SHA256.fullmatch(one.sha256):
            raise refuse(f"{one.path!r}: found the SHA-256 {one.sha256!r}, expected 64 digits")
    if len({one.path for one in manifest.files}) != len(manifest.files):
        raise refuse("names a file twice")
    if manifest.total_bytes != total:
        raise refuse(f"found {total} bytes in total, expected {manifest.total_bytes}")
    return manifest


def read(directory: str) -> Manifest:
    """Return the manifest of a directory.

    Raises ApiaryError: WEIGHTS-MANIFEST-MISSING, WEIGHTS-MANIFEST-INVALID, and WEIGHTS-ABSENT
    where a file system does not say whether there is one.
    """
    path = os.path.join(directory, NAME)
    try:
        with open(path, encoding="utf-8") as stream:
            text = stream.read()
    except (OSError, UnicodeDecodeError) as failure:
        missing = isinstance(failure, (FileNotFoundError, NotADirectoryError, UnicodeDecodeError))
        raise error(
            "WEIGHTS-MANIFEST-MISSING" if missing else "WEIGHTS-ABSENT",
            path,
            f"cannot be read: {getattr(failure, 'strerror', None) or failure}",
        ) from failure
    return parse(text, path)


def hash_file(path: str, progress: Callable[[int], None] | None = None) -> str:
    """Return a file's SHA-256; ``progress`` is told the bytes of each step."""
    digest = hashlib.sha256()
    buffer = bytearray(CHUNK)
    view = memoryview(buffer)
    with open(path, "rb", buffering=0) as stream:
        while True:
            count = stream.readinto(buffer)
            if not count:
                return digest.hexdigest()
            digest.update(view[:count])
            if progress:
                progress(count)


def verify(
    directory: str,
    manifest: Manifest,
    level: str = "sizes",
    parallel: int = 4,
    progress: Callable[[int], None] | None = None,
) -> list[Deviation]:
    """Return what deviates from the manifest, by path.

    ``level`` is one of LEVELS; ``progress`` is told hashed bytes, from several threads.
    """

    def look(one: ManifestFile) -> Deviation | None:
        return deviation(directory, manifest, one, level, progress)

    if level == "sizes":
        looked: Iterable[Deviation | None] = map(look, sorted(manifest.files))
        return [one for one in looked if one]
    with concurrent.futures.ThreadPoolExecutor(max(1, parallel)) as pool:
        return [one for one in pool.map(look, sorted(manifest.files)) if one]


def deviation(
    directory: str,
    manifest: Manifest,
    one: ManifestFile,
    level: str,
    progress: Callable[[int], None] | None = None,
) -> Deviation | None:
    """Return how one file deviates, or nothing."""
    path = os.path.join(directory, one.path)
    try:
        status = os.stat(path)
        if status.st_size != one.size:
            return Deviation(one.path, "size", str(status.st_size), str(one.size))
        touched = status.st_mtime_ns != manifest.timestamp * 10**9
        small = level == "small" and one.is_small
        if level == "hashes" or (level == "touched" and touched) or small:
            found = hash_file(path, progress)
            if found != one.sha256:
                return Deviation(one.path, "hash", found, one.sha256)
    except (FileNotFoundError, NotADirectoryError):
        return Deviation(one.path, "missing", "missing", f"{one.size} bytes")
    except OSError as failure:
        problem = failure.strerror or str(failure)
        return Deviation(one.path, "unreadable", problem, f"{one.size} bytes")
    return None


def unlisted(directory: str, manifest: Manifest) -> list[Deviation]:
    """Return the code that the manifest does not have, and links to where code may lie."""
    listed = {one.path for one in manifest.files}
    found = []
    for folder, folders, names in os.walk(directory):
        links = [name for name in folders if os.path.islink(os.path.join(folder, name))]
        code = [name for name in (*names, *folders) if name.lower().endswith(".py")]
        for name in sorted({*links, *code}):
            path = os.path.relpath(os.path.join(folder, name), directory)
            if path not in listed:
                found.append(Deviation(path, "unlisted", "is not in the manifest", "no such file"))
    return found


def damaged(directory: str, manifest: Manifest, deviations: list[Deviation]) -> ApiaryError:
    """Return what tells that a directory is not as its manifest has it."""
    shown = "; ".join(str(one) for one in deviations[:5])
    more = f"; and {len(deviations) - 5} more" if len(deviations) > 5 else ""
    return error(
        "WEIGHTS-MANIFEST-DAMAGED",
        directory,
        f"{len(deviations)} of {len(manifest.files)} files are not as published: {shown}{more}",
        repository=manifest.repository,
        revision=manifest.revision,
    )
