# SPDX-License-Identifier: GPL-3.0-or-later

"""A directory with a model as the source of a revision."""

from __future__ import annotations

import contextlib
import os
import stat
from typing import IO

from ..finding import ApiaryError, error
from . import manifest as weights_manifest
from .hub import SourceFile
from .manifest import COMMIT, safe_path


class Directory:
    """A directory that already has the files: a download of another tool, or another store.

    What it tells of its files is verified: the hashes of a manifest, or of the Hugging Face
    tools, whose cache names files by them and whose ``--local-dir`` notes them.
    """

    NOTES = ".cache/huggingface/download"

    def __init__(self, path: str, revision: str = "") -> None:
        self.path, self.revision = path, revision
        if not os.path.isdir(path):
            raise self.refuse("is no directory")

    @property
    def name(self) -> str:
        return self.path

    def refuse(self, message: str) -> ApiaryError:
        return error("WEIGHTS-PUBLISH-SOURCE", self.path, message)

    def commit(self) -> str:
        """Return the commit as it was passed, or as the directory has it."""
        if self.revision and not COMMIT.fullmatch(self.revision):
            raise self.refuse(f"found the revision {self.revision}, expected a commit's 40 digits")
        if self.revision:
            return self.revision
        if os.path.exists(os.path.join(self.path, weights_manifest.NAME)):
            return weights_manifest.read(self.path).revision
        name = os.path.basename(os.path.realpath(self.path))
        if COMMIT.fullmatch(name):
            return name
        for parent, _directories, files in os.walk(os.path.join(self.path, self.NOTES)):
            for note in sorted(files):
                with open(os.path.join(parent, note), encoding="utf-8") as stream:
                    told = stream.readline().strip()
                if note.endswith(".metadata") and COMMIT.fullmatch(told):
                    return told
        raise self.refuse("does not tell which commit it holds: set weights_revision, too")

    def open_file(self, path: str, offset: int, end: int | None) -> tuple[IO[bytes], int]:
        """Return a file's bytes from an offset on; they go on to the file's end, which is near."""
        try:
            # pylint: disable=consider-using-with
            stream = open(os.path.join(self.path, path), "rb", buffering=0)  # noqa: SIM115
        except OSError as failure:
            raise self.refuse(f"{path} cannot be read: {failure.strerror}") from failure
        stream.seek(offset)
        return stream, offset

    def files(self, commit: str) -> list[SourceFile]:
        """Return the files, with the hashes that are told of them."""
        if os.path.exists(os.path.join(self.path, weights_manifest.NAME)):
            manifest = weights_manifest.read(self.path)
            if manifest.revision != commit:
                raise self.refuse(f"found the revision {manifest.revision}, expected {commit}")
            return [SourceFile(one.path, one.size, one.sha256) for one in manifest.files]
        found: list[SourceFile] = []
        for parent, directories, files in os.walk(self.path, onerror=self.stop):
            directories[:] = [one for one in sorted(directories) if one not in (".cache", ".git")]
            for name in directories:
                if os.path.islink(os.path.join(parent, name)):
                    raise self.refuse(f"{name} is a link to a directory, expected the directory")
            for name in sorted(files):
                path = os.path.relpath(os.path.join(parent, name), self.path)
                if not safe_path(path):
                    raise self.refuse(f"{path!r} takes a reserved name")
                found.append(self.file(path, commit))
        if not found:
            raise self.refuse("holds no files")
        return found

    def stop(self, failure: OSError) -> None:
        raise self.refuse(f"{failure.filename} cannot be read: {failure.strerror}") from failure

    def file(self, path: str, commit: str) -> SourceFile:
        """Return one file, with the hash that the Hugging Face tools noted."""
        place = os.path.join(self.path, path)
        try:
            status = os.stat(place)
        except OSError as failure:
            raise self.refuse(f"{path} cannot be read: {failure.strerror}") from failure
        if not stat.S_ISREG(status.st_mode):
            raise self.refuse(f"{path} is no regular file")
        size, noted = status.st_size, ""
        if os.path.islink(place):
            noted = os.path.basename(os.readlink(place))
        with contextlib.suppress(FileNotFoundError):
            notes = os.path.join(self.path, self.NOTES, path + ".metadata")
            with open(notes, encoding="utf-8") as stream:
                of_commit, noted = stream.readline().strip(), stream.readline().strip()
            if of_commit != commit:
                raise self.refuse(f"{path} is of the revision {of_commit}, expected {commit}")
        if weights_manifest.SHA256.fullmatch(noted):
            return SourceFile(path, size, sha256=noted)
        return SourceFile(path, size, git_sha1=noted if COMMIT.fullmatch(noted) else None)
