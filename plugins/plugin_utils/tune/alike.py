# SPDX-License-Identifier: GPL-3.0-or-later

"""Whether hosts are alike enough for one's trial to stand for another's: by what they are.

How alike they measure is for the first round of a tuning to show.
"""

from __future__ import annotations

import fnmatch
import json
import re
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ..documents import from_document, knowledge
from ..evidence.types import Evidence
from ..findings import Finding
from ..topology.host import from_evidence
from ..topology.types import Topology

CODE = "TRIAL-HOSTS-DIFFER"


def alike(
    evidence: Mapping[str, Mapping[str, Any]],
    engines: Mapping[str, str] | None = None,
    neighbours: Mapping[str, Sequence[Mapping[str, Any]]] | None = None,
) -> tuple[Finding, ...]:
    """Return what hosts have that the first one has not: GPUs, links, NUMA, driver, settings.

    ``evidence`` are documents of the scopes gpu and tuning by host, ``engines`` the engine's
    version by host, ``neighbours`` the plans of the other deployments that a host runs.
    TRIAL-HOSTS-DIFFER is of a host that cannot stand for the first; TRIAL-HOSTS-UNSEEN names what
    could not be compared.
    """
    names = list(evidence)
    if len(names) < 2:
        return ()
    seen = {name: _summary(name, evidence[name], engines or {}) for name in names}
    for name in names if neighbours is not None else ():
        seen[name]["other deployments"] = _neighbours((neighbours or {}).get(name, ()))
    first = names[0]
    return tuple(
        finding for name in names[1:] for finding in _compared(first, name, seen[first], seen[name])
    )


def _compared(
    first: str, name: str, known: Mapping[str, str], here: Mapping[str, str]
) -> Iterator[Finding]:
    for what in known:
        if known[what] and here[what] and known[what] != here[what]:
            there, ours = _difference(known[what], here[what])
            yield Finding(
                CODE,
                name,
                f"{what}: {ours} here, {there} on {first}, so neither can stand for the other",
                source=knowledge("tune.yml")["alike_source"],
            )
    unseen = [what for what in known if not (known[what] and here[what])]
    if unseen:
        yield Finding(
            "TRIAL-HOSTS-UNSEEN",
            name,
            f"not compared with {first}, for one of them does not tell: {', '.join(unseen)}",
        )


def _difference(known: str, here: str) -> tuple[str, str]:
    """Return what only either of two texts has; the whole text where that is nothing."""
    ours, theirs = here.split("; "), known.split("; ")
    more = "; ".join(one for one in ours if one not in theirs)
    less = "; ".join(one for one in theirs if one not in ours)
    return less or "no more", more or "no more"


def _summary(name: str, bundle: Mapping[str, Any], engines: Mapping[str, str]) -> dict[str, str]:
    """Return what is compared, in words; empty where the host does not tell."""
    document = from_document(Evidence, bundle, name)
    topology = from_evidence(document, name)
    found = {
        "GPUs": _gpus(topology),
        "partitions": _partitions(topology),
        "links between GPUs": _links(topology),
        "NUMA nodes": _nodes(topology),
        "engine": engines.get(name, ""),
    }
    for entry in knowledge("tune.yml")["alike"]:
        found[entry["is"]] = "; ".join(_values(document, entry))
    return found


def _neighbours(plans: Sequence[Mapping[str, Any]]) -> str:
    """Return which deployments share the host, with what decides how much of it they take."""
    shares = []
    for plan in plans:
        requested = plan.get("deployment") or {}
        gpus = sorted(gpu for one in plan.get("replicas") or () for gpu in one.get("gpus") or ())
        text = json.dumps(requested, sort_keys=True)
        settings = f"{zlib.crc32(text.encode()):08x}"
        shares.append(f"{requested.get('name')} on {', '.join(gpus)} (settings {settings})")
    return "; ".join(sorted(shares)) or "none"


def _counted(values: Counter[str]) -> str:
    return "; ".join(f"{count} × {value}" for value, count in sorted(values.items()))


def _gpus(topology: Topology) -> str:
    usable = (gpu for gpu in topology.gpus if gpu.healthy is not False)
    return _counted(
        Counter(
            f"{gpu.model or 'unknown'} ({gpu.device_id or 'no id'},"
            f" {'unknown' if gpu.vram_bytes is None else gpu.vram_bytes >> 30} GiB)"
            for gpu in usable
        )
    )


def _partitions(topology: Topology) -> str:
    modes = (f"{gpu.compute_partition}/{gpu.memory_partition}" for gpu in topology.gpus)
    return _counted(Counter(one for one in modes if one != "None/None"))


def _links(topology: Topology) -> str:
    return _counted(
        Counter(
            f"{link.type or 'unknown'} of {link.hops or '?'} hops"
            + (f", {link.bandwidth_mb_s[1]} MB/s" if link.bandwidth_mb_s else "")
            for link in topology.links
        )
    )


def _nodes(topology: Topology) -> str:
    gpus = Counter(gpu.numa_node for gpu in topology.gpus)
    return "; ".join(
        f"node {node.id}: CPUs {node.cpus}, {gpus[node.id]} GPUs" for node in topology.numa_nodes
    )


def _values(evidence: Evidence, entry: Mapping[str, str]) -> list[str]:
    """Return the distinct values of an entry of knowledge/tune.yml, with how many have each."""
    if "command" in entry:
        output = evidence.commands.get(entry["command"])
        texts = [output.stdout] if output is not None and output.exit == 0 else []
    else:
        texts = [
            text
            for path, text in evidence.files.items()
            if fnmatch.fnmatchcase(path, entry["files"])
        ]
    if "line" in entry:
        texts = [line for text in texts for line in re.findall(entry["line"], text, re.MULTILINE)]
    if "without" in entry:
        texts = [" ".join(re.sub(entry["without"], "", text).split()) for text in texts]
    counts = Counter(text.strip() for text in texts)
    only = len(counts) == 1 and sum(counts.values()) == 1
    return [text if only else f"{count} × {text}" for text, count in sorted(counts.items()) if text]
