# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Evidence, a capture of one tool, or a topology document in; a topology out."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Mapping
from pathlib import PurePath
from typing import Any

from ..documents import from_document
from ..findings import ApiaryError, Finding
from . import problems
from .checks import listed
from .host import finished, from_evidence
from .observation import MOST_DEVICES, Observation
from .readers import (
    amd_smi,
    bandwidth_test,
    kfd,
    lspci,
    numactl,
    rocm_smi,
    rocm_smi_text,
    rocminfo,
    xgmi_sysfs,
)
from .readers.text import DamagedJsonError, clean, elided, json_documents, labelled
from .sound import check_sound
from .types import NumaNode, Topology

__all__ = ["from_capture", "from_evidence", "read"]

_FIRST_GPU = re.compile(r"^[ \t]*GPU", re.MULTILINE)
_FLAT_FILE = re.compile(r"^==> (\S+) <==$", re.MULTILINE)
_VALUE = re.compile(r"^(?:\w+ )?\d+$", re.MULTILINE)
_CSV = re.compile(r"\A(?:.*\n){0,4}?(?:device|gpu|gpu_id|name),[\w ().,/%#:-]+\n[\w.:-]+,", re.I)
_COMMAND = re.compile(r"^(?:.*[$#%>] ?)?(?:sudo )?(?:\S*/)?(?:rocm|amd)-smi(?: .*)?$")
# What people type, with their prompt.
_TYPED = 1000
_SELECTION = re.compile(
    r" (?:-g|--gpu|-d|--device)[ =]((?!all\b)(?:[0-9a-fA-F][\w:.-]* ?)+)|(\| *\w+)"
)
# Printed by tools that say something of GPUs, and not what a topology is made of.
_FOREIGN = (
    (re.compile(r"NVIDIA-SMI|nvidia-smi"), "nvidia-smi's, which knows nothing of AMD GPUs"),
    (re.compile(r"^GPU Id +UUID +Accessibility", re.M), "amd-ctk's, which prints no addresses"),
    (
        re.compile(r'"kind": *"ResourceSlice|productName.{0,200}AMD|"pciAddr'),
        "of a Kubernetes resource",
    ),
    (re.compile(r"ROCm Validation Suite|^\[RESULT\]", re.M), "the ROCm Validation Suite's"),
)


