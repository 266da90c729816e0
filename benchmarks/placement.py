# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Placement against the device plugins' allocators, and against the clock.

    python benchmarks/placement.py [ALLOCATOR_CASES_JSON]

How long joint placement takes by the number of devices, and a fleet through `--jsonl`. With the
file of recorded requests first the rows won, equal and lost by the plugins' own weight, with their
recorded times beside ours; exit code 1 if a row is lost.
"""

from __future__ import annotations

import io
import json
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import median

from ansible_collections.apiary.instinct.plugins.plugin_utils.documents import to_document
from ansible_collections.apiary.instinct.plugins.plugin_utils.placement.place import Placed, place
from ansible_collections.apiary.instinct.plugins.plugin_utils.placement.types import Request
from ansible_collections.apiary.instinct.plugins.plugin_utils.topology.types import Topology
from rich.console import Console
from rich.progress import track
from rich.table import Table

from apiary.host.place_command import answers

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from support.topology.allocator_cases import Case, Cases, load, sound
from support.topology.topologies import mi325x, partitioned

CONSOLE = Console(width=150)
# (topology, sizes) for the clock: issue 3's limits are 1, 20 and 50 ms for 8, 16 and 64 devices.
TIMED = (
    ("mi325x_mesh8", (4, 4), 1),
    ("mi325x_mesh8", (2, 2, 2, 2), 1),
    ("mi325x_mesh8", (1, 2, 4), 1),
    ("mi210_2hives_p2p", (4, 4), 1),
    ("pcie8_2numa", (4, 4), 1),
    ("mi250x_8gcd_nps1", (4, 4), 1),
    ("mi250x_8gcd_nps1", (2, 2, 2, 2), 1),
    ("rand8_04", (4, 4), 1),
    ("mesh16_2numa", (8, 8), 20),
    ("mi210_4hives16", (4, 4, 4, 4), 20),
    ("pcie16_4numa", (8, 8), 20),
    ("mi300x_dpx16", (8, 8), 20),
    ("mi250x_16gcd", (8, 8), 20),
    ("mi250x_16gcd", (4, 4, 4, 4), 20),
    ("mi250x_16gcd", (2,) * 8, 20),
    ("mi300x_qpx32", (4,) * 8, 50),
    ("mi300x_cpx64", (8,) * 8, 50),
    ("mi300x_cpx64", (7,) * 8, 50),
    ("mi300x_cpx64", (3, 4, 5, 6, 7, 8, 9, 10), 50),
    ("mi300x_cpx64", (4,) * 16, 50),
)


def timed(work: Callable[[], object], times: int = 5) -> float:
    """Return the least CPU time of some runs, in seconds."""
    spent = []
    for _run in range(times):
        start = time.process_time()
        work()
        spent.append(time.process_time() - start)
    return min(spent)


def against_peers(cases: Cases) -> bool:
    """Print rows won, equal and lost under the plugins' weight; return whether none is lost."""
    table = Table(title="`--cost device-plugin` against the recorded picks, by total weight")
    for column in (
        "requests", "rows", "won", "equal", "lost", "peer gave none", "above the optimum",
        "our median", "our worst", "ROCm median", "NVIDIA median",
    ):  # fmt: skip
        table.add_column(column, justify="left" if column == "requests" else "right")
    groups: dict[str, list[Case]] = defaultdict(list)
    for case in cases.requests:
        groups[case.kind].append(case)
    good = True
    for kind, rows in groups.items():
        counts: dict[str, int] = defaultdict(int)
        ours: list[float] = []
        peers: dict[str, list[float]] = {"plugin": [], "nvidia": []}
        for case in track(rows, description=kind, console=Console(stderr=True), transient=True):
            topology = cases.topologies[case.topology]
            wanted = cases.request(case, "device-plugin")
            start = time.process_time()
            placed = Placed(topology, wanted, runner_up=False)
            ours.append(time.process_time() - start)
            weight = sum(
                cases.weight(case.topology, one) for one in cases.members(case, placed.replicas)
            )
            for sets in (case.plugin, case.nvidia):
                if not sound(case, sets):
                    counts["none"] += 1
                    continue
                theirs = sum(cases.weight(case.topology, one) for one in sets or ())
                counts["won" if weight < theirs else "equal" if weight == theirs else "lost"] += 1
            known = case.optimum is not None and cases.complete(case.topology)
            if known and weight > (case.optimum or 0):
                counts["above"] += 1
            for name, microseconds in (("plugin", case.plugin_us), ("nvidia", case.nvidia_us)):
                if microseconds is not None:
                    peers[name].append(microseconds / 1e6)
        good = good and not counts["lost"] and not counts["above"]
        table.add_row(
            kind,
            *(
                str(number)
                for number in (len(rows), counts["won"], counts["equal"], counts["lost"])
            ),
            str(counts["none"]),
            str(counts["above"]),
            milliseconds([median(ours)]),
            milliseconds([max(ours)]),
            milliseconds(peers["plugin"] and [median(peers["plugin"])]),
            milliseconds(peers["nvidia"] and [median(peers["nvidia"])]),
        )
    CONSOLE.print(table)
    CONSOLE.print(
        "Each row counts once a peer. NVIDIA's allocator maximises another score; its picks are "
        "weighed by ROCm's.\nA missing link weighs 90, where the plugin counts 0; optima were "
        "recorded for complete graphs.\n"
    )
    return good


