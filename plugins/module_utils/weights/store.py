# SPDX-License-Identifier: GPL-3.0-or-later

"""The store of weights on the writer: its layout, and the steps in which it changes.

``ROOT/ORG/NAME/REVISION/`` holds a published revision, ``current`` points to one of them, and
``.partial-REVISION`` is one on its way. Readers see a whole revision or none; a file of a published
revision is replaced by another inode, never written to.
"""

from __future__ import annotations

import contextlib
import datetime
import fcntl
import os
import shutil
import stat
from collections.abc import Iterator
from dataclasses import dataclass

from ..durable import sync_directory, write_durably
from ..finding import ApiaryError, error
from . import manifest as weights_manifest
from .manifest import COMMIT, Manifest

CURRENT = "current"
PARTIAL = ".partial-"
REMOVING = ".removing-"
# Beside the repositories: locks, and how far a run is.
OWN = ".apiary"
# Weights are public within the cluster: hosts read them as whoever runs the engine.
SEALED_DIRECTORY = 0o555
OPEN_DIRECTORY = 0o755


@dataclass(frozen=True)
class Shelf:
    """The place of one repository in the store."""

    root: str
    repository: str

    @property
    def path(self) -> str:
        return os.path.join(self.root, self.repository)

    def revision(self, commit: str) -> str:
        """Return where a revision is, or will be, published."""
        return os.path.join(self.path, commit)

    def partial(self, commit: str) -> str:
        """Return where a revision is put together."""
        return os.path.join(self.path, PARTIAL + commit)

    def own(self, suffix: str) -> str:
        """Return one of our own files on the repository."""
        return os.path.join(self.root, OWN, self.repository.replace("/", "--") + suffix)

    def current(self) -> str | None:
        """Return the revision that `current` points to; None if it points nowhere."""
        try:
            target = os.readlink(os.path.join(self.path, CURRENT))
        except OSError:
            return None
        return os.path.basename(target.rstrip("/"))

    def names(self) -> list[str]:
        """Return the names in the place, sorted."""
        try:
            return sorted(os.listdir(self.path))
        except FileNotFoundError:
            return []

    def revisions(self) -> list[str]:
        """Return the published revisions, sorted by name."""
        return [name for name in self.names() if COMMIT.fullmatch(name)]

    def leftovers(self) -> list[str]:
        """Return what interrupted runs left."""
        return [name for name in self.names() if name.startswith((PARTIAL, REMOVING))]


@contextlib.contextmanager
def locked(shelf: Shelf) -> Iterator[None]:
    """Keep other runs away from a repository; the kernel lets go when this process ends."""
    path = shelf.own(".lock")
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "a", encoding="utf-8") as stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise error(
                "WEIGHTS-PUBLISH-BUSY",
                shelf.path,
                f"another run works on this repository: {holder(path)}",
            ) from None
        try:
            yield
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(shelf.own(".progress.json"))


def holder(path: str) -> str:
    """Return who holds a lock, as the kernel lists it."""
    inode = str(os.stat(path).st_ino)
    with open("/proc/locks", encoding="ascii") as stream:
        for line in stream:
            _number, kind, _advisory, _access, process, place, *_range = line.split()
            if kind == "FLOCK" and place.rpartition(":")[2] == inode:
                return f"process {process}"
    return "its process is not on this host"


def check_space(directory: str, needed: int, reserve: int) -> None:
    """Refuse a transfer that the file system has no room for; bytes."""
    while not os.path.isdir(directory):
        directory = os.path.dirname(directory)
    status = os.statvfs(directory)
    free = status.f_bavail * status.f_frsize
    if free < needed + reserve:
        raise error(
            "WEIGHTS-FETCH-SPACE",
            directory,
            f"found {free} bytes free, expected {needed} to fetch and {reserve} in reserve",
        )


def sync_tree(directory: str) -> None:
    """Make the names in a directory and below it durable."""
    for parent, _directories, _files in os.walk(directory, topdown=False):
        sync_directory(parent)


def seal(directory: str, manifest: Manifest) -> None:
    """Let nobody write to the files and directories, and give the files the manifest's time."""
    for path in unsealed(directory, manifest):
        place = os.path.join(directory, path)
        if os.path.isdir(place):
            os.chmod(place, SEALED_DIRECTORY)
        else:
            os.chmod(place, 0o444)
            os.utime(place, (manifest.timestamp, manifest.timestamp))


def unsealed(directory: str, manifest: Manifest) -> list[str]:
    """Return the files and directories whose mode or time is not that of a published one."""
    found = []
    for parent, _directories, _files in os.walk(directory, topdown=False):
        if stat.S_IMODE(os.stat(parent).st_mode) != SEALED_DIRECTORY:
            found.append(os.path.relpath(parent, directory))
    for one in manifest.files:
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            status = os.stat(os.path.join(directory, one.path))
            touched = status.st_mtime_ns != manifest.timestamp * 10**9
            if touched or stat.S_IMODE(status.st_mode) != 0o444:
                found.append(one.path)
    return found


