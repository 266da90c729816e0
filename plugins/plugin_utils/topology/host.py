# SPDX-License-Identifier: GPL-3.0-or-later

"""Make a host's topology of its evidence."""

from __future__ import annotations

import dataclasses
import json
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from ..documents import from_document
from ..evidence.types import CommandOutput, Evidence
from ..findings import Finding
from ..gpus import model_of
from . import problems
from .checks import check, listed
from .observation import MOST_DEVICES, Observation
from .readers import amd_smi, cpus, kfd, lspci, pci, rocm_smi, rocminfo
from .readers.cpus import disagreements, numa_nodes
from .readers.marks import clean, why_absent
from .readers.pci import nics
from .readers.text import DamagedJsonError, json_documents
from .reconcile import reconcile
from .types import Mark, Nic, NumaNode, Start, Topology

_TOOLS = {"amd_smi": amd_smi.NAME, "rocm_smi": rocm_smi.NAME, "rocminfo": rocminfo.NAME}
_NO_SUCH_COMMAND = 127
# An older tool that lacks a command or option, and what a guest is not told, are no failures.
_UNSUPPORTED = re.compile(
    r"(?m)^usage:|invalid choice|unrecognized arguments|NOT_SUPPORTED|not supported|is invalid\."
)
_REFUSAL = 400
_CACHED = "_topology"
_NODE_PROPERTIES = re.compile(r"/topology/nodes/\d+/properties$")
_FIGURES = re.compile(r"/run/apiary/(apiary-[a-z0-9-]{1,80}\.service)/figures\.json")
_WORDS = {
    "engine_version": r"[\w.+-]{1,40}",
    "gpu_model": r"[\w -]{1,40}",
    "recipe": r"[0-9a-f]{16}",
}
_GPU = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7](?:#\d{1,3})?")
_MOST_FIGURE = 2**60


def from_evidence(bundle: Evidence | Mapping[str, Any], name: str | None = None) -> Topology:
    """Return the topology of a host from its evidence, parsed or as a document of it.

    KFD sysfs, amd-smi, rocm-smi and rocminfo are joined by bus address and KFD node; any one of
    the first three is enough. ``name`` is the file's, for findings about the document itself,
    which are raised as ApiaryError (DOC-…). Of one parsed Evidence it is made once.
    """
    evidence = bundle if isinstance(bundle, Evidence) else evidence_of(bundle, name)
    cached: Topology | None = vars(evidence).get(_CACHED)
    if cached is None:
        cached = _topology(evidence)
        # All roles of a host that are decided from this evidence need it; it is frozen, as this is.
        object.__setattr__(evidence, _CACHED, cached)
    return cached


def _topology(evidence: Evidence) -> Topology:
    host = evidence.host
    parsed, notes = cpus.numactl_nodes(_output(evidence, "numactl"), host)
    nodes = numa_nodes(evidence.files, _output(evidence, "lscpu"), parsed)
    bus, slots = pci.parse(evidence.files, evidence.links)
    if not bus.devices:
        bus = lspci.parse([_output(evidence, lspci.NAME)], host)
    functions = frozenset(device.bdf for device in bus.devices if device.bdf)
    kernel = kfd.parse(evidence.files, [node.id for node in nodes], functions)
    tools = [
        _tool(evidence, "amd_smi", amd_smi.parse),
        _tool(evidence, "rocm_smi", rocm_smi.parse),
        _tool(evidence, "rocminfo", rocminfo.parse),
    ]
    hidden = _hidden_nodes(evidence)
    owned, others = _owned(bus, slots, [kernel, *tools], hidden, host)
    notes += tuple(pci.failed_probes(_output(evidence, "amdgpu_log"), host))
    notes += tuple(
        problems.finding("TOPO-SOURCES-DISAGREE", host, text)
        for text in disagreements(nodes, parsed)
    )
    topology = finished(
        host,
        [kernel, *tools],
        bus=owned,
        slots=slots,
        nodes=nodes,
        interfaces=nics(evidence.files, evidence.links),
        sources=_sources(evidence, kernel, bus),
        hidden=hidden > 0,
        notes=[
            *notes,
            *others,
            *_silent_tools(evidence, [kernel, *tools]),
            *_absent_tools(evidence),
        ],
    )
    return dataclasses.replace(topology, starts=starts_of(evidence.files))


def evidence_of(bundle: Mapping[str, Any], name: str | None = None) -> Evidence:
    """Return a document of evidence, parsed."""
    return from_document(Evidence, bundle, name or str(bundle.get("host") or "evidence"))


def finished(
    host: str,
    observations: Sequence[Observation],
    bus: Observation | None = None,
    slots: Sequence[pci.Slot] = (),
    nodes: tuple[NumaNode, ...] = (),
    interfaces: tuple[Nic, ...] = (),
    sources: tuple[str, ...] = (),
    whole: bool = True,
    hidden: bool = False,
    notes: Iterable[Finding] = (),
) -> Topology:
    """Return the reconciled topology with every finding, and the reason where it has no GPU.

    ``whole`` is False where a capture is cut, ``hidden`` True where a container sees a part.
    """
    topology, physical = reconcile(host, observations, bus, nodes, sources, whole, hidden)
    topology = dataclasses.replace(topology, nics=interfaces)
    everything = whole and not hidden
    findings = [*topology.findings, *check(topology, slots, everything, physical), *notes]
    if not topology.gpus:
        findings.append(_no_gpus(host, observations, slots))
    distinct = tuple(dict.fromkeys(findings))
    marks = tuple(
        Mark(place, parts) for place, finding in enumerate(distinct) if (parts := finding.parts)
    )
    return dataclasses.replace(topology, findings=distinct, marks=marks)


def _output(evidence: Evidence, command: str) -> str:
    """Return the first standard output of a command and its alternatives that isn't empty."""
    outputs = (
        clean(output.stdout)
        for name, output in evidence.commands.items()
        if re.fullmatch(rf"{command}(?:_\d+)?", name)
    )
    return next((text for text in outputs if text.strip()), "")


def _no_gpus(host: str, observations: Sequence[Observation], slots: Sequence[pci.Slot]) -> Finding:
    absences = dict.fromkeys(
        observation.absence for observation in observations if observation.absence
    )
    # Two sources often say the same in a longer and a shorter way.
    reasons = [
        text for text in absences if not any(text != more and text in more for more in absences)
    ]
    names = " and ".join(observation.source for observation in observations)
    if not reasons and not slots:
        message = f"the output of {names} has nothing of GPUs that a topology is made of"
        return problems.finding("TOPO-NO-GPU-DATA", host, message)
    message = "; ".join(reasons) or f"the output of {names} lists no GPU"
    if slots:
        drivers = sorted({slot.driver for slot in slots if slot.driver})
        bound = f"bound to {listed(drivers)}" if drivers else "without a driver"
        message = f"{len(slots)} AMD GPUs are on the PCI bus, {bound}; {message}"
    return problems.finding("TOPO-NO-GPUS", host, message)


def _tool(
    evidence: Evidence, prefix: str, parse: Callable[[Iterable[str], str], Observation]
) -> Observation:
    """Return what one tool's commands say; stdout decides, whatever the exit code."""
    texts: list[str] = []
    findings: list[Finding] = []
    absence: str | None = None
    for output in _attempts(evidence, prefix):
        absence = absence or why_absent(_TOOLS[prefix], clean(output.stderr))
        text, shown = clean(output.stdout), " ".join(output.argv)
        if len(text) <= _REFUSAL and "is invalid." in text:
            continue  # an amd-smi that lacks the command
        if output.error not in (None, "not found") and not output.error.startswith("not run"):
            findings.append(problems.tool_failed(evidence.host, shown, str(output.error)))
        try:
            json_documents(text)
        except DamagedJsonError as problem:
            findings.append(
                problems.tool_failed(evidence.host, shown, f"its JSON is cut: {problem}")
            )
        else:
            texts.append(text)
    seen = parse(texts, evidence.host)
    return dataclasses.replace(
        seen,
        findings=(*findings, *seen.findings),
        absence=None if seen.devices else seen.absence or absence,
    )


def _silent_tools(evidence: Evidence, observations: Sequence[Observation]) -> list[Finding]:
    """Return which installed tools failed without an answer, and what they said instead.

    Where nothing sees a GPU, TOPO-NO-GPUS has the reasons that are known.
    """
    seen = any(observation.devices for observation in observations)
    findings = []
    for prefix, tool in _TOOLS.items():
        failed: dict[str, list[str]] = defaultdict(list)
        for output in _attempts(evidence, prefix):
            message = _complaint(output)
            if message and (seen or not why_absent(tool, clean(output.stderr))):
                failed[message].append(" ".join(output.argv))
        for message, shown in failed.items():
            more = f" (and {len(shown) - 1} more)" if len(shown) > 1 else ""
            findings.append(problems.tool_failed(evidence.host, shown[0] + more, message))
        (own,) = (observation for observation in observations if observation.source == tool)
        if seen and own.absence and not failed:
            findings.append(problems.tool_failed(evidence.host, own.source, own.absence))
    return findings


def _complaint(output: CommandOutput) -> str | None:
    """Return the last line of what a command that printed nothing else ended with."""
    if output.error or output.stdout.strip() or output.exit in (None, _NO_SUCH_COMMAND):
        return None
    text = clean(output.stderr).strip()
    if _UNSUPPORTED.search(text) or not (text or output.exit):
        return None
    if not text:
        ended = f"signal {-output.exit}" if output.exit < 0 else f"exit code {output.exit}"
        return f"it ended with {ended} and printed nothing"
    return text.splitlines()[-1].strip()[-200:]


def _attempts(evidence: Evidence, prefix: str) -> list[CommandOutput]:
    """Return the outputs of a tool's commands; where a simpler form answered, only that one."""
    forms: dict[str, list[CommandOutput]] = defaultdict(list)
    for name, output in evidence.commands.items():
        if name.startswith(prefix) and "_version" not in name:
            forms[re.sub(r"_\d+$", "", name)].append(output)
    retained = []
    for outputs in forms.values():
        last = outputs[-1]
        refused = not last.stdout.strip() or '"error"' in last.stdout[:400]
        retained += outputs if refused else [last]
    return retained


def _hidden_nodes(evidence: Evidence) -> int:
    """Return how many KFD nodes exist whose properties may not be read: not in this cgroup."""
    empty = [path for path, content in evidence.files.items() if not content.strip()]
    return sum(bool(_NODE_PROPERTIES.search(path)) for path in (*empty, *evidence.unreadable))


def _owned(
    bus: Observation,
    slots: Sequence[pci.Slot],
    tools: Sequence[Observation],
    hidden: int,
    host: str,
) -> tuple[Observation, list[Finding]]:
    """Return the GPUs on the bus that are this host's to serve with, and notes on the others."""
    named = {device.bdf for tool in tools for device in tool.devices if device.bdf}
    named |= {f"{address[:-1]}0" for address in named}
    drivers = {slot.bdf: slot.driver for slot in slots}
    kernel_sees_gpus = bool(tools[0].devices)
    retained, notes = [], []
    for device in bus.devices:
        driver = drivers.get(device.bdf or "")
        model, _virtual = model_of(device.device_id)
        if device.bdf in named:
            retained.append(device)
        elif not any(tool.devices for tool in tools):
            continue  # TOPO-NO-GPUS tells of them
        elif driver not in (None, "amdgpu"):
            notes.append(f"GPU {device.bdf} is bound to {driver}")
        elif model is None:
            notes.append(f"GPU {device.bdf} (id {device.device_id}) is no Instinct GPU")
        elif hidden or not kernel_sees_gpus:
            notes.append(f"GPU {device.bdf} ({model}) is not passed to this container")
        else:
            retained.append(device)
    findings = [problems.finding("TOPO-GPU-LEFT-OUT", host, listed(notes))] if notes else []
    return dataclasses.replace(bus, devices=tuple(retained)), findings


def _sources(evidence: Evidence, kernel: Observation, bus: Observation) -> tuple[str, ...]:
    driver = evidence.files.get("/sys/module/amdgpu/version", "").strip()
    names = []
    if kernel.devices:
        names.append("KFD sysfs" + (f" (amdgpu {driver})" if driver else ""))
    if bus.devices:
        names.append(bus.source)
    for name, prefix, version in (
        (amd_smi.NAME, "amd_smi", amd_smi.version),
        (rocm_smi.NAME, "rocm_smi", rocm_smi.version),
        (rocminfo.NAME, "rocminfo", rocminfo.version),
        (cpus.NUMACTL, "numactl", lambda text: None),
    ):
        outputs = [
            output
            for command, output in evidence.commands.items()
            if command.startswith(prefix) and output.error != "not found"
        ]
        if outputs:
            text = "\n".join(output.stdout for output in outputs)
            names.append(" ".join(filter(None, (name, version(text)))))
    return tuple(names)


def _absent_tools(evidence: Evidence) -> list[Finding]:
    prefixes = ("amd_smi", "rocm_smi")
    ran = any(
        command.startswith(prefixes) and output.error != "not found"
        for command, output in evidence.commands.items()
    )
    if ran:
        return []
    message = "neither amd-smi nor rocm-smi is installed; sysfs alone was read"
    return [problems.finding("TOPO-TOOLS-ABSENT", evidence.host, message)]


def starts_of(files: Mapping[str, str]) -> tuple[Start, ...]:
    """Return what engines measured of themselves, by unit; what no supervisor writes is none."""
    found = ((_FIGURES.fullmatch(path), files[path]) for path in sorted(files))
    starts = [_start(match[1], text) for match, text in found if match]
    return tuple(start for start in starts if start is not None)[:MOST_DEVICES]


def _start(unit: str, text: str) -> Start | None:
    try:
        facts = json.loads(text)
        words = {name: facts[name] for name in _WORDS}
        if not all(re.fullmatch(pattern, words[name]) for name, pattern in _WORDS.items()):
            return None
        gpus = tuple(key for key in facts["gpus"] if _GPU.fullmatch(key))
        names = ("kv_tokens", "weights_bytes_per_gpu")
        at, *figures = _numbers(facts["at"], *(facts["actual"].get(name) for name in names))
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return None
    if at is None or len(gpus) > MOST_DEVICES:
        return None
    return Start(
        unit, at, **words, gpus=gpus, kv_tokens=figures[0], weights_bytes_per_gpu=figures[1]
    )


def _numbers(*values: Any) -> list[int | None]:
    return [
        value
        if isinstance(value, int) and not isinstance(value, bool) and 0 < value < _MOST_FIGURE
        else None
        for value in values
    ]
