# SPDX-License-Identifier: GPL-3.0-or-later

"""The GPUs' CDI specification: what it has to say on this host, what is wrong."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from ....module_utils import cdi
from ...evidence.types import Evidence
from ...topology.host import from_evidence
from ..facts import output
from ..program import standalone, unit_text
from ..types import Check, HostFile
from .engine import PROGRAM, SERVICE, SPECIFICATION, UNIT, Engine

_DRM_NODE = re.compile(r"/sys/class/drm/((card|renderD)\d+)")


@dataclass(frozen=True)
class Specification:
    """What is to be in /etc/cdi/amd.json, written there at every boot."""

    version: str
    devices: tuple[cdi.Device, ...]
    gids: tuple[int, ...]

    @property
    def text(self) -> str | None:
        """The file, None where there is no GPU to name: engines refuse one without devices."""
        if not self.devices:
            return None
        return cdi.dumps(cdi.document(self.devices, self.version, self.gids))


def specification(evidence: Evidence, engine: Engine) -> Specification:
    """Return the host's specification, in a version that its engine reads."""
    devices = tuple(devices_of(evidence))
    newest = cdi.order(engine.specification) >= cdi.order(cdi.WITH_GROUPS)
    return Specification(
        version=cdi.WITH_GROUPS if newest else cdi.PLAIN,
        devices=devices,
        gids=gids_of(evidence, devices),
    )


def devices_of(evidence: Evidence) -> list[cdi.Device]:
    """Return every GPU and partition that compute can use, with the nodes it has now."""
    topology = from_evidence(evidence)
    cards = _cards(evidence)
    return cdi.ordered(
        cdi.Device(key, gpu.render_node, cards.get(gpu.render_node))
        for key, gpu in topology.by_key.items()
        if gpu.bdf and gpu.render_node and gpu.kfd_node is not None
    )


def _cards(evidence: Evidence) -> dict[str, str]:
    """Return the card node that belongs to each render node: DRM keeps them in one directory.

    A partition's nodes are those of a platform device, whose address tells nothing of its GPU.
    """
    found: dict[str, dict[str, str]] = {}
    for path, target in sorted(evidence.links.items()):
        if match := _DRM_NODE.fullmatch(path):
            found.setdefault(PurePosixPath(target).parent.as_posix(), {})[match[2]] = match[1]
    return {both["renderD"]: both["card"] for both in found.values() if len(both) == 2}


def node_groups(evidence: Evidence) -> dict[str, tuple[str, int]]:
    """Return mode and numeric group of the GPUs' device nodes, by path."""
    rows = (line.split() for line in output(evidence, "device_owners").splitlines())
    return {row[0]: (row[1], int(row[3])) for row in rows if len(row) == 4 and row[3].isdigit()}


def gids_of(evidence: Evidence, devices: tuple[cdi.Device, ...]) -> tuple[int, ...]:
    """Return the groups of the nodes that compute needs; root's own gives nobody rights."""
    groups = node_groups(evidence)
    paths = [cdi.COMPUTE, *(device.nodes[0] for device in devices)]
    return tuple(sorted({groups[path][1] for path in paths if path in groups} - {0}))


def program() -> HostFile:
    """Return the program that writes the specification; a collection's sources have no shebang."""
    return HostFile(PROGRAM, "#!/usr/bin/env python3\n" + standalone(Path(cdi.__file__)), "0755")


def unit(wanted: Specification) -> HostFile:
    """Return the service that writes it at every boot, once the driver has made the nodes."""
    text = unit_text(
        SERVICE,
        directory=PurePosixPath(SPECIFICATION).parent,
        program=PROGRAM,
        version=wanted.version,
        specification=SPECIFICATION,
    )
    return HostFile(UNIT, text)


def check_rivals(evidence: Evidence) -> Check:
    """Say whether another file names devices of the same kind: engines then refuse both."""
    rivals = [
        path
        for path, text in sorted(evidence.files.items())
        if path.startswith(("/etc/cdi/", "/run/cdi/"))
        and path != SPECIFICATION
        and cdi.KIND in text
    ]
    return Check(
        "CONTAINER-CDI-RIVAL",
        SPECIFICATION,
        "fail" if rivals else "pass",
        ", ".join(rivals) or "no other file",
        f"no other file that names {cdi.KIND}",
        files=", ".join(rivals),
    )
