# SPDX-License-Identifier: GPL-3.0-or-later

"""Evidence, a capture of tools, or a topology document in; a topology out."""

from __future__ import annotations

import dataclasses
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import PurePath

from ..documents import from_document
from ..findings import ApiaryError, Finding
from ..gpus import gpu_facts, model_of
from . import problems
from .checks import listed
from .host import finished, from_evidence
from .observation import MOST_DEVICES, Device, Observation
from .problems import finding
from .readers import (
    amd_smi,
    bandwidth_test,
    cpus,
    kfd,
    lspci,
    marks,
    pci,
    rocm_smi,
    rocm_smi_text,
    rocminfo,
)
from .readers.text import DamagedJsonError, elided
from .recognise import Recognition, recognise
from .types import NumaNode, Topology

__all__ = ["captured", "from_evidence", "read"]

_FIRST_GPU = re.compile(r"^[ \t]*GPU", re.MULTILINE)
# What tools print on the NUMA nodes of GPUs; the kernel's tree has a link to them.
_NUMA = re.compile(
    r"\(Topology\) Numa|^ *NUMA:|\"numa\"|nodes/\d|io_links_count|D/D ", re.MULTILINE
)
_FLAT_FILE = re.compile(r"^==> (\S+) <==$", re.MULTILINE)
_VALUE = re.compile(r"^(?:\w+ )?\d+$", re.MULTILINE)
_PAIRS = re.compile(r"between two GPUs|TABLE:|LINK_TYPE|io_links/|D/D| Bandwidth =")
_MARKED = re.compile(r"^==>", re.MULTILINE)
_SELECTION = re.compile(
    r" (?:-g|--gpu|-d|--device)[ =]((?!all\b)(?:[0-9a-fA-F][\w:.-]* ?)+)|(\| *\w+)"
)


def read(text: str, name: str) -> Topology:
    """Return the topology that a file holds: evidence, a topology document or a capture.

    ``name`` is the file's, for findings. Raises ApiaryError with one finding: those of
    `recognise`, or DOC-… where the file is one of our documents and wrong.
    """
    recognised = recognise(text, name)
    document = recognised.document
    if document is None:
        return captured(recognised, name)
    if document["schema"] == Topology.SCHEMA:
        topology = from_document(Topology, document, name)
        check_sound(topology, name)
        return topology
    return from_evidence(document, name)


def captured(recognised: Recognition, name: str) -> Topology:
    """Return what the outputs of tools say of their host.

    Raises ApiaryError with TOPO-SEVERAL-OUTPUTS where they are of several.
    """
    host = PurePath(name).stem.removesuffix(".tar") or name
    nodes, notes = cpus.numactl_nodes("".join(recognised.texts(marks.NUMACTL)), name)
    text = "".join(f"{line.text}\n" for line in recognised.lines)
    notes += tuple(pci.failed_probes(text, name))
    observations = _observations(recognised, name, nodes)
    bus = [item for item in observations if item.source == lspci.NAME]
    if len(observations) > 1:
        observations = [item for item in observations if item not in bus]
    findings = [*notes, *(finding for item in observations for finding in item.findings)]
    for one in findings:
        if one.code == "TOPO-SEVERAL-OUTPUTS":
            raise ApiaryError(one)
    most = max((len(item.devices) for item in (*observations, *bus)), default=0)
    cuts = [
        *_selection(recognised, most, name),
        *(gap for item in observations for gap in _gaps(item, name)),
    ]
    # What somebody left out before the first GPU is not about GPUs.
    first = _FIRST_GPU.search(text)
    if elided(text[first.start() if first else 0 :]):
        cuts.append(problems.truncated(name, "lines were left out ('...')"))
    codes = {item.code for item in (*findings, *cuts)}
    whole = not codes & {"TOPO-TRUNCATED", "TOPO-SELECTED", "TOPO-GPU-LEFT-OUT"}
    if whole and "TOPO-NO-END" not in codes:
        cuts += _open_lists(recognised, [*observations, *bus], most, name)
    if not observations:
        observations = [Observation(cpus.NUMACTL)]
    observations[0] = dataclasses.replace(
        observations[0], findings=(*notes, *observations[0].findings, *cuts)
    )
    topology = finished(
        host,
        observations,
        bus=bus[0] if bus and bus[0] not in observations else None,
        nodes=nodes,
        sources=_sources(recognised),
        whole=whole,
    )
    if _NUMA.search(text):
        return topology
    notes = tuple(map(_numa_not_shown, topology.findings))
    return dataclasses.replace(topology, findings=notes)


