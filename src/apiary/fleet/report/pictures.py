# SPDX-License-Identifier: GPL-3.0-or-later

"""Topologies of the hosts that stand out, as far as they lie among the artifacts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from ansible_collections.apiary.instinct.plugins.plugin_utils.findings import ApiaryError
from ansible_collections.apiary.instinct.plugins.plugin_utils.fleet.report.types import FleetReport
from ansible_collections.apiary.instinct.plugins.plugin_utils.fleet.saved import saved_topology
from ansible_collections.apiary.instinct.plugins.plugin_utils.topology.types import Topology

from apiary.host.pictures import topology_svg

# Drawing takes some ms a host, and a page holds each picture once.
MOST = 60


def pictures_of(report: FleetReport, directories: Mapping[str, Path]) -> dict[str, str]:
    """Return SVG by host for the first hosts that stand out; alike topologies are one picture."""
    matches: dict[str, str] = {}
    drawn: dict[Topology, str] = {}
    shown = [host.host for host in report.hosts if host.state != "ok" or host.odd]
    for host in shown[:MOST]:
        topology = _topology(directories[host]) if host in directories else None
        if topology is None or not topology.gpus:
            continue
        nameless = replace(topology, host=topology.gpus[0].model or "GPUs")
        if nameless not in drawn:
            drawn[nameless] = topology_svg(nameless)
        matches[host] = drawn[nameless]
    return matches


def _topology(directory: Path) -> Topology | None:
    """Return the topology that was saved, or that of the saved evidence; None without either."""
    try:
        return saved_topology(directory)
    except ApiaryError:
        return None  # a picture is no reason to fail
