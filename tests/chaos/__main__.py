# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Break a simulated fleet at random, under load: `make chaos MINUTES=30 [SEED=…] [STEPS=…]`.

Two GPU hosts of two replicas, two routers, a host that watches and one that has the weights. The
seed is printed first and decides all that happens; with the same seed and as many steps the same
happens again. Ends with 0 if what must be so was so after each fault, else with 1.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import secrets
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from chaos.faults import Broken, Faults
from chaos.sequence import KINDS, Parts, Step, steps
from chaos.tally import Ended, Tally, lost
from labkit.prerequisites import ensure_programs
from loss.fleet import ROOT, Fleet, await_true, start, stop
from loss.load import Report, under
from loss.moment import Moment

NAME = os.environ.get("APIARY_CHAOS_LAB", "chaos")
VARIABLES = tuple(f"@{ROOT}/tests/{name}/variables.yml" for name in ("loss", "chaos"))
# Requests a second: with every part on one machine, the machine has to keep up.
RATE = 20.0
# Bounds are counted in calm starts of this machine, which take at least so long.
LEAST_START = 15.0
# A load may last so long at most, and within it what was broken must be back: else it has hung.
MOST_SECONDS, MOST_BACK = 880.0, 600.0


def prepared() -> Fleet:
    """Return the lab, made by the site playbook and whole; one that is whole stays as it is."""
    fleet = Fleet(NAME, VARIABLES, rate=RATE)
    if (fleet.directory / "hosts.json").exists() and whole(fleet):
        return fleet
    ensure_programs({"gcc"})  # prepare.yml builds what sets clocks
    start(NAME, hosts=2, routers=2, monitoring=1, storage=1)
    fleet.playbook("../tests/chaos/prepare")
    tags = "weight_cache,replicas,router"
    fleet.playbook("site", "--tags", tags, "-e", "replicas_restart=true")
    fleet.playbook("telemetry")
    fleet.await_whole(120)
    return fleet


def parts(fleet: Fleet) -> Parts:
    """Return what can break in a lab."""
    return {
        "replica": tuple(replica.name for replica in fleet.replicas),
        "gpu": tuple(fleet.named("gpu_hosts")),
        "router": tuple(fleet.routers),
        "monitor": tuple(fleet.named("monitoring")),
        "storage": tuple(fleet.named("storage")),
        "fleet": ("fleet",),
    }


def calm_start(fleet: Fleet) -> float:
    """Return the seconds from a replica's restart until all is whole, which a machine needs."""
    replica, began = fleet.replicas[0], time.monotonic()
    fleet.run(replica.host, f"systemctl restart {replica.unit}")
    fleet.await_whole(600)
    return max(time.monotonic() - began, LEAST_START)


def one(fleet: Fleet, faults: Faults, step: Step, calm: float) -> Ended:
    """Make a fault under load and end it; return what came of it.

    ``calm`` is what a replica's start takes here while nothing is broken.
    """
    problems: list[str] = []
    broken, recovered, bound = Broken(), None, 0.0
    load = fleet.load(seconds=MOST_SECONDS, requests=20_000, timeout_seconds=60)
    with under(load) as running:
        moment = Moment(running.now(), float("inf"))
        try:
            broken = faults.make(step)
            running.go_on(step.seconds)
            broken.mend()
        except (AssertionError, subprocess.SubprocessError) as failure:
            problems.append(f"cannot be made or ended: {failure}; {state(fleet)}")
        moment.ended = running.now()
        if not problems:
            bound = min(broken.back * calm, MOST_BACK)
            recovered = recovery(fleet, broken, bound)
            faults.settle()
        running.go_on(2)
    report = Report(tuple(running.outcomes))
    if recovered is None and not problems:
        problems.append(f"not whole {bound:.0f} s after its end: {state(fleet)}")
    problems += lost(broken, report, moment)
    return Ended(step, report, recovered, tuple(problems))