def _numa_not_shown(finding: Finding) -> Finding:
    """Return a missing NUMA node as what it is where no output has lines on them."""
    if finding.code != "TOPO-NUMA-UNKNOWN":
        return finding
    message = "nothing in it tells the NUMA nodes of GPUs"
    return problems.finding("TOPO-NUMA-NOT-SHOWN", finding.subject, message, parts=finding.parts)


def _open_lists(
    recognised: Recognition, observations: Sequence[Observation], most: int, name: str
) -> list[Finding]:
    """Return a note where neither a last line nor a table of pairs nor a board shows the end."""
    ended = {output.tool for output in recognised.outputs if output.ended}
    alone = most == 1 and any(_PAIRS.search(output.text) for output in recognised.outputs)
    largest = [item for item in observations if len(item.devices) == most]
    if not most or alone or any(item.paths or item.source in ended for item in largest):
        return []
    if any(_full_boards(item.devices) for item in largest):
        return []
    tools = " and ".join(dict.fromkeys(item.source for item in largest))
    all_ = "the GPU in it is all" if most == 1 else f"the {most} GPUs in it are all"
    message = f"the list of {tools} has no end that shows whether {all_}"
    return [problems.finding("TOPO-OPEN-LIST", name, message)]


def _full_boards(devices: Sequence[Device]) -> bool:
    """Return whether these are all the GPUs of boards, each once."""
    models = Counter(model_of(device.device_id) for device in devices)
    addresses = {device.bdf for device in devices if device.bdf}
    return len(addresses) == len(devices) and all(
        model is not None and not virtual and (mesh := gpu_facts(model).links.mesh) and not n % mesh
        for (model, virtual), n in models.items()
    )


def _sources(recognised: Recognition) -> tuple[str, ...]:
    versions = {marks.ROCM_SMI: rocm_smi.version, marks.AMD_SMI: amd_smi.version}
    names = []
    for tool in sorted(recognised.tools, key=marks.ORDER.index):
        version = versions[tool]("".join(recognised.texts(tool))) if tool in versions else None
        names.append(f"{tool} {version}" if version else tool)
    return tuple(names)


def _observations(
    recognised: Recognition, name: str, nodes: Sequence[NumaNode]
) -> list[Observation]:
    """Return what each tool says of GPUs, in order of trust."""
    readers: Mapping[str, Callable[[list[str]], Observation]] = {
        marks.KFD: lambda texts: _kfd("".join(texts), name, nodes),
        marks.AMD_SMI: lambda texts: amd_smi.parse(texts, name, one_file=True),
        marks.ROCM_SMI: lambda texts: rocm_smi.parse(texts, name, one_file=True),
        marks.ROCMINFO: lambda texts: rocminfo.parse(texts, name),
        marks.BANDWIDTH_TEST: lambda texts: bandwidth_test.parse("".join(texts), name),
        marks.XGMI_SYSFS: lambda texts: kfd.parse_rows("".join(texts), name),
        marks.LSPCI: lambda texts: lspci.parse(texts, name),
    }
    result = []
    for tool, parse in readers.items():
        texts = recognised.texts(tool)
        if texts:
            try:
                seen = parse(texts)
            except DamagedJsonError as problem:
                message = f"JSON begins and is cut or malformed: {problem}"
                refusal = problems.finding("TOPO-DAMAGED-JSON", name, message)
                raise ApiaryError(refusal) from problem
            ends = [_judged_end(finding, tool, "".join(texts)) for finding in seen.findings]
            result.append(dataclasses.replace(seen, findings=tuple(ends)))
    return result


