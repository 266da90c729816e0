# SPDX-License-Identifier: GPL-3.0-or-later

"""The command `apiary bench`: engines under load, level after level, each one evaluated."""

from __future__ import annotations

import ipaddress
import math
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, get_args
from urllib.parse import urlsplit

import click
from ansible_collections.apiary.instinct.plugins.module_utils.load import run as bench_run
from ansible_collections.apiary.instinct.plugins.plugin_utils.bench import ledger
from ansible_collections.apiary.instinct.plugins.plugin_utils.bench.place import Served
from ansible_collections.apiary.instinct.plugins.plugin_utils.bench.run.conduct import (
    begin,
    conduct,
    served_of,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.bench.run.drive import Progress, words
from ansible_collections.apiary.instinct.plugins.plugin_utils.bench.run.level import (
    Backend,
    inspection_of,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.bench.run.preflight import (
    plain_addresses,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.bench.run.session import Session
from ansible_collections.apiary.instinct.plugins.plugin_utils.bench.types import (
    Bench,
    Phase,
    Requested,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.documents import knowledge
from ansible_collections.apiary.instinct.plugins.plugin_utils.files import read_text
from ansible_collections.apiary.instinct.plugins.plugin_utils.findings import ApiaryError, error
from ansible_collections.apiary.instinct.plugins.plugin_utils.numbers import parse_cpulist
from rich.progress import Progress as Bars
from rich.progress import TextColumn, TimeElapsedColumn

from apiary.app import output
from apiary.app.inputs import json_option
from apiary.app.options import price_option
from apiary.app.output import echo, exit_code, print_document, report, show
from apiary.bench.summary import bench_summary

KEY_VARIABLE = "VLLM_API_KEY"
PHASES = tuple(one for one in get_args(Phase) if one not in ("warmup", "fixed"))


Options = Mapping[str, Any]


@click.command()
@click.argument("urls", nargs=-1, metavar="URL…")
@click.option("--workload", help="As 5600/140 (tokens), a name, or trace:LOG; default 500/100.")
@click.option("--slo", default="", metavar="LIMITS", help="As ttft:p90:2s,tpot:p90:50ms.")
@click.option("--phases", metavar="LIST", help=f"Of {', '.join(PHASES)}, by commas.")
@click.option("--concurrency", metavar="LIST", help="Levels to measure; else 1, 2, 4, … to --most.")
@click.option("--request-rate", metavar="LIST", help="Requests a second of open levels.")
@click.option("--most", default=1024, show_default=True, type=click.IntRange(1))
@click.option("--stress", multiple=True, metavar="WORKLOAD", help="One more load; repeatable.")
@click.option("--repeats", default=1, show_default=True, type=click.IntRange(1))
@click.option(
    "--engine-runs",
    default=1,
    show_default=True,
    type=click.IntRange(1),
    help="How often engines are started anew.",
)
@click.option("--restart-command", metavar="COMMAND", help="Restarts them and waits, no shell.")
@click.option(
    "--search-by",
    default="both",
    show_default=True,
    type=click.Choice(["both", "concurrency", "request_rate"]),
    help="What the SLO search raises: streams, random arrivals, or first one, then the other.",
)
@click.option("--seed", type=int, help="Of the prompts; else each new OUT has its own.")
@click.option(
    "--soak", type=click.IntRange(1), metavar="SECONDS", help="One long level at the end."
)
@click.option(
    "--rule",
    multiple=True,
    metavar="NAME=NUMBER",
    help="Replace a number of the protocol; repeatable.",
)
@click.option(
    "--backend",
    type=click.Choice(get_args(Backend)),
    default="vllm",
    show_default=True,
    help="The load generator.",
)
@click.option("--command", metavar="WORDS", help="How `vllm` is called there.")
@click.option("--image", help="Run the client in a container of this image, the server's own.")
@click.option(
    "--container-engine",
    type=click.Choice(["docker", "podman"]),
    help="What runs --image; default that of the plan, or docker.",
)
@click.option("--version", "version", help="Version of the client's vLLM; else it is asked.")
@click.option("--session-header", metavar="NAME", help="The header that has a session's key.")
@click.option(
    "--client-cpus",
    metavar="LIST",
    help="CPUs of the client, as 0-15, or `apart`: the NUMA nodes without replicas of --plan.",
)
@click.option("--self-test/--no-self-test", default=True, help="Test the client against a mock.")
@click.option("--timeout", type=click.FloatRange(1), help="Seconds after which a level has hung.")
@click.option("--plan", "plans", multiple=True, metavar="PLAN", help="What serves; repeatable.")
@click.option("--metrics", multiple=True, metavar="URL", help="Engines' metrics, or `none`.")
@click.option("--model", help="The name that is served; else the only one that is.")
@click.option("--tokenizer", help="Path or name of the tokenizer.")
@click.option("--gpus", type=click.IntRange(1), help="How many GPUs serve.")
@click.option("--hosts", type=click.IntRange(1), help="How many hosts serve.")
@click.option("--gpu-metrics", metavar="WHAT", help="sysfs, none, or URLs of AMD's exporters.")
@click.option(
    "--api-key-file",
    type=click.Path(exists=True, dir_okay=False),
    help=f"File with the engines' key; else the variable {KEY_VARIABLE}.",
)
@price_option
@click.option("--name", help="What the result is called.")
@click.option("--out", default="bench", show_default=True, help="Directory; the same one resumes.")
@json_option
def bench(**options: Any) -> int:
    """Measure engines under load, and say which of it counts.

    \b
    apiary bench http://gpu-001:8000 --workload 5600/140 --slo ttft:p90:2s,tpot:p90:50ms
    apiary bench --plan plan.json --command /opt/vllm/bin/vllm
    apiary bench http://127.0.0.1:8000 --backend builtin --phases scaling --concurrency 1,8,64

    Levels are kept in OUT/raw before they are evaluated: run again with the same --out to go on.
    """
    served, out = served_of(options["plans"]), options["out"]
    arguments = _arguments(options, served)
    try:
        result = _measure(options, arguments, served)
    except KeyboardInterrupt:
        echo(f"{out} keeps what was measured; the same command goes on", err=True)
        raise
    if options["as_json"]:
        print_document(result)
    else:
        show(bench_summary(result))
        echo(f"{out}/bench.json: apiary report {out}/bench.json")
    report(result.findings, options["as_json"])
    return exit_code(result.findings)


def _measure(options: Options, arguments: Options, served: Served | None) -> Bench:
    """Run it on this machine, with its progress on stderr."""
    secrets = _secrets(options["api_key_file"])
    with Shown(quiet=options["as_json"]) as shown:
        order, session = begin(arguments, served, partial(execute, secrets))
        if options["restart_command"]:
            argv = tuple(shlex.split(options["restart_command"]))
            session.restart = Restart(argv, session)
        return conduct(order, session, shown)


def _arguments(options: Options, served: Served | None) -> Options:
    """Return the arguments of module `bench`: what was typed, else what the plan says."""
    urls, metrics = _addresses(options, served)
    model = options["model"] or (served.model if served else "")
    cpus, plain = options["client_cpus"], not options["command"] and not options["image"]
    if cpus == "apart" and not served:
        raise click.UsageError("--client-cpus apart needs --plan, which says where replicas run")
    try:
        parse_cpulist(cpus if cpus and cpus != "apart" else "0")
    except ValueError:
        raise click.UsageError("--client-cpus: a list as 0-15,32 is meant, or `apart`") from None
    engine = served.container_engine if served else "docker"
    return {
        **options,
        "name": options["name"] or model or "bench",
        "dest": options["out"],
        "urls": urls,
        "metrics": metrics,
        "model": model,
        "workload": options["workload"] or "500/100",
        "requested": _requested(options),
        "command": shlex.split(options["command"] or (served.executable if served else "vllm")),
        "image": options["image"] or (served.image if served and plain else None),
        "container_engine": options["container_engine"] or engine,
        "replica_cpus": [],
        "gpu_metrics": options["gpu_metrics"] or ("sysfs" if all(map(_local, urls)) else "none"),
        # The words that were typed; none of them is a key.
        "environment": {"command": ["apiary", *sys.argv[1:]]},
        "rules": _replaced_rules(options["rule"]),
        "engine_run": 0,
    }


def _addresses(options: Options, served: Served | None) -> tuple[Sequence[str], Sequence[str]]:
    """Return what is measured, and the pages of metrics behind it."""
    urls = options["urls"]
    if not urls and served and served.hosts == 1:
        host = served.environment["hosts"][0]
        urls = tuple(f"{served.scheme}://{host}:{port}" for port in served.ports)
    if not urls:
        raise click.UsageError("give the URL of an engine or a router, or one --plan")
    own = tuple(url for url in options["metrics"] if url != "none")
    for url in (*urls, *own):
        if "@" not in url and not url.startswith(("http://", "https://")):
            raise click.UsageError(f"{url} is no URL: http://HOST:PORT is meant")
    plain_addresses((*urls, *own))
    usual = [f"{url.rstrip('/')}/metrics" for url in urls]
    return urls, own if options["metrics"] else usual


def _requested(options: Options) -> dict[str, Any]:
    """Return fields of what is requested; raises UsageError where options do not go together."""
    timeout = options["timeout"]
    if timeout is not None and not math.isfinite(timeout):
        raise click.UsageError(f"--timeout: {timeout} is no number of seconds")
    if options["engine_runs"] > 1 and not options["restart_command"]:
        raise click.UsageError("--engine-runs needs a --restart-command")
    names = ("most", "stress", "repeats", "engine_runs", "search_by")
    fields = {name: options[name] for name in names} | {
        "concurrency": _numbers(options["concurrency"], int, "--concurrency"),
        "request_rate": _numbers(options["request_rate"], float, "--request-rate"),
        "phases": _phases(options),
    }
    given = {"seed": options["seed"], "soak_seconds": options["soak"]}
    return fields | {name: value for name, value in given.items() if value is not None}


def _phases(options: Options) -> list[str]:
    """Return the phases: those that were named, else those that the other options need."""
    if options["phases"]:
        chosen = [word.strip() for word in options["phases"].split(",")]
        wrong = [item for item in chosen if item not in PHASES]
        if wrong:
            raise click.UsageError(f"--phases: {', '.join(wrong)}: not of {', '.join(PHASES)}")
    else:
        chosen = [item for item in Requested.phases if item != "slo" or options["slo"]]
        chosen += ["stress"] if options["stress"] else []
        chosen += ["open"] if options["request_rate"] else []
    if options["soak"] and "soak" not in chosen:
        chosen.append("soak")
    return chosen


def _local(url: str) -> bool:
    """Return whether a URL is of this machine."""
    host = urlsplit(url).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _secrets(path: str | None) -> dict[str, str]:
    """Return the engines' key by the variable that load generators read it from."""
    text = read_text(path) if path else os.environ.get(KEY_VARIABLE, "")
    key = text.strip().partition("\n")[0].strip()
    return {"OPENAI_API_KEY": key} if key else {}


def _numbers(text: str | None, kind: type[int] | type[float], option: str) -> list[float]:
    """Return the numbers of a list as 1,8,64; raises UsageError."""
    try:
        result = [kind(word) for word in text.split(",")] if text else []
    except ValueError:
        result = [0]
    if not all(0 < item < math.inf for item in result):
        raise click.UsageError(f"{option}: {text}: numbers above 0 are meant, as 1,8,64")
    return result


def _replaced_rules(given: Iterable[str]) -> dict[str, Any]:
    """Return the protocol's numbers that are replaced, by name; raises UsageError."""
    known = {
        name: one for name, one in vars(ledger.rules()).items() if isinstance(one, int | float)
    }
    matches: dict[str, Any] = {}
    for text in given:
        name, _, value = text.partition("=")
        if name not in known:
            raise click.UsageError(f"--rule {text}: NAME=NUMBER is meant, of {', '.join(known)}")
        try:
            matches[name] = type(known[name])(value)
        except ValueError:
            matches[name] = math.nan
        if not math.isfinite(matches[name]):
            raise click.UsageError(f"--rule {text}: {value} is no number for it")
    return matches


def execute(secrets: dict[str, str], request: dict[str, Any]) -> dict[str, Any]:
    """Run one request on this machine; raise BENCH-HOST where it cannot be run at all."""
    try:
        return bench_run.run({**request, "secrets": secrets})
    except bench_run.BenchError as failure:
        raise error("BENCH-HOST", "this machine", f"cannot run a level: {failure}") from failure


@dataclass(frozen=True)
class Restart:
    """Restarts the engines by a command on this machine, and waits until they serve."""

    argv: tuple[str, ...]
    session: Session

    def __call__(self, engine_run: int) -> None:
        """Make the next engine run; raise BENCH-RESTART where the engines do not come back."""
        try:
            done = subprocess.run(self.argv, capture_output=True, check=False, text=True)
        except OSError as failure:
            raise self._refusal(f"cannot be run: {failure.strerror or failure}") from failure
        if done.returncode:
            last = (done.stderr.strip() or done.stdout.strip() or "no output").splitlines()[-1]
            raise self._refusal(f"ended with {done.returncode}: {last[:200]}")
        facts = knowledge("bench/run.yml")["restart"]
        deadline = time.monotonic() + facts["ready_seconds"]
        inspection = {**inspection_of(self.session.target, self.session.client), "client": []}
        while True:
            seen = self.session.execute(inspection)
            if all(server["completion"][0] == 200 for server in seen["servers"]):
                return
            if time.monotonic() > deadline:
                raise self._refusal(f"no answer within {facts['ready_seconds']} s after it")
            time.sleep(facts["ask_seconds"])

    def _refusal(self, why: str) -> ApiaryError:
        return error("BENCH-RESTART", shlex.join(self.argv), why)


class Shown:
    """A line for each level, and on a terminal one that lives while it is measured."""

    def __init__(self, quiet: bool) -> None:
        self.quiet = quiet
        self.console = output.console(stderr=True)
        columns = (TextColumn("{task.description}", markup=False), TimeElapsedColumn())
        alive = output.alive(self.console) and not quiet
        self.bars = Bars(*columns, console=self.console, disable=not alive, transient=True)

    def __enter__(self) -> Shown:
        self.bars.start()
        return self

    def __exit__(self, *_why: object) -> None:
        self.bars.stop()

    def __call__(self, progress: Progress) -> None:
        """Take one step of the protocol."""
        if self.quiet:
            return
        for task in self.bars.task_ids:
            self.bars.remove_task(task)
        if progress.level is None:
            self.bars.add_task(f"level {progress.done + 1}, {words(progress)}", total=None)
        elif self.bars.disable:
            output.echo(words(progress), err=True)
        else:
            self.bars.console.print(words(progress))
