# SPDX-License-Identifier: GPL-3.0-or-later

"""What a rollout is asked to do, as digests: whether a run that is resumed is still the same."""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from ansible_collections.apiary.instinct.plugins.plugin_utils.fleet.ledger import Asked
from ansible_collections.apiary.instinct.plugins.plugin_utils.fleet.runs import Options

from apiary.app.inventory_files import inventory_files
from apiary.app.runner import PLAYBOOKS


@dataclass(frozen=True)
class Request:
    """What the operator requests. ``inline`` are variables of -e that are given by value."""

    playbook: str | None
    options: Options
    inline: Mapping[str, Any]
    tags: str | None
    skip_tags: str | None
    check: bool
    artifacts: str | None


def asked_of(name: str, path: Path, request: Request) -> Asked:
    """Return what a run of this playbook is asked to do."""
    values = hashlib.sha256()
    files, inline = request.options.extra_files, request.inline
    for file in files:
        values.update(Path(file[1:]).read_bytes())
    values.update(json.dumps(inline, sort_keys=True, default=str).encode())
    return Asked(
        playbook=name,
        tags=request.tags or "",
        skip_tags=request.skip_tags or "",
        check=request.check,
        content=hashlib.sha256(path.read_bytes() + collection_version().encode()).hexdigest(),
        variables=values.hexdigest() if files or inline else "",
        inventory=_inventory_digest(request.options.inventory or configured_inventory()),
        collection=collection_version(),
        ansible_core=version("ansible-core"),
        commit=_commit(path),
    )


def collection_version() -> str:
    """Return the collection's version, "" where its files do not say."""
    root = PLAYBOOKS.parent
    manifest, galaxy = root / "MANIFEST.json", root / "galaxy.yml"
    if manifest.is_file():
        data = json.loads(manifest.read_text(encoding="utf-8"))
        return str(data.get("collection_info", {}).get("version", ""))
    if galaxy.is_file():
        match = re.search(r"^version:\s*(\S+)", galaxy.read_text(encoding="utf-8"), re.MULTILINE)
        return match[1] if match else ""
    return ""


def configured_inventory() -> list[str]:
    """Return the inventory that Ansible's configuration names."""
    from ansible import constants  # slow to import, and mostly not needed

    return [str(source) for source in constants.DEFAULT_HOST_LIST]


def _inventory_digest(sources: Sequence[str]) -> str:
    digest = hashlib.sha256()
    for source in sources:
        if "," in source:
            digest.update(source.encode())
        for path in inventory_files(source):
            digest.update(f"{os.path.relpath(path, source)}\0".encode())
            digest.update(path.read_bytes())
    return digest.hexdigest()


def _commit(path: Path) -> str:
    """Return the commit of the playbook's checkout, with "+" where it is changed; "" for none."""

    def git(*words: str) -> str | None:
        try:
            done = subprocess.run(
                ["git", "-C", str(path.resolve().parent), *words],
                capture_output=True,
                text=True,
                check=False,
            )
        except OSError:
            return None
        return done.stdout.strip() if done.returncode == 0 else None

    head = git("rev-parse", "HEAD")
    if not head:
        return ""
    return head + ("+" if git("status", "--porcelain", "--untracked-files=no", ".") else "")
