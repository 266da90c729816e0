# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a fleet costs its controller: ping, converge, probe and plan against the number of hosts.

    python benchmarks/fleet.py sizes --hosts 10 --hosts 20 --hosts 40
    python benchmarks/fleet.py names --hosts 10 --names 200 --what ping,survey,probe,plan
    python benchmarks/fleet.py replay --hosts 1 --names 1000 --what ping,noop,plan --work DIR
    python benchmarks/fleet.py replay --names 1000 --recorded DIR/replay/recorded --what noop
    python benchmarks/fleet.py dead --hosts 10
    python benchmarks/fleet.py settings --hosts 4

sizes: real containers (tests/lab) over SSH, one for each host. names: more names than containers,
each with an SSH connection of its own; containers do the work of several hosts, so nothing may be
converged: a host's files bear its name. replay: what one
real host answered, and how long it took, is replayed to any number of names by a connection
plugin: the cost of the controller without SSH; what was recorded needs no host and no Docker any
more. Controller and hosts share this machine, so wall
time is bounded by the CPU time of both, which is shown apart. All commands connect anew.
"""

from __future__ import annotations

import configparser
import functools
import json
import os
import platform
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import click
from fleetkit.lab import ROOT, Lab
from fleetkit.measure import Cost, run, subreaper
from fleetkit.replay import write_plugin
from fleetkit.settings import VARIANTS, Variant
from rich.console import Console
from rich.table import Table

BIN = Path(sys.executable).parent
KIT = Path(__file__).parent / "fleetkit"
SAYS = Console(stderr=True)
RECAP = re.compile(r"^(\S+)\s+: ok=(\d+)\s+changed=(\d+)\s+unreachable=(\d+)\s+failed=(\d+)", re.M)
WHAT = ("ping", "cold", "noop", "probe", "survey", "plan", "tasks")


@dataclass(frozen=True)
class Row:
    """One command: what, against how many names on how many containers, and what it cost.

    ``good`` counts the names that did what they should; ``per_ping`` is the wall time over that
    of the ping of the same names just before.
    """

    what: str
    connection: str
    names: int
    containers: int
    good: int
    seconds: float
    cpu: float
    hosts_cpu: float | None
    memory: float
    load: tuple[float, float]
    per_ping: float | None = None
    note: str = ""


@dataclass
class Bench:
    """One run: where it works, what it has measured."""

    lab: Lab
    place: Path
    forks: int
    checkout: Path
    rows: list[Row]
    on_row: Callable[[Row], None]

    def command(self, what: str, inventory: Path, limit: str, out: Path) -> list[str]:
        """Return the command of a measurement, as an operator types it."""
        playbook = [str(BIN / "ansible-playbook"), "-i", str(inventory)]
        apiary = str(BIN / "apiary")
        return {
            "ping": [
                *(str(BIN / "ansible"), "-i", str(inventory), limit, "-m", "ansible.builtin.ping"),
            ],
            "cold": [*playbook, "playbooks/site.yml", "--limit", limit],
            "noop": [*playbook, "playbooks/site.yml", "--limit", limit],
            "survey": [*playbook, "playbooks/survey.yml", "--limit", limit],
            "tasks": [*playbook, str(KIT / "tasks.yml"), "--limit", limit],
            "probe": [
                *(apiary, "probe", "--inventory", str(inventory), "--limit", limit),
                *("--out", str(out), "--parallel", str(self.forks)),
            ],
            "plan": [apiary, "plan", "--inventory", str(inventory), "--limit", limit],
        }[what]

    def measure(
        self,
        what: str,
        inventory: Path,
        limit: str,
        names: int,
        connection: str = "ssh",
        note: str = "",
        **environment: str,
    ) -> tuple[Row, Cost]:
        """Measure one command and keep its row."""
        command = self.command(what, inventory, limit, self.place / "evidence")
        settings = {
            "ANSIBLE_CONFIG": str(self.checkout / "ansible.cfg"),
            "ANSIBLE_FORKS": str(self.forks),
            "ANSIBLE_NOCOLOR": "1",
        }
        variables = {**os.environ, **settings, **environment}
        cost = run(command, cwd=self.checkout, environment=variables, cgroups=self.lab.cgroups())
        good = count_good(what, cost, names)
        pings = [
            row.seconds
            for row in self.rows
            if (row.what, row.connection, row.names) == ("ping", connection, names)
        ]
        row = Row(
            what,
            connection,
            names,
            min(names, len(self.lab.hosts)) if connection == "ssh" else 1,
            good,
            cost.seconds,
            cost.cpu,
            cost.hosts_cpu if connection == "ssh" else None,
            cost.memory,
            cost.load,
            cost.seconds / pings[-1] if pings and what != "ping" else None,
            note,
        )
        (self.place / f"{what}-{connection}-{names}.log").write_text(cost.said)
        self.rows.append(row)
        self.on_row(row)
        return row, cost


def count_good(what: str, cost: Cost, names: int) -> int:
    """Return how many names did what they should; a no-op that changed something did not."""
    if what == "ping":
        return cost.said.count("| SUCCESS")
    if what == "probe":
        told = re.search(r"(\d+) probed", cost.said)
        return int(told[1]) if told else 0
    if what == "plan":
        return names if cost.code in (0, 3) else 0
    recap = [tuple(map(int, found[1:])) for found in RECAP.findall(cost.said)]
    calm = [one for one in recap if one[2] == one[3] == 0]
    return len([one for one in calm if what != "noop" or one[1] == 0])


def name(number: int) -> str:
    return f"gpu-{number:03d}"


def sizes(bench: Bench, hosts: Sequence[int], what: Sequence[str]) -> None:
    """Each size on containers of its own; those that a size adds are converged from cold."""
    converged = 0
    most = max(hosts)
    if len(bench.lab.hosts) < most:
        bench.lab.up(most)
    inventory = bench.lab.inventory(bench.place / "sizes", [name(n + 1) for n in range(most)])
    for size in sorted(hosts):
        limit = f"gpu_hosts[0:{size - 1}]"
        if "cold" in what:
            fresh = f"gpu_hosts[{converged}:{size - 1}]"
            bench.measure("cold", inventory, fresh, size - converged)
        converged = size
        for one in WHAT:
            if one in what and one != "cold":
                bench.measure(one, inventory, limit, size)


def many(bench: Bench, names: Sequence[int], what: Sequence[str]) -> None:
    """More names than containers, which are converged already, each by its own name."""
    if {"cold", "noop"} & set(what):
        raise click.UsageError("--what: names share containers, which cannot be as each wants them")
    for count in sorted(names):
        place = bench.place / f"names-{count}"
        inventory = bench.lab.inventory(place, [name(n + 1) for n in range(count)])
        for one in WHAT:
            if one in what:
                bench.measure(one, inventory, "gpu_hosts", count)


def replayed(
    bench: Bench, names: Sequence[int], what: Sequence[str], recorded: Path | None
) -> None:
    """What one converged host answers, replayed to any number of names."""
    place = bench.place / "replay"
    plugins = write_plugin(place / "connection")
    if recorded is None:
        recorded = place / "recorded"
        (recorded / "repository").mkdir(parents=True, exist_ok=True)
        facts = "repository/facts.json"  # which the lab's variables read
        shutil.copyfile(bench.lab.root / facts, recorded / facts)
        one_host = bench.lab.inventory(place / "one", [name(1)])
        for one in WHAT:
            if one in what:
                keep = {**plugins, "FLEET_RECORD": str(recorded)}
                bench.measure(one, one_host, "gpu_hosts", 1, note="recorded", **keep)
    for count in sorted(names):
        listed = [name(n + 1) for n in range(count)]
        inventory = bench.lab.replayed(place / str(count), listed, recorded)
        for one in WHAT:
            if one in what:
                again = {**plugins, "FLEET_REPLAY": str(recorded)}
                bench.measure(one, inventory, "gpu_hosts", count, "replay", **again)


def dead(bench: Bench, hosts: Sequence[int], what: Sequence[str]) -> None:
    """The same commands with all hosts, then with one that accepts connections and says nothing."""
    for size in hosts:
        listed = [name(n + 1) for n in range(size)]
        inventory = bench.lab.inventory(bench.place / "dead", listed)
        for one in WHAT:
            if one in what:
                bench.measure(one, inventory, "gpu_hosts", size, note="all answer")
        bench.lab.container(name(size), "pause")
        try:
            for one in WHAT:
                if one in what:
                    bench.measure(one, inventory, "gpu_hosts", size, note="one hangs")
        finally:
            bench.lab.container(name(size), "unpause")


def settings(bench: Bench, hosts: Sequence[int], what: Sequence[str], repeat: int) -> None:
    """Each setting of ansible.cfg changed, between two runs with none changed."""
    for size in hosts:
        listed = [name(n + 1) for n in range(size)]
        inventory = bench.lab.inventory(bench.place / "settings", listed)
        for variant in VARIANTS:
            if variant.needs and not Path(variant.needs).exists():
                SAYS.print(f"{variant.name}: {variant.needs} is not there, left out")
                continue
            config = changed_config(bench.checkout / "ansible.cfg", variant, bench.place)
            extra = {"ANSIBLE_CONFIG": str(config), **dict(variant.environment)}
            for _run in range(repeat):
                for one in what:
                    bench.measure(one, inventory, "gpu_hosts", size, note=variant.name, **extra)


def changed_config(path: Path, variant: Variant, place: Path) -> Path:
    """Write the project's configuration with what a variant changes."""
    parser = configparser.ConfigParser(interpolation=None)
    parser.read(path)
    paths = parser["defaults"]
    for key in ("collections_path", "inventory"):
        paths[key] = str(path.parent / paths[key])
    for section, key, value in variant.changes:
        if not parser.has_section(section):
            parser.add_section(section)
        if value is None:
            parser.remove_option(section, key)
        else:
            parser[section][key] = value.replace("PLACE", str(place))
    made = place / f"ansible-{re.sub('[^a-z0-9]+', '-', variant.name.lower())}.cfg"
    with made.open("w") as stream:
        parser.write(stream)
    return made


