# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Raw results in files on the controller, for the adapters; nothing that decides imports this."""

from __future__ import annotations

import glob
import gzip
import json
import re
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...documents import dumps, from_document, to_document
from ...files import read_text, write_bytes, write_text
from ...findings import error
from ..raw import Raw

SUFFIX = ".json.gz"
BEGUN = "begun.json"


@dataclass(frozen=True)
class RawStore:
    """A directory with the raw result of each level, by the key of its load."""

    directory: Path

    def path(self, key: str) -> Path:
        """Return the file of a load's raw result."""
        return self.directory / (re.sub(r"[^A-Za-z0-9._-]", "_", key) + SUFFIX)

    def name(self, key: str) -> str:
        """Return that file's name relative to the benchmark's directory."""
        return f"{self.directory.name}/{self.path(key).name}"

    def get(self, key: str) -> Raw | None:
        """Return what was measured before; None where nothing was, or only half of it."""
        path = self.path(key)
        try:
            data = json.loads(gzip.decompress(path.read_bytes()))
        except FileNotFoundError:
            return None
        except (OSError, EOFError, ValueError, zlib.error) as failure:
            raise error(
                "BENCH-RAW", str(path), f"cannot be read as a raw result: {failure}"
            ) from failure
        return from_document(Raw, data, str(path))

    def begin(self, key: str) -> int:
        """Note that a load is about to be sent; return how often it was before."""
        path = self.directory.with_name(BEGUN)
        try:
            begun = json.loads(read_text(str(path))) if path.exists() else {}
            before = int(begun.get(key, 0))
        except (ValueError, TypeError, AttributeError) as failure:
            problem = f"cannot be read as a count of what was begun: {failure}"
            raise error("BENCH-RAW", str(path), problem) from failure
        write_text(path, dumps({**begun, key: before + 1}))
        return before

    def put(self, key: str, raw: Raw) -> str:
        """Keep a raw result; return its file's name relative to the benchmark's directory.

        What an earlier attempt gave stays beside it, as NAME.attempt-0.json.gz and so on.
        """
        path = self.path(key)
        if path.exists():
            stem = path.name.removesuffix(SUFFIX)
            number = len(list(path.parent.glob(f"{glob.escape(stem)}.attempt-*{SUFFIX}")))
            path.replace(path.with_name(f"{stem}.attempt-{number}{SUFFIX}"))
        write_packed(path, to_document(raw))
        return self.name(key)


def write_packed(path: Path, document: Any) -> None:
    """Write a document as gzip JSON in one step; equal documents make equal files."""
    text = json.dumps(document, separators=(",", ":")).encode()
    write_bytes(path, gzip.compress(text, 6, mtime=0))