def unknown(directory: str, manifest: Manifest) -> list[str]:
    """Return the files that the manifest doesn't have."""
    known = {one.path for one in manifest.files} | {weights_manifest.NAME}
    found = []
    for parent, _directories, files in os.walk(directory):
        found += [os.path.relpath(os.path.join(parent, name), directory) for name in files]
    return sorted(set(found) - known)


def unseal(directory: str) -> None:
    """Let the owner add and rename files."""
    for parent, _directories, _files in os.walk(directory):
        os.chmod(parent, OPEN_DIRECTORY)


def write_manifest(directory: str, manifest: Manifest) -> None:
    """Replace the manifest of a directory; it bears its own time, as all that it lists."""
    path, times = os.path.join(directory, weights_manifest.NAME), (manifest.timestamp,) * 2
    text = weights_manifest.render(manifest)
    write_durably(path, text, 0o444, lambda temporary: os.utime(temporary, times))


def publish(shelf: Shelf, manifest: Manifest) -> None:
    """Make a complete partial revision a published one, in one step."""
    partial = shelf.partial(manifest.revision)
    remove_unknown(partial, manifest)
    write_manifest(partial, manifest)
    seal(partial, manifest)
    sync_tree(partial)
    os.rename(partial, shelf.revision(manifest.revision))
    sync_directory(shelf.path)


def remove_unknown(partial: str, manifest: Manifest) -> None:
    """Remove what an earlier run with another choice of files fetched, and empty directories."""
    for path in unknown(partial, manifest):
        os.unlink(os.path.join(partial, path))
    for parent, _directories, _files in os.walk(partial, topdown=False):
        if not os.listdir(parent) and parent != partial:
            os.rmdir(parent)


def replace(shelf: Shelf, manifest: Manifest, paths: list[str]) -> None:
    """Put files from the partial revision into the published one, each in one step.

    A reader that has the old file open keeps its inode; to write into it would change the pages
    that the reader has mapped.
    """
    partial, directory = shelf.partial(manifest.revision), shelf.revision(manifest.revision)
    unseal(directory)
    try:
        for path in paths:
            place = os.path.join(directory, path)
            os.makedirs(os.path.dirname(place), exist_ok=True)
            fresh = os.path.join(partial, path)
            os.utime(fresh, (manifest.timestamp, manifest.timestamp))
            os.rename(fresh, place)
        write_manifest(directory, manifest)
    finally:
        seal(directory, manifest)
    sync_tree(directory)
    shutil.rmtree(partial, ignore_errors=True)  # published it is; the next run removes the rest


def flip(shelf: Shelf, commit: str) -> None:
    """Let `current` point to a revision, in one step; the link is relative, for every mount."""
    fresh = os.path.join(shelf.path, ".apiary-current")
    with contextlib.suppress(FileNotFoundError):
        os.unlink(fresh)
    os.symlink(commit, fresh)
    os.rename(fresh, os.path.join(shelf.path, CURRENT))
    sync_directory(shelf.path)


def doomed(
    ages: dict[str, str], current: str | None, pinned: frozenset[str], keep: int
) -> list[str]:
    """Return the revisions to remove, the oldest first.

    ``ages`` has the creation time of each published revision. The ``keep`` newest stay, and so do
    those in use: the current one and the pinned ones.
    """
    newest = sorted(ages, key=lambda commit: (ages[commit], commit), reverse=True)
    held = set(newest[:keep]) | pinned | {current}
    return [commit for commit in reversed(newest) if commit not in held]


def ages(shelf: Shelf) -> dict[str, str]:
    """Return the creation time of the published revisions that have a manifest to tell it."""
    told = {}
    for commit in shelf.revisions():
        with contextlib.suppress(ApiaryError):
            told[commit] = weights_manifest.read(shelf.revision(commit)).created_at
    return told


def remove(shelf: Shelf, names: list[str]) -> None:
    """Remove revisions and leftovers; each first loses its name: nobody finds half of it."""
    for name in names:
        going = os.path.join(shelf.path, name)
        if not name.startswith((PARTIAL, REMOVING)):
            away = os.path.join(shelf.path, REMOVING + name)
            shutil.rmtree(away, ignore_errors=True)  # there only after a run that was killed
            os.rename(going, away)
            sync_directory(shelf.path)
            going = away
        unseal(going)
        shutil.rmtree(going)


def now() -> str:
    """Return the time as manifests have it."""
    return datetime.datetime.now(datetime.timezone.utc).strftime(weights_manifest.TIME)
