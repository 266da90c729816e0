# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Let real releases of vLLM judge Apiary's recipes, on a node that they believe to have the GPUs.

Ends with 0 when they agree, 1 when they do not, 3 when what it takes cannot be had.
"""

from __future__ import annotations

import argparse
import functools
import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

from ansible_collections.apiary.instinct.plugins.plugin_utils.engine.flags import versions

from engine import bench, cases, choice, upstream, verdict
from engine.cases import Case
from engine.environment import ROOT, Environment, UnavailableError, environment
from engine.models import Model, models
from engine.sources import newest, pins, sources

HOME = ROOT / ".lab" / "engine"
ALWAYS = ("0.12.0", "0.14.1", "0.20.2")
MISTAKEN = (
    "Qwen/Qwen3-235B-A22B-Instruct-2507-FP8",
    "deepseek-ai/DeepSeek-V3.2",
    "meta-llama/Llama-3.1-405B-Instruct",
    "moonshotai/Kimi-K2.5",
)
CANARY = "meta-llama/Llama-3.1-405B-Instruct"


class Hearing(NamedTuple):
    """What came of one release: its line of the table, its disagreements, and every opinion."""

    row: tuple[str, ...]
    problems: list[str]
    records: list[dict[str, Any]]


def main() -> int:
    arguments = parser().parse_args()
    try:
        return judge(arguments)
    except UnavailableError as missing:
        if arguments.optional:
            say(f"skipped: {missing}")
            return 0
        print(f"test-engine: {missing}", file=sys.stderr)
        return 3


def parser() -> argparse.ArgumentParser:
    result = argparse.ArgumentParser(prog="python -m engine", description=(__doc__ or "").strip())
    result.add_argument(
        "versions", nargs="*", help="releases; the usual four, or `all`: pinned ones"
    )
    result.add_argument("--gpu", default="MI325X", choices=sorted(bench.COMPUTE_UNITS))
    result.add_argument("--small", action="store_true", help="only known models, few of each kind")
    result.add_argument("--draws", type=int, default=1, help="cases for each model and layout")
    result.add_argument("--only", default="", help="cases with this in their name")
    result.add_argument("--turns", type=int, default=0, help="so many, by the commit's turn")
    result.add_argument("--configs", type=Path, help="a directory of more NAME_config.json")
    result.add_argument("--jobs", type=int, default=2, help="releases at once")
    result.add_argument(
        "--optional", action="store_true", help="say so and end with 0 where it cannot be had"
    )
    result.add_argument(
        "--kept", action="store_true", help="judge nothing; tell what earlier runs have shown"
    )
    result.add_argument("--report", type=Path, help="write every opinion here, as JSON")
    return result


def judge(arguments: argparse.Namespace) -> int:
    say(f"preparing Python and vLLM's sources in {HOME.relative_to(ROOT)}")
    env = environment(HOME)
    releases = chosen(arguments.versions, env, arguments.turns)
    places = {version: sources(version, HOME, env) for version in releases}
    known = models(HOME, real=not arguments.small, more=arguments.configs)
    say(f"{len(releases)} releases judge on 8 × {arguments.gpu}: {', '.join(releases)}")
    put = docket(releases, known, arguments)
    with ThreadPoolExecutor(arguments.jobs) as pool:
        # The newest has most commands, so it comes first.
        results = list(
            pool.map(
                lambda version: hear(version, places[version], env, known, put(version), arguments),
                reversed(releases),
            )
        )[::-1]
    print(verdict.table([one.row for one in results]))
    for one in results:
        print(f"{one.row[0]} on {arguments.gpu}: {verdict.summary(one.records)}")
    problems = [problem for one in results for problem in one.problems]
    for problem in problems:
        print(f"\n{problem}")
    if arguments.report:
        arguments.report.write_text(
            json.dumps({one.row[0]: one.records for one in results}, indent=1) + "\n"
        )
    print(f"\n{len(problems)} kinds of disagreement" if problems else "\nno disagreement")
    return 1 if problems else 0


def turns(releases: Sequence[str], commit: str, count: int) -> list[str]:
    """Return so many releases far from each other, others for the next commit."""
    first = int(commit[:8] or "0", 16) % len(releases)
    places = {(first + index * len(releases) // count) % len(releases) for index in range(count)}
    return [releases[place] for place in sorted(places)]


def commit() -> str:
    """Return the commit of the checkout; zero where there is none."""
    git = ["git", "-C", str(ROOT), "rev-parse", "HEAD"]
    done = subprocess.run(git, capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else "0"


def chosen(asked: list[str], env: Environment, count: int = 0) -> list[str]:
    """Return the releases to judge, oldest first: the requested, some in turn, or the usual."""
    if asked == ["all"]:
        return list(pins())
    if count:
        return turns(list(pins()), commit(), count)
    if asked:
        return asked
    try:
        last = newest(env)
    except UnavailableError as missing:
        last = list(pins())[-1]
        say(f"{missing}; taking {last}, the newest pinned")
    if last not in pins():
        say(f"vLLM {last} is newer than the pins: its hash is not checked")
    if last not in versions():
        say(f"vLLM {last} is newer than the rules: it gets those of {versions()[-1]}")
    return [*ALWAYS, *([last] if last not in ALWAYS else [])]


def docket(
    releases: Sequence[str], known: dict[str, Model], arguments: argparse.Namespace
) -> Callable[[str], list[Case]]:
    """Return what gives the cases of a release.

    Of `all` the newest gets everything, and each other one as few as show what they all show.
    """
    lock, newest_of_all = threading.Lock(), list(pins())[-1]
    seed = newest_of_all if arguments.versions == ["all"] else None

    @functools.cache
    def every(version: str) -> list[Case]:
        return questions(version, known, arguments, seed)

    def put(version: str) -> list[Case]:
        with lock:  # neighbours need each other's
            found = every(version)
            if seed not in (None, version):
                place = releases.index(version)
                beside = [releases[place - 1 : place], releases[place + 1 : place + 2]]
                before, after = ([case for one in near for case in every(one)] for near in beside)
                found = choice.telling(found, before, after)
        golden = cases.golden(version, fitting(known, version)) if arguments.gpu == "MI325X" else ()
        return [case for case in cases.distinct([*golden, *found]) if arguments.only in case.id]

    return put


def fitting(known: dict[str, Model], version: str) -> dict[str, Model]:
    return {name: model for name, model in known.items() if model.fits(version)}


def questions(
    version: str, known: dict[str, Model], arguments: argparse.Namespace, seed: str | None = None
) -> list[Case]:
    """Return all cases of a release but the golden ones; releases of one seed have the same."""
    gpu, small = arguments.gpu, arguments.small
    fit, drawn = fitting(known, version), fitting(known, seed or version)
    layouts = cases.SMALL_LAYOUTS if small else cases.LAYOUTS
    mistaken = MISTAKEN[:2] if small else MISTAKEN
    whole = [fit[name] for name in mistaken] if small else fit.values()
    return cases.distinct(
        [
            *cases.generated(version, drawn.values(), gpu, arguments.draws, layouts, seed),
            *cases.mistaken(version, fit, mistaken, gpu, small),
            *upstream.commands(version, gpu, upstream.models(HOME), small),
            *cases.measured(version, whole, gpu),
        ]
    )


def hear(
    version: str,
    place: Path,
    env: Environment,
    known: dict[str, Model],
    put: list[Case],
    arguments: argparse.Namespace,
) -> Hearing:
    """Put the cases to one release."""
    begun = time.monotonic()
    gpu = arguments.gpu
    shared = put[0].env if put else {}
    canaries = cases.canaries(known[CANARY], gpu, shared)
    classes = [] if arguments.only else [Case("classes", gpu, ("classes", "registered"), shared)]
    log = HOME / f"{version}-{gpu}.log"
    said = bench.opinions(place, env, [*canaries, *classes, *put], gpu, log, arguments.kept)
    if arguments.kept:
        say(f"{version}: {sum(case.id in said for case in put)} of {len(put)} commands were judged")
        put = [case for case in put if case.id in said]
        canaries = tuple(case for case in canaries if case.id in said)
    verdicts = [verdict.verdict(case, said[case.id]) for case in put]
    silent = verdict.canary_problem(verdict.verdict(case, said[case.id]) for case in canaries)
    problems = [f"vLLM {version}: {silent}"] if silent else []
    problems += verdict.disagreements(version, verdicts)
    if "classes" in said:
        problems += verdict.foreign(version, said["classes"])
    part = arguments.small or arguments.only or arguments.kept
    never = [] if part else verdict.unfed(version, verdicts, gpu)
    problems += [f"vLLM {version}: no case feeds {rule}" for rule in never]
    return Hearing(
        verdict.row(version, verdicts, time.monotonic() - begun),
        problems,
        [verdict.record(one, said[one.case.id]) for one in verdicts],
    )


def say(text: str) -> None:
    print(f"test-engine: {text}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