def milliseconds(values: Iterable[float]) -> str:
    found = list(values)
    return f"{found[0] * 1000:.3f} ms" if found else "–"


def where_they_die(cases: Cases, recorded: Sequence[dict[str, object]]) -> None:
    """Print our time for the sizes at which the peers were timed, one replica."""
    table = Table(title="One replica of k GPUs on a free host: CPU time")
    for column in ("topology", "devices", "k", "ROCm", "NVIDIA", "fabric", "device-plugin"):
        table.add_column(column, justify="left" if column == "topology" else "right")
    names = {"mesh": {8: "mi325x_mesh8", 16: "mesh16_2numa"}, "cpx64": {64: "mi300x_cpx64"}}
    peers: dict[tuple[str, int, int], dict[str, object]] = defaultdict(dict)
    for row in recorded:
        key = (str(row["topo"]), int(str(row["n"])), int(str(row["k"])))
        peers[key][str(row["peer"])] = row.get("cpu_us", "died")
    for (kind, devices, size), times in sorted(peers.items()):
        name = names.get(kind, {}).get(devices)
        if name is None:
            continue
        shown = []
        for peer in ("rocm_HEAD", "nvidia"):
            value = times.get(peer)
            shown.append(
                f"{value / 1000:,.1f} ms" if isinstance(value, (int, float)) else str(value or "–")
            )
        for cost in ("fabric", "device-plugin"):
            wanted = Request((size,), cost=cost)
            topology = cases.topologies[name]
            shown.append(f"{timed(partial(Placed, topology, wanted, False), 3) * 1000:.2f} ms")
        table.add_row(name, str(devices), str(size), *shown)
    CONSOLE.print(table)


def clock(topologies: Mapping[str, Topology]) -> None:
    """Print how long joint placement takes on those of the timed hosts that are at hand."""
    table = Table(title="Joint placement, one core, interpreter start excluded")
    for column in (
        "topology", "devices", "sizes", "limit", "fabric", "device-plugin",
        "fabric with runner-up and CPUs", "exact",
    ):  # fmt: skip
        table.add_column(column, justify="left" if column in ("topology", "sizes") else "right")
    for name, sizes, limit in TIMED:
        if name not in topologies:
            continue
        topology = topologies[name]
        spent = [
            timed(partial(Placed, topology, Request(sizes, cost=cost), False))
            for cost in ("fabric", "device-plugin")
        ]
        whole = timed(partial(place, topology, Request(sizes)))
        exact = all(
            Placed(topology, Request(sizes, cost=cost), False).cuts.exact
            for cost in ("fabric", "device-plugin")
        )
        table.add_row(
            name,
            str(len(topology.gpus)),
            " ".join(map(str, sizes)),
            f"{limit} ms",
            *(f"{one * 1000:.2f} ms" for one in (*spent, whole)),
            "yes" if exact else "no",
        )
    CONSOLE.print(table)


def fleet(topology: Topology, hosts: int = 1000) -> None:
    """Print how long a fleet takes through --jsonl, parsing included."""
    document = to_document(topology)
    lines = []
    for number in range(hosts):
        document["host"] = f"gpu-{number:04}"
        lines.append(json.dumps({"topology": document, "sizes": [4, 4] if number % 2 else [2, 4]}))
    text = "\n".join(lines)
    for cost in ("fabric", "device-plugin"):
        start = time.perf_counter()
        answered = sum(1 for _answer in answers(io.StringIO(text), cost))
        spent = time.perf_counter() - start
        CONSOLE.print(f"{answered} hosts through --jsonl --cost {cost}: {spent:.2f} s (limit 5 s)")


def main(arguments: Sequence[str]) -> int:
    if len(arguments) > 1 or (arguments and not Path(arguments[0]).is_file()):
        CONSOLE.print(f"usage: {Path(__file__).name} [ALLOCATOR_CASES_JSON]")
        return 2
    good = True
    topologies: Mapping[str, Topology] = {
        "mi325x_mesh8": mi325x(),
        "mi300x_cpx64": partitioned(mi325x(), 8),
    }
    for path in map(Path, arguments):
        cases = load(path)
        good = against_peers(cases)
        where_they_die(cases, json.loads(path.read_text())["timing"])
        topologies = cases.topologies
    clock(topologies)
    fleet(mi325x())
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
