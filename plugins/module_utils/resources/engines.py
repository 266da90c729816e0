# SPDX-License-Identifier: GPL-3.0-or-later

"""What the kinds `wheels` and `image` share: the record of an engine, and what it says of itself.

A record lies below ``RECORDS`` from before the first file of an engine until after its last is
gone, so that a run that is killed leaves nothing that no later run knows. ``complete`` says that
the engine is whole; ``facts`` are versions by distribution, ROCm's version and the build's ``gfx``,
null where it does not say.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import tempfile
from collections.abc import Iterator
from typing import Any

from ..durable import sync_directory, write_durably
from ..finding import error
from .types import Host

RECORDS = "/var/lib/apiary/engines"
# What an engine may say of itself; it is the output of a program that nobody here wrote.
MOST_FACTS = 4096
LAST_WORDS = 400
FACTS_SECONDS = 600
# A CPU build of torch has neither.
FACTS = """
import importlib.metadata, json
def version(*names):
    for name in names:
        try:
            return importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            pass
facts = {"torch": version("torch"), "aiter": version("amd-aiter", "aiter")}
facts.update(rocm=None, gfx=None)
try:
    import torch
    facts["rocm"] = torch.version.hip
    facts["gfx"] = torch._C._cuda_getArchFlags().split()
except Exception:
    pass
print(json.dumps(facts))
"""


def record_path(name: str) -> str:
    """Return where the record of an engine lies, by its directory or image."""
    return f"{RECORDS}/{hashlib.sha256(name.encode()).hexdigest()[:16]}.json"


def read_record(name: str) -> dict[str, Any] | None:
    """Return the record of an engine; None where there is none."""
    try:
        with open(record_path(name), encoding="utf-8") as stream:
            record = json.load(stream)
    except (FileNotFoundError, ValueError):
        return None
    return record if isinstance(record, dict) else None


def write_record(name: str, **record: Any) -> None:
    """Write the record of an engine, so that it outlasts a power cut."""
    os.makedirs(RECORDS, mode=0o755, exist_ok=True)
    text = json.dumps({"name": name, **record}, indent=2, sort_keys=True) + "\n"
    write_durably(record_path(name), text)


def remove_record(name: str) -> None:
    """Remove the record of an engine that is gone."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(record_path(name))
        sync_directory(RECORDS)


@contextlib.contextmanager
def secret_file(host: Host, name: str | None) -> Iterator[str | None]:
    """Yield a file of root's alone with a secret of the run, gone afterwards; None without one."""
    if name is None:
        yield None
        return
    with tempfile.TemporaryDirectory(prefix="apiary-", dir="/run") as directory:
        path = os.path.join(directory, "config.json")
        with open(path, "w", encoding="utf-8") as stream:
            stream.write(host.secrets[name])
        yield path


def run(host: Host, subject: str, argv: list[str], **options: Any) -> None:
    """Run what brings an engine; raise ENGINE-INSTALL with its last words where it fails."""
    code, out, err = host.run(argv, **options)
    if code:
        message = f"{' '.join(argv[:4])} ended with {code}: {(err or out).strip()[-LAST_WORDS:]}"
        raise error("ENGINE-INSTALL", subject, message)


def facts_of(host: Host, argv: list[str]) -> dict[str, Any]:
    """Return what the engine that this Python has says of itself; {} where it says nothing."""
    limited = ["timeout", str(FACTS_SECONDS), *argv, "-c", FACTS]
    code, out, _err = host.run(limited, environ_update={"HIP_VISIBLE_DEVICES": ""})
    lines = out.strip().splitlines()
    if code or not lines or len(lines[-1]) > MOST_FACTS:
        return {}
    try:
        facts = json.loads(lines[-1])
    except ValueError:
        return {}
    return facts if isinstance(facts, dict) else {}
