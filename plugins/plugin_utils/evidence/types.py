# SPDX-License-Identifier: GPL-3.0-or-later

"""What a host's tools and kernel printed, verbatim: the contract `apiary.evidence/v1`.

What evidence_info collects for each scope is knowledge/evidence.yml. A controller reads the
evidence of many hosts, so that each may send a bounded size.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from ..documents import knowledge, to_document
from ..findings import ApiaryError, error


@dataclass(frozen=True)
class CommandOutput:
    """One command; ``exit`` is None and ``error`` says why where it did not end by itself."""

    argv: tuple[str, ...]
    exit: int | None
    stdout: str
    stderr: str
    seconds: float
    error: str | None = None


@dataclass(frozen=True)
class Evidence:
    """One host at one time, as module_utils/evidence/gpu.py collected it; nothing is interpreted.

    ``files`` and ``links`` map absolute paths to contents and targets; ``unreadable`` maps those
    that were there and could not be read to the errno's name.
    """

    SCHEMA: ClassVar[str] = "apiary.evidence/v1"

    host: str
    collected_at: str
    collector: str
    commands: dict[str, CommandOutput] = field(default_factory=dict)
    files: dict[str, str] = field(default_factory=dict)
    links: dict[str, str] = field(default_factory=dict)
    unreadable: dict[str, str] = field(default_factory=dict)


GPU = "gpu"


def requested(scopes: Any) -> dict[str, Any]:
    """Return evidence_info's arguments for scopes as a task has them: a list, or with commas.

    None is its default. What is no scope the module refuses.
    """
    if scopes is None:
        scopes = [GPU]
    names = scopes.split(",") if isinstance(scopes, str) else scopes
    return {"scopes": scopes, "sources": sources(names) if isinstance(names, list) else {}}


def sources(scopes: Iterable[Any]) -> dict[str, Any]:
    """Return commands, files and links of scopes, what is common to all among them.

    What is collected of GPUs is apart, as ``gpu``: of these alone the rest is empty.
    """
    facts = knowledge("evidence.yml")
    names = list(scopes)
    chosen = [] if names == [GPU] else [facts["common"]]
    chosen += [scope for name, scope in facts["scopes"].items() if name in names]
    commands: dict[str, list[str]] = {}
    for scope in chosen:
        for name, forms in scope.get("commands", {}).items():
            forms = [forms] if isinstance(forms, str) else forms
            commands[name] = [_expanded(form, facts["words"]) for form in forms]
    patterns = {
        kind: [pattern for scope in chosen for pattern in scope.get(kind, ())]
        for kind in ("files", "links")
    }
    return {"commands": commands, **patterns, **({"gpu": facts["gpu"]} if GPU in names else {})}


def _expanded(form: str, words: dict[str, str]) -> str:
    for word, meaning in words.items():
        form = form.replace(word, meaning)
    return form


# 64 partitions with all their links are below 2 MiB in some 6,000 files.
MOST_BYTES = 8 * 2**20


def bounded(evidence: Any, host: str) -> str:
    """Return evidence as JSON in one line; raise PROBE-SIZE where no host has so much.

    What is no mapping is none: DOC-TYPE.
    """
    if not isinstance(evidence, Mapping):
        allowed = "what evidence_info returns"
        message = f"is {type(evidence).__name__}, expected {allowed}"
        raise error("DOC-TYPE", f"{host}: evidence", message, field="evidence", allowed=allowed)
    text = json.dumps(to_document(evidence), sort_keys=True)
    check_size(len(text), host)
    return text


def check_size(size: int, host: str) -> None:
    """Raise PROBE-SIZE for evidence of more bytes than any host's."""
    if size > MOST_BYTES:
        raise too_large(host, f"{size} bytes, expected at most {MOST_BYTES}")


def too_large(host: str, what: str) -> ApiaryError:
    return error("PROBE-SIZE", host, f"its evidence has {what}", host=host)