def _kfd(text: str, name: str, nodes: Sequence[NumaNode]) -> Observation:
    """Return what a dump of the driver's tree says, or the contents of its files alone."""
    flat = _flat_files(text, name)
    if len(_MARKED.findall(text)) > len(_FLAT_FILE.findall(text)):
        cut = problems.truncated(name, "the name of a file ('==>') is cut or damaged")
        return Observation(kfd.NAME, findings=(cut,))
    if not kfd.present(flat):
        return kfd.parse_bare(text, name)
    notes = [problems.truncated(name, lack)] if (lack := kfd.holes(flat)) else []
    if hidden := kfd.hidden(flat):
        message = f"KFD nodes {listed(sorted(map(str, hidden)))} are not given to this container"
        notes.append(problems.finding("TOPO-GPU-LEFT-OUT", name, message))
    seen = kfd.parse(flat, [node.id for node in nodes])
    return dataclasses.replace(seen, findings=tuple(notes))


def _gaps(seen: Observation, name: str) -> list[Finding]:
    """Return findings where printed numbers prove more GPUs or partitions than there are.

    Every tool numbers what it sees from 0 up, and so does HIP; partitions count within their GPU.
    """
    count = len(seen.devices)
    numbers = {device.index for device in seen.devices if device.index is not None}
    # A number that no host has must not count what is below it.
    missing = sorted(set(range(min(max(numbers, default=-1) + 1, MOST_DEVICES))) - numbers)
    if missing:
        absent = listed([str(number) for number in missing])
        return [problems.truncated(name, f"GPU {absent} is not in it")]
    ordinal = max((device.hip_ordinal or 0 for device in seen.devices), default=0)
    if ordinal >= max(count, 1):
        message = f"HIP id {ordinal} shows that there are {ordinal + 1} GPUs; {count} are in it"
        return [problems.truncated(name, message)]
    partitions: dict[str, list[int]] = {}
    for device in seen.devices:
        if device.bdf is not None and device.partition is not None:
            partitions.setdefault(device.bdf[:-1], []).append(device.partition)
    short = [each for each in partitions.items() if max(each[1]) >= len(each[1])]
    if short:
        (address, ids), *_others = short
        message = f"partition {max(ids)} of {address}0 is in it and not all before it"
        return [problems.truncated(name, message)]
    return []


def _selection(recognised: Recognition, count: int, name: str) -> list[Finding]:
    """Return a finding where a command in a capture selects GPUs or lines."""
    for command in recognised.commands:
        match = _SELECTION.search(command.text) if "-smi" in command.text else None
        if match is None:
            continue
        requested = len((match.group(1) or "").split())
        if requested > count:
            return [
                problems.truncated(name, f"{requested} GPUs were selected; {count} are in view")
            ]
        message = f"the command was `{command.text[-120:]}`"
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


def _judged_end(finding: Finding, tool: str, text: str) -> Finding:
    """Return a missing end as what it is: an error where nothing else shows that all is there."""
    cut = marks.cut(tool, text) and not (tool == marks.ROCM_SMI and rocm_smi_text.closed(text))
    if finding.code == "TOPO-NO-END" and cut:
        return problems.truncated(finding.subject, finding.message)
    return finding


def check_sound(topology: Topology, subject: str) -> None:
    """Refuse GPUs that are there twice and links that lead nowhere: ApiaryError TOPO-INVALID."""
    problems = list(_problems(topology))
    if problems:
        more = f" (and {len(problems) - 1} more such)" if len(problems) > 1 else ""
        raise ApiaryError(finding("TOPO-INVALID", subject, problems[0] + more))


def _problems(topology: Topology) -> Iterator[str]:
    seen = Counter((gpu.bdf, gpu.partition) for gpu in topology.gpus if gpu.bdf is not None)
    for (address, partition), count in seen.items():
        if count > 1:
            yield f"GPU {address} partition {partition} is there {count} times"
    keys = topology.by_key
    pairs: set[tuple[str, str]] = set()
    for link in topology.links:
        name = f"the link {link.a} – {link.b}"
        pair = (link.a, link.b) if link.a < link.b else (link.b, link.a)
        if link.a not in keys or link.b not in keys:
            yield f"{name} ends at no GPU of the host"
        elif link.a == link.b:
            yield f"{name} leads back to where it begins"
        elif pair in pairs:
            yield f"{name} is there twice"
        pairs.add(pair)
        if min(link.weight or 0, link.hops or 0, *(link.bandwidth_mb_s or (0,))) < 0:
            yield f"{name} has a negative number"