def recovery(fleet: Fleet, broken: Broken, seconds: float) -> float | None:
    """Return after how long every router uses every replica, and who watches does so again.

    That no replica stays drained is the same question: a router does not use what is drained.
    """
    try:
        felt = await_true(broken.felt, seconds, "the fault is felt")
        return felt + await_true(lambda: whole(fleet), seconds, "whole again")
    except AssertionError:
        return None


def whole(fleet: Fleet) -> bool:
    """Return whether every part does its work."""
    try:
        watched = all(
            fleet.run(host, "systemctl is-active prometheus", check=False) == "active\n"
            for host in fleet.named("monitoring")
        )
        return watched and fleet.whole()
    except AssertionError:  # a host that boots
        return False


def state(fleet: Fleet) -> str:
    """Return what routers and systemd say of each replica, where it is not as it should be."""
    lines = []
    for router in fleet.routers:
        rows = fleet.servers(router)
        wrong = [f"{name} {row['status']}" for name, row in rows.items() if row["status"] != "UP"]
        lines.append(f"{router}: {', '.join(wrong) or ('all up' if rows else 'no answer')}")
    for replica in fleet.replicas:
        names = ("ActiveState", "SubState", "Result", "StatusText")
        try:
            shown = fleet.show(replica, *names)
        except AssertionError as failure:
            shown = {"": str(failure)}
        lines.append(f"{replica.name}: {' '.join(shown.values())}")
    return "; ".join(lines)


def run(
    tally: Tally,
    sequence: Sequence[Step] | itertools.islice[Step],
    act: Callable[[Step], Ended],
    until: Callable[[], bool],
    say: Callable[[str], None],
) -> None:
    """Take steps until time is up, or until something is not whole again."""
    for step in sequence:
        if until():
            return
        say(f"step {step}")
        ended = act(step)
        tally.ended.append(ended)
        took = "never whole" if ended.recovered is None else f"whole after {ended.recovered:.1f} s"
        failed = len(ended.report.failed)
        say(f"  {took}; {failed} of {len(ended.report.outcomes)} requests failed")
        for problem in ended.problems:
            say(f"  PROBLEM: {problem}")
        if ended.recovered is None:
            return


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main(argv: Sequence[str] | None = None) -> int:
    """Run from the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m chaos", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--seed", type=int, help="what happens; a new one each time without")
    parser.add_argument("--steps", type=int, help="so many faults, however long they take")
    parser.add_argument("--only", default=",".join(KINDS), metavar="KIND,…", help="of these kinds")
    parser.add_argument("--json", type=Path, metavar="FILE", help="the report goes there as well")
    options = parser.parse_args(argv)
    kinds = tuple(options.only.split(","))
    if unknown := sorted(set(kinds) - set(KINDS)):
        parser.error(f"no such kind: {', '.join(unknown)}; there are {', '.join(KINDS)}")
    tally = Tally(secrets.randbelow(10**6) if options.seed is None else options.seed)
    say(f"seed {tally.seed}")
    was_up = (Fleet(NAME).directory / "hosts.json").exists()
    try:
        fleet = prepared()
        limits = fleet.plans[fleet.replicas[0].host]["deployment"]["limits"]
        faults = Faults(fleet, limits["max_num_batched_tokens"])
        calm = calm_start(fleet)
        say(f"bounds are counted in calm starts of {calm:.1f} s")
        faults.settle()
        try:
            end = time.monotonic() + (options.minutes * 60)
            sequence = itertools.islice(steps(tally.seed, parts(fleet), kinds), options.steps)
            timed = options.steps is None
            run(
                tally,
                sequence,
                lambda step: one(fleet, faults, step, calm),
                lambda: timed and time.monotonic() > end,
                say,
            )
        finally:
            faults.end()
    finally:
        if tally.ended:
            print(tally.table(), flush=True)
            if options.json:
                options.json.write_text(json.dumps(tally.document(), indent=2) + "\n")
        if not was_up:
            stop(NAME)
    return 1 if tally.problems or not tally.ended else 0


if __name__ == "__main__":
    sys.exit(main())
