# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Evidence, a capture of one tool, or a topology document in; a topology out."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from pathlib import PurePath
from typing import Any

from ansible_collections.apiary.instinct.plugins.plugin_utils.documents import from_document
from ansible_collections.apiary.instinct.plugins.plugin_utils.findings import ApiaryError
from ansible_collections.apiary.instinct.plugins.plugin_utils.topology import (
    amd_smi,
    kfd,
    problems,
    rocm_smi,
    rocminfo,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.topology.host import (
    finished,
    from_evidence,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.topology.text import (
    DamagedJsonError,
    clean,
    elided,
    json_documents,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.topology.types import Topology

__all__ = ["from_capture", "from_evidence", "read"]

_FIRST_GPU = re.compile(r"^\s*GPU", re.MULTILINE)
_FLAT_FILE = re.compile(r"^==> (\S+) <==$", re.MULTILINE)


def read(text: str, name: str) -> Topology:
    """Return the topology that a file holds: evidence, a topology document or a capture.

    ``name`` is the file's, for findings. Raises ApiaryError with one finding, TOPO-UNRECOGNISED
    or TOPO-DAMAGED-JSON, or DOC-… where the file is one of our documents and wrong.
    """
    cleaned = clean(text)
    document = _document(cleaned, name)
    if document is not None and document.get("schema") == Topology.SCHEMA:
        return from_document(Topology, document, name)
    if document is not None and str(document.get("schema", "")).startswith("apiary."):
        return from_evidence(document, name)
    return from_capture(text, name)


def _document(text: str, name: str) -> Mapping[str, Any] | None:
    """Return the one JSON object that text is, if it is one of ours."""
    if '"schema"' not in text or '"apiary.' not in text:
        return None
    documents = _json(text, name)
    ours = [item for item in documents if isinstance(item, Mapping) and "schema" in item]
    return ours[0] if len(ours) == 1 else None


def _json(text: str, name: str) -> list[Any]:
    try:
        return json_documents(text)
    except DamagedJsonError as problem:
        raise ApiaryError(
            problems.finding(
                "TOPO-DAMAGED-JSON", name, f"JSON begins and is cut or malformed: {problem}"
            )
        ) from problem


def from_capture(text: str, name: str) -> Topology:
    """Return what the output of one tool alone can say; it recognises which tool wrote it.

    Raises ApiaryError with TOPO-UNRECOGNISED, TOPO-DAMAGED-JSON or, where the tool printed an
    error and nothing else, TOPO-TOOL-FAILED.
    """
    cleaned = clean(text)
    documents = _json(cleaned, name)
    host = PurePath(name).stem or name
    if _FLAT_FILE.search(cleaned) and kfd.present(flat := _flat_files(cleaned)):
        observation, source = kfd.parse(flat), "KFD sysfs"
        if lost := kfd.dangling(flat):
            cut = problems.truncated(name, f"links lead to {len(lost)} nodes that are not in it")
            observation = dataclasses.replace(observation, findings=(cut,))
    elif any(rocm_smi.recognise_json(item) for item in documents):
        observation, source = rocm_smi.parse([cleaned], name), rocm_smi.NAME
    elif any(amd_smi.recognise_json(item) for item in documents):
        observation, source = amd_smi.parse([cleaned], name), amd_smi.NAME
    elif rocminfo.recognise(cleaned):
        observation, source = rocminfo.parse(cleaned), rocminfo.NAME
    elif rocm_smi.recognise(cleaned):
        observation, source = rocm_smi.parse([cleaned], name), rocm_smi.NAME
        source = _versioned(source, rocm_smi.version(cleaned))
    elif amd_smi.recognise(cleaned):
        observation, source = amd_smi.parse([cleaned], name), amd_smi.NAME
        source = _versioned(source, amd_smi.version(cleaned))
    else:
        raise ApiaryError(
            problems.unrecognised(
                name,
                "this is neither evidence nor a topology nor the output of rocm-smi, amd-smi or "
                "rocminfo",
            )
        )
    # What somebody left out before the first GPU is not about GPUs.
    first = _FIRST_GPU.search(cleaned)
    if elided(cleaned[first.start() if first else 0 :]):
        cut = problems.truncated(name, "lines were left out ('...')")
        observation = dataclasses.replace(observation, findings=(*observation.findings, cut))
    whole = not any(item.code == "TOPO-TRUNCATED" for item in observation.findings)
    return finished(host, [observation], sources=(source,), whole=whole)


def _flat_files(text: str) -> dict[str, str]:
    """Return the files of a dump as `head` prints several: `==> path <==`, then the content."""
    parts = _FLAT_FILE.split(text)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def _versioned(name: str, version: str | None) -> str:
    return f"{name} {version}" if version else name
