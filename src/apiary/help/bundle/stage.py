# SPDX-License-Identifier: GPL-3.0-or-later

"""Clean a support bundle's files, one at a time, so that no secret is left, and pack them."""

from __future__ import annotations

import gzip
import json
import os
import tarfile
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ansible_collections.apiary.instinct.plugins.plugin_utils.findings import Finding, error

from apiary.help.bundle.masking import Masker, clean_json
from apiary.help.bundle.sources import NOT_LISTED, LeftOut, Member, Raw, kind_of

# Of a file; of a log that is longer its end is taken.
LARGEST = 4 << 20


@dataclass
class Stage:
    """Where cleaned files wait to be packed; ``most`` bytes in all."""

    directory: Path
    masker: Masker
    most: int
    members: list[Member] = field(default_factory=list)
    files: dict[str, Path] = field(default_factory=dict)
    left_out: list[LeftOut] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    taken: int = 0

    def take(self, raws: Iterable[Raw], step: Callable[[], None] = lambda: None) -> None:
        """Clean the files that are on the list, logs last: too much is left out of those."""
        listed = [(kind_of(raw.target), raw) for raw in raws]
        for kind, raw in sorted(listed, key=lambda item: (item[0] == "log", item[1].target)):
            if kind is None:
                self.left_out.append(LeftOut(self.masker.text(raw.target), NOT_LISTED))
            else:
                self._take(kind, raw)
            step()

    def _take(self, kind: str, raw: Raw) -> None:
        target = self.masker.text(raw.target)
        text = _read(raw, kind == "log")
        if text is None:
            self.left_out.append(LeftOut(target, "is too large, or cannot be read"))
            return
        if why := _unfit(kind, text):
            self.left_out.append(LeftOut(target, why))
            return
        if self._too_much(target, text):
            return  # before it is cleaned, which takes about a second for a megabyte
        before = self.masker.counts.total()
        cleaned = self.clean(text, kind)
        removed = self.masker.counts.total() - before
        if self.masker.leaks(cleaned) or self.masker.leaks(target):
            # It cannot be: a form that is in it is masked. Should it be, nothing goes out.
            self.left_out.append(LeftOut(raw.source, "a secret was still in it"))
            self.findings.append(
                Finding(
                    "BUNDLE-LEAK",
                    raw.source,
                    "a file was left out, because a secret was still in it after cleaning",
                )
            )
            return
        if not self._too_much(target, cleaned):
            self.put(target, cleaned, raw.source, removed)

    def _too_much(self, target: str, text: str) -> bool:
        """Return whether a text has no room any more, and note it."""
        if self.taken + len(text.encode("utf-8", "replace")) <= self.most:
            return False
        self.left_out.append(LeftOut(target, "left out: the bundle is as large as it may be"))
        return True

    def clean(self, text: str, kind: str = "text") -> str:
        """Return a text without secrets: a JSON document by its parts, all else as lines."""
        if kind in ("document", "json"):
            try:
                cleaned = clean_json(self.masker, text)
            except (ValueError, RecursionError):
                cleaned = self.masker.text(text)
        else:
            cleaned = self.masker.unit(text) if kind == "unit" else self.masker.text(text)
        # What a document's parts do not show, such as a secret across two of them.
        return self.masker.text(cleaned) if self.masker.leaks(cleaned) else cleaned

    def put(self, target: str, text: str, source: str, removed: int = 0) -> None:
        """Keep a text that is clean."""
        number, plain = 1, target
        while target in self.files:  # other names may have become one
            number += 1
            target = f"{plain}-{number}"
        path = self.directory / f"{len(self.files):06d}"
        content = text.encode("utf-8", "replace")
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as stream:
            stream.write(content)
        self.files[target] = path
        self.members.append(Member(target, len(content), source, removed))
        self.taken += len(content)

    def leave_out(self, ones: Sequence[LeftOut]) -> None:
        """Note what is not taken; its name may be one that has to be another."""
        for item in ones:
            self.left_out.append(LeftOut(self.masker.text(item.what), self.clean(item.why)))


def _unfit(kind: str, text: str) -> str | None:
    """Return why a text is not what its path promises."""
    if text.startswith("$ANSIBLE_VAULT"):
        return "never taken: a vault"
    if "\0" in text[:64]:
        return "not a text"
    if kind == "document":
        try:
            data = json.loads(text)
        except (ValueError, RecursionError):
            return NOT_LISTED
        schema = data.get("schema") if isinstance(data, dict) else None
        return None if str(schema).startswith("apiary.") else NOT_LISTED
    return None


def _read(raw: Raw, log: bool) -> str | None:
    """Return a file's text: of a long log the end, of another long file nothing."""
    try:
        size = os.stat(raw.path).st_size
        if size > LARGEST and not log:
            return None
        with open(raw.path, "rb") as stream:
            if size > LARGEST:
                stream.seek(size - LARGEST)
                stream.readline()  # the line that the cut goes through
            return stream.read(LARGEST).decode("utf-8", "replace")
    except OSError:
        return None


MODE = 0o600


def write_archive(out: Path, files: Mapping[str, Path]) -> int:
    """Write FILES, by their path in the archive, as a tar.gz in one step; return its size in bytes.

    Owner, times and order are the same whoever writes it. Raises FILE-UNWRITABLE.
    """
    temporary = ""
    try:
        handle, temporary = tempfile.mkstemp(dir=out.parent, prefix=".apiary-bundle-")
        with os.fdopen(handle, "wb") as stream:
            os.fchmod(stream.fileno(), MODE)
            with (
                gzip.GzipFile("", "wb", 6, stream, mtime=0) as packed,
                tarfile.open(fileobj=packed, mode="w|", format=tarfile.PAX_FORMAT) as archive,
            ):
                for path in sorted(files):
                    _add(archive, path, files[path])
            stream.flush()
            os.fsync(stream.fileno())
            size = stream.tell()
        os.replace(temporary, out)
    except OSError as failure:
        raise error(
            "FILE-UNWRITABLE", str(out), f"cannot be written: {failure.strerror or failure}"
        ) from failure
    finally:
        if temporary:
            Path(temporary).unlink(missing_ok=True)
    return size


def _add(archive: tarfile.TarFile, path: str, source: Path) -> None:
    entry = tarfile.TarInfo(path)
    entry.size, entry.mode, entry.mtime = source.stat().st_size, MODE, 0
    with source.open("rb") as stream:
        archive.addfile(entry, stream)