def read(text: str, name: str) -> Topology:
    """Return the topology that a file holds: evidence, a topology document or a capture.

    ``name`` is the file's, for findings. Raises ApiaryError with one finding, TOPO-UNRECOGNISED
    or TOPO-DAMAGED-JSON, or DOC-… where the file is one of our documents and wrong.
    """
    cleaned = clean(text)
    document = _document(cleaned, name)
    if document is not None and document.get("schema") == Topology.SCHEMA:
        topology = from_document(Topology, document, name)
        check_sound(topology, name)
        return topology
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

    Raises ApiaryError with TOPO-UNRECOGNISED, TOPO-DAMAGED-JSON, TOPO-CSV or, where several
    tasks wrote it, TOPO-SEVERAL-OUTPUTS.
    """
    cleaned = clean(text)
    tasks = labelled(cleaned)
    if len(tasks) > 1:
        message = f"the output of {listed(list(tasks))} is in it"
        raise ApiaryError(problems.several(name, message))
    host = PurePath(name).stem.removesuffix(".tar") or name
    observation, source, nodes = _observed(cleaned, name)
    several = [
        finding for finding in observation.findings if finding.code == "TOPO-SEVERAL-OUTPUTS"
    ]
    if several:
        raise ApiaryError(several[0])
    findings = [
        *(_judged_end(finding, cleaned) for finding in observation.findings),
        *_selection(cleaned, len(observation.devices), name),
        *_gaps(observation, name),
    ]
    # What somebody left out before the first GPU is not about GPUs.
    first = _FIRST_GPU.search(cleaned)
    if elided(cleaned[first.start() if first else 0 :]):
        findings.append(problems.truncated(name, "lines were left out ('...')"))
    part = {"TOPO-TRUNCATED", "TOPO-SELECTED", "TOPO-GPU-LEFT-OUT"}
    whole = not part & {item.code for item in findings}
    observation = dataclasses.replace(observation, findings=tuple(findings))
    return finished(host, [observation], nodes=nodes, sources=(source,), whole=whole)


def _observed(text: str, name: str) -> tuple[Observation, str, tuple[NumaNode, ...]]:
    """Return what the one tool that printed text says, its name, and NUMA nodes if it has them."""
    documents = _json(text, name)
    if _FLAT_FILE.search(text) and kfd.present(flat := _flat_files(text, name)):
        notes = [problems.truncated(name, lack)] if (lack := kfd.holes(flat)) else []
        if hidden := kfd.hidden(flat):
            message = (
                f"KFD nodes {listed(sorted(map(str, hidden)))} are not given to this container"
            )
            notes.append(problems.finding("TOPO-GPU-LEFT-OUT", name, message))
        return dataclasses.replace(kfd.parse(flat), findings=tuple(notes)), "KFD sysfs", ()
    if any(rocm_smi.recognise_json(item) for item in documents):
        return rocm_smi.parse([text], name), rocm_smi.NAME, ()
    if any(amd_smi.recognise_json(item) for item in documents):
        return amd_smi.parse([text], name), amd_smi.NAME, ()
    if _CSV.match(text):
        raise ApiaryError(problems.finding("TOPO-CSV", name, "the output is comma-separated"))
    for recognise, parse, source in _TEXTS:
        if recognise(text):
            return parse(text, name), source, ()
    if rocm_smi.recognise(text):
        observation = rocm_smi.parse([text], name)
        return observation, _versioned(rocm_smi.NAME, rocm_smi.version(text)), ()
    if amd_smi.recognise(text):
        return amd_smi.parse([text], name), _versioned(amd_smi.NAME, amd_smi.version(text)), ()
    if numactl.recognise(text):
        nodes, findings = numactl.parse(text, name)
        return Observation(numactl.NAME, findings=findings), numactl.NAME, nodes
    if lspci.recognise(text):
        return lspci.parse([text], name), lspci.NAME, ()
    foreign = next((whose for pattern, whose in _FOREIGN if pattern.search(text)), None)
    raise ApiaryError(
        problems.unrecognised(
            name,
            f"this output is {foreign}"
            if foreign
            else "this is neither evidence nor a topology nor the output of rocm-smi, amd-smi, "
            "rocminfo, rocm_bandwidth_test, numactl or lspci",
        )
    )


_TEXTS: tuple[tuple[Callable[[str], bool], Callable[[str, str], Observation], str], ...] = (
    (rocminfo.recognise, lambda text, name: rocminfo.parse([text], name), rocminfo.NAME),
    (bandwidth_test.recognise, bandwidth_test.parse, bandwidth_test.NAME),
    (kfd.recognise, lambda text, name: kfd.parse_bare(text), "KFD sysfs"),
    (xgmi_sysfs.recognise, xgmi_sysfs.parse, xgmi_sysfs.NAME),
)


def _gaps(observation: Observation, name: str) -> list[Finding]:
    """Return a finding where numbers are missing: every tool numbers what it sees from 0 up."""
    numbers = {device.index for device in observation.devices if device.index is not None}
    # A number that no host has must not count what is below it.
    missing = sorted(set(range(min(max(numbers, default=-1) + 1, MOST_DEVICES))) - numbers)
    if not missing:
        return []
    return [
        problems.truncated(name, f"GPU {listed([str(number) for number in missing])} is not in it")
    ]


def _selection(text: str, count: int, name: str) -> list[Finding]:
    """Return a finding where the prompt in a capture shows that not everything was asked for."""
    for command in text.splitlines():
        typed = "-smi" in command and len(command) <= _TYPED and _COMMAND.match(command)
        match = _SELECTION.search(command) if typed else None
        if match is None:
            continue
        requested = len((match.group(1) or "").split())
        if requested > count:
            return [
                problems.truncated(name, f"{requested} GPUs were asked for; {count} are in view")
            ]
        message = f"the command was `{command.strip()[-120:]}`"
        return [problems.finding("TOPO-SELECTED", name, message)]
    return []


def _flat_files(text: str, name: str) -> dict[str, str]:
    """Return the files of a dump as `head` prints several: `==> path <==`, then the content.

    Raises ApiaryError where one path is in it twice with different values: two hosts' dumps.
    """
    parts = _FLAT_FILE.split(text)
    files: dict[str, str] = {}
    for path, content in zip(parts[1::2], parts[2::2], strict=True):
        if set(_VALUE.findall(files.setdefault(path, content))) != set(_VALUE.findall(content)):
            raise ApiaryError(problems.several(name, f"{path} is in it twice with other values"))
    return files


def _judged_end(finding: Finding, text: str) -> Finding:
    """Return a missing end as what it is: an error where nothing else shows that all is there."""
    if finding.code == "TOPO-NO-END" and (rocm_smi_text.cut(text) or rocminfo.cut(text)):
        return problems.truncated(finding.subject, finding.message)
    return finding


def _versioned(name: str, version: str | None) -> str:
    return f"{name} {version}" if version else name
