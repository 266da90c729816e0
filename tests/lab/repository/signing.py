# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A signing key that lives as long as one build."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from types import TracebackType

from labkit.console import run


class Signer:
    """A new OpenPGP key in a directory of its own; leaving the context forgets it."""

    def __init__(self, name: str) -> None:
        self.home = Path(tempfile.mkdtemp(prefix="apiary-gpg-"))
        self.name = f"{name} <lab@example.invalid>"
        self.gpg = ["gpg", "--batch", "--quiet", "--yes", "--homedir", str(self.home)]
        self.fingerprint = ""

    def __enter__(self) -> Signer:
        run([*self.gpg, "--passphrase", "", "--quick-generate-key", self.name, "rsa2048", "sign"])
        listed = run([*self.gpg, "--with-colons", "--list-keys"]).stdout.decode()
        rows = [line.split(":") for line in listed.splitlines()]
        self.fingerprint = next(row[9] for row in rows if row[0] == "fpr")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        run(["gpgconf", "--homedir", self.home, "--kill", "gpg-agent"], check=False)
        shutil.rmtree(self.home, ignore_errors=True)

    def export(self, path: Path) -> None:
        """Write the armored public key."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(run([*self.gpg, "--armor", "--export"]).stdout)

    def clearsign(self, source: Path, target: Path) -> None:
        """Write a text with its signature around it."""
        run([*self.gpg, "--clearsign", "--output", target, source])

    def detach(self, source: Path, target: Path) -> None:
        """Write the armored signature of a file."""
        run([*self.gpg, "--armor", "--detach-sign", "--output", target, source])