def machine() -> str:
    """Return what this was measured on."""
    names = re.findall(r"^model name\s*: (.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    return f"{os.cpu_count()} × {names[0] if names else platform.machine()}"


def table(rows: Sequence[Row], forks: int) -> Table:
    """Return the measurements."""
    shown = Table(title=f"{machine()}, shared by controller and hosts; forks {forks}")
    heads = ("what", "over", "names", "containers", "good", "seconds", "× ping", "s/host")
    for head in (*heads, "controller CPU s", "hosts' CPU s", "controller MB", "load", "note"):
        shown.add_column(head, justify="left" if head in ("what", "over", "note") else "right")
    for row in rows:
        shown.add_row(
            row.what,
            row.connection,
            *(str(number) for number in (row.names, row.containers, row.good)),
            f"{row.seconds:.1f}",
            "" if row.per_ping is None else f"{row.per_ping:.1f}",
            f"{row.seconds / row.names:.2f}",
            f"{row.cpu:.1f}",
            "" if row.hosts_cpu is None else f"{row.hosts_cpu:.1f}",
            f"{row.memory:.0f}",
            f"{row.load[0]:.1f}–{row.load[1]:.1f}",
            row.note,
        )
    return shown


def show_row(row: Row) -> None:
    """Print a measurement as it comes."""
    SAYS.print(
        f"{time.strftime('%H:%M:%S')} {row.what} {row.note} over {row.connection}: {row.good} of"
        f" {row.names} in {row.seconds:.1f} s, CPU {row.cpu:.1f} s, {row.memory:.0f} MB,"
        f" load {row.load[0]:.1f}"
    )


@contextmanager
def working(directory: str | None) -> Iterator[Path]:
    """Have a place to work, kept if it was named."""
    if directory:
        Path(directory).mkdir(parents=True, exist_ok=True)
        yield Path(directory).resolve()
    else:
        with tempfile.TemporaryDirectory(prefix="fleet-") as made:
            yield Path(made)


def options(command: Callable[..., None]) -> Callable[..., None]:
    """Add what all of them take."""
    taken = [
        click.option("--hosts", type=int, multiple=True, default=(4,), show_default=True),
        click.option("--what", help=f"Some of {','.join(WHAT)}."),
        click.option("--forks", default=8, show_default=True, help="As shipped in ansible.cfg."),
        click.option("--lab", default="fleet", show_default=True),
        click.option("--keep", is_flag=True, help="Leave the lab up."),
        click.option("--work", help="Keep logs and inventories there."),
        click.option("--json", "out", type=click.Path(dir_okay=False), help="Write the rows."),
        click.option(
            "--checkout",
            type=click.Path(exists=True, path_type=Path),
            default=ROOT,
            help="Whose playbooks and ansible.cfg; another one shows before and after.",
        ),
    ]
    return functools.reduce(lambda made, add: add(made), reversed(taken), command)


def perform(
    measure: Callable[[Bench, tuple[str, ...]], None], usual: str, given: Mapping[str, Any]
) -> None:
    """Have a lab, measure, show."""
    subreaper()
    what = tuple((given["what"] or usual).split(","))
    unknown = set(what) - set(WHAT)
    if unknown:
        raise click.UsageError(f"--what: {', '.join(sorted(unknown))} is none of {','.join(WHAT)}")
    lab = Lab(given["lab"])
    checkout = given["checkout"].resolve()
    with working(given["work"]) as place:
        bench = Bench(lab, place, given["forks"], checkout, [], show_row)
        try:
            if not given.get("recorded") and len(lab.hosts) < max(given["hosts"]):
                lab.up(max(given["hosts"]))
            measure(bench, what)
        finally:
            if bench.rows:
                Console(width=170).print(table(bench.rows, bench.forks))
            if given["out"]:
                document = {"machine": machine(), "forks": bench.forks}
                document["rows"] = [asdict(row) for row in bench.rows]
                Path(given["out"]).write_text(json.dumps(document, indent=2) + "\n")
            if not given["keep"] and not given.get("recorded"):
                lab.down()


@click.group()
def main() -> None:
    """Measure what a fleet costs its controller."""


@main.command("sizes")
@options
def sizes_(**given: Any) -> None:
    """Real containers, one for each host."""
    perform(lambda bench, what: sizes(bench, given["hosts"], what), "ping,cold,noop", given)


@main.command("names")
@options
@click.option("--names", type=int, multiple=True, default=(200,), show_default=True)
def names_(names: tuple[int, ...], **given: Any) -> None:
    """More names than containers."""
    perform(lambda bench, what: many(bench, names, what), "ping,probe,plan", given)


@main.command("replay")
@options
@click.option("--names", type=int, multiple=True, default=(1000,), show_default=True)
@click.option(
    "--recorded",
    type=click.Path(exists=True, path_type=Path),
    help="What an earlier run recorded (--work DIR: DIR/replay/recorded); no host is needed.",
)
def replay_(names: tuple[int, ...], **given: Any) -> None:
    """A recorded host, replayed: the controller's own cost."""
    recorded = given["recorded"].resolve() if given["recorded"] else None
    perform(lambda bench, what: replayed(bench, names, what, recorded), "ping,noop", given)


@main.command("dead")
@options
def dead_(**given: Any) -> None:
    """One host that hangs."""
    perform(lambda bench, what: dead(bench, given["hosts"], what), "ping,noop,probe", given)


@main.command("settings")
@options
@click.option("--repeat", default=2, show_default=True)
def settings_(repeat: int, **given: Any) -> None:
    """Each setting of ansible.cfg, changed."""
    perform(lambda bench, what: settings(bench, given["hosts"], what, repeat), "tasks", given)


if __name__ == "__main__":
    main()
