# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Clean the files of a support bundle, one at a time: nothing goes in that a secret is left in."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ansible_collections.apiary.instinct.plugins.plugin_utils.findings import Finding

from apiary.help.bundle.anonymize import Anonymizer
from apiary.help.bundle.redact import Redactor, clean_json
from apiary.help.bundle.types import LeftOut, Member, Raw

# Of a file; of a log that is longer its end is taken.
LARGEST = 4 << 20


@dataclass
class Stage:
    """Where cleaned files wait to be packed; ``most`` bytes in all."""

    directory: Path
    redactor: Redactor
    anonymizer: Anonymizer | None
    most: int
    members: list[Member] = field(default_factory=list)
    files: dict[str, Path] = field(default_factory=dict)
    left_out: list[LeftOut] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    taken: int = 0

    def take(self, raws: Iterable[Raw], step: Callable[[], None] = lambda: None) -> None:
        """Clean files and keep them; logs come last, as what is left out where it gets too much."""
        for raw in sorted(raws, key=lambda one: (one.log, one.target)):
            self._take(raw)
            step()

    def learn(self, raws: Iterable[Raw]) -> None:
        """Look through all files for secrets by their names, so that they go everywhere."""
        for raw in raws:
            text = _read(raw)
            if text is None:
                continue
            try:
                data = json.loads(text) if text.lstrip()[:1] in ("{", "[") else text
            except (ValueError, RecursionError):
                data = text
            self.redactor.learn_document(data)

    def _take(self, raw: Raw) -> None:
        text = _read(raw)
        if text is None:
            self.left_out.append(
                LeftOut(self._named(raw.target), "is too large, or cannot be read")
            )
            return
        if self._too_much(self._named(raw.target), text):
            return  # before it is cleaned, which takes about a second for a megabyte
        before = self.redactor.counts.total()
        cleaned = self.clean(text)
        removed = self.redactor.counts.total() - before
        target = self._named(raw.target)
        if self.redactor.leaks(cleaned) or self.redactor.leaks(target):
            # It cannot be: a form that is found is cut out. Should it be, nothing goes out.
            self.left_out.append(LeftOut(raw.source, "a secret was still in it"))
            self.findings.append(
                Finding(
                    "BUNDLE-LEAK",
                    "error",
                    raw.source,
                    "a file was left out, because a secret was still in it after cleaning",
                    "tell Apiary's authors; the rest of the bundle was checked and may be sent",
                )
            )
            return
        if not self._too_much(target, cleaned):
            self.put(target, cleaned, raw.source, removed)

    def _too_much(self, target: str, text: str) -> bool:
        """Say whether a text has no room any more, and note it."""
        if self.taken + len(text.encode("utf-8", "replace")) <= self.most:
            return False
        self.left_out.append(LeftOut(target, "left out: the bundle is as large as it may be"))
        return True

    def clean(self, text: str) -> str:
        """Return a text without secrets: a JSON document by its parts, all else as lines."""
        cleaned = text
        if text.lstrip()[:1] in ("{", "["):
            try:
                cleaned = clean_json(self.redactor, text)
            except (ValueError, RecursionError):
                cleaned = self.redactor.text(text)
            # What a document's parts do not show, such as a secret across two of them.
            if self.redactor.leaks(cleaned):
                cleaned = self.redactor.text(cleaned)
        else:
            cleaned = self.redactor.text(text)
        return self.anonymizer.text(cleaned) if self.anonymizer else cleaned

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
        for one in ones:
            self.left_out.append(LeftOut(self._named(one.what), self.clean(one.why)))

    def _named(self, target: str) -> str:
        named = self.redactor.text(target)
        return self.anonymizer.text(named) if self.anonymizer else named


def _read(raw: Raw) -> str | None:
    """Return a file's text: of a long log the end, of another long file nothing."""
    try:
        size = os.stat(raw.path).st_size
        if size > LARGEST and not raw.log:
            return None
        with open(raw.path, "rb") as stream:
            if size > LARGEST:
                stream.seek(size - LARGEST)
                stream.readline()  # the line that the cut goes through
            return stream.read(LARGEST).decode("utf-8", "replace")
    except OSError:
        return None


def json_text(data: object) -> str:
    """Return JSON as all our documents are written."""
    return json.dumps(data, indent=2, sort_keys=True, ensure_ascii=False) + "\n"
