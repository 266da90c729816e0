# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The command `apiary bench`: engines under load, level after level, each one evaluated."""

from __future__ import annotations

import ipaddress
import math
import os
import shlex
import sys
from collections.abc import Iterable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, cast, get_args
from urllib.parse import urlsplit

import click
from ansible_collections.apiary.instinct.plugins.plugin_utils.bench.of_plan import (
    Served,
    served_by,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.bench.run.conduct import (
    Order,
    asked_of,
    conduct,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.bench.run.level import (
    Backend,
    Client,
    cpus_of,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.bench.run.preflight import (
    plain_addresses,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.bench.run.session import Session
from ansible_collections.apiary.instinct.plugins.plugin_utils.bench.types import (
    Asked,
    Bench,
    Phase,
    Target,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.files import read_text

from apiary.app.inputs import json_option, load_plan
from apiary.app.output import exit_code, print_document, report, show
from apiary.bench.numbers import numbers, replaced_rules
from apiary.bench.progress import Shown
from apiary.bench.runner import Here, Remote, Restart
from apiary.bench.summary import bench_summary
from apiary.host.ssh.probe import SshOptions

KEY_VARIABLE = "VLLM_API_KEY"
PHASES = tuple(one for one in get_args(Phase) if one not in ("warmup", "fixed"))


@dataclass(frozen=True)
class Given:
    """The options of the command."""

    urls: tuple[str, ...]
    workload: str | None
    slo: str
    phases: str | None
    concurrency: str | None
    request_rate: str | None
    most: int
    stress: tuple[str, ...]
    repeats: int
    lives: int
    restart_command: str | None
    search_by: str
    seed: int | None
    soak: int | None
    rule: tuple[str, ...]
    backend: str
    command: str | None
    image: str | None
    container_engine: str | None
    version: str | None
    session_header: str | None
    client_cpus: str | None
    self_test: bool
    timeout: float | None
    load_host: str | None
    identity: str | None
    known_hosts: str | None
    plans: tuple[str, ...]
    metrics: tuple[str, ...]
    model: str | None
    tokenizer: str | None
    gpus: int | None
    hosts: int | None
    gpu_metrics: str | None
    api_key_file: str | None
    name: str | None
    out: str
    as_json: bool


@click.command()
@click.argument("urls", nargs=-1, metavar="URL…")
@click.option("--workload", help="INPUT/OUTPUT tokens as 5600/140, or a name; default 500/100.")
@click.option("--slo", default="", metavar="LIMITS", help="As ttft:p90:2s,tpot:p90:50ms.")
@click.option("--phases", metavar="LIST", help=f"Of {', '.join(PHASES)}, by commas.")
@click.option("--concurrency", metavar="LIST", help="Levels to measure; else 1, 2, 4, … to --most.")
@click.option("--request-rate", metavar="LIST", help="Requests a second of open levels.")
@click.option("--most", default=1024, show_default=True, type=click.IntRange(1))
@click.option("--stress", multiple=True, metavar="WORKLOAD", help="One more load; repeatable.")
@click.option("--repeats", default=1, show_default=True, type=click.IntRange(1))
@click.option(
    "--engine-runs",
    "--lives",  # as it was called first
    "lives",
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
@click.option("--load-host", metavar="USER@HOST", help="Send the load from there, over SSH.")
@click.option("--identity", type=click.Path(exists=True, dir_okay=False), help="Private key file.")
@click.option(
    "--known-hosts",
    type=click.Path(exists=True, dir_okay=False),
    help="Host keys of load hosts to trust instead of ~/.ssh/known_hosts.",
)
@click.option("--plan", "plans", multiple=True, metavar="PLAN", help="What serves; repeatable.")
@click.option("--metrics", multiple=True, metavar="URL", help="Engines' metrics, or `none`.")
@click.option("--model", help="The name that is served; else the only one that is.")
@click.option("--tokenizer", help="Path or name of the tokenizer on the load host.")
@click.option("--gpus", type=click.IntRange(1), help="How many GPUs serve.")
@click.option("--hosts", type=click.IntRange(1), help="How many hosts serve.")
@click.option("--gpu-metrics", metavar="WHAT", help="sysfs, none, or the URL of AMD's exporter.")
@click.option(
    "--api-key-file",
    type=click.Path(exists=True, dir_okay=False),
    help=f"File with the engines' key; else the variable {KEY_VARIABLE}.",
)
@click.option("--name", help="What the result is called.")
@click.option("--out", default="bench", show_default=True, help="Directory; the same one resumes.")
@json_option
def bench(**options: Any) -> int:
    """Measure engines under load, and say which of it counts.

    \b
    apiary bench http://gpu-001:8000 --workload 5600/140 --slo ttft:p90:2s,tpot:p90:50ms
    apiary bench --plan plan.json --load-host load-001 --command /opt/vllm/bin/vllm
    apiary bench http://127.0.0.1:8000 --backend builtin --phases scaling --concurrency 1,8,64

    Levels are kept in OUT/raw before they are evaluated: run again with the same --out to go on.
    """
    given = Given(**options)
    served = _served(given.plans)
    target = _target(given, served)
    asked = _asked(given)
    order = Order(
        given.name or (served.model if served else given.model) or "bench",
        asked,
        Path(given.out),
        {**(served.environment if served else {}), "command": _repeatable()},
        replaced_rules(given.rule),
        own_seed=given.seed is None,
    )
    try:
        result = _measure(given, order, target, _client(given, served, target))
    except KeyboardInterrupt:
        click.echo(f"{order.directory} keeps what was measured; the same command goes on", err=True)
        raise
    if given.as_json:
        print_document(result)
    else:
        show(bench_summary(result))
        click.echo(f"{order.directory}/bench.json: apiary report {order.directory}/bench.json")
    report(result.findings, given.as_json)
    return exit_code(result.findings)


def _measure(given: Given, order: Order, target: Target, client: Client) -> Bench:
    """Run it on the load host, with its progress on stderr."""
    secrets = _secrets(given.api_key_file)
    options = SshOptions(identity=given.identity, known_hosts=given.known_hosts)
    where = Remote(given.load_host, options, secrets) if given.load_host else Here(secrets)
    with where, Shown(quiet=given.as_json) as shown:
        session = Session(target, client, where.execute)
        if given.restart_command:
            session.restart = Restart(tuple(shlex.split(given.restart_command)), session)
        return conduct(order, session, shown)


def _served(names: Iterable[str]) -> Served | None:
    plans = [(load_plan(name), read_text(name)) for name in names]
    return served_by(plans) if plans else None


def _target(given: Given, served: Served | None) -> Target:
    """Return what is measured: what was typed, else what the plan says."""
    urls = given.urls
    if not urls and served and served.hosts == 1:
        host = served.environment["hosts"][0]
        urls = tuple(f"http://{host}:{port}" for port in served.ports)
    if not urls:
        raise click.UsageError("give the URL of an engine or a router, or one --plan")
    for url in (*urls, *(metric for metric in given.metrics if metric != "none")):
        if "@" not in url and not url.startswith(("http://", "https://")):
            raise click.UsageError(f"{url} is no URL: http://HOST:PORT is meant")
    plain_addresses((*urls, *(metric for metric in given.metrics if metric != "none")))
    metrics = tuple(f"{url.rstrip('/')}/metrics" for url in urls)
    if given.metrics:
        metrics = tuple(url for url in given.metrics if url != "none")
    return Target(
        urls=tuple(url.rstrip("/") for url in urls),
        model=given.model or (served.model if served else ""),
        metrics=metrics,
        tokenizer=given.tokenizer or (served.tokenizer if served else None),
        gpus=given.gpus or (served.gpus if served else None),
        hosts=given.hosts or (served.hosts if served else None),
    )


def _asked(given: Given) -> Asked:
    """Return what is asked for; raises UsageError where options do not go together."""
    if given.timeout is not None and not math.isfinite(given.timeout):
        raise click.UsageError(f"--timeout: {given.timeout} is no number of seconds")
    if given.lives > 1 and not given.restart_command:
        raise click.UsageError("--engine-runs needs a --restart-command")
    wanted: dict[str, Any] = {
        "most": given.most,
        "stress": list(given.stress),
        "repeats": given.repeats,
        "lives": given.lives,
        "seed": given.seed or 0,
        "search_by": given.search_by,
        "concurrency": numbers(given.concurrency, int, "--concurrency"),
        "request_rate": numbers(given.request_rate, float, "--request-rate"),
    }
    phases = _phases(given)
    if phases:
        wanted["phases"] = phases
    if given.soak:
        wanted["soak_seconds"] = given.soak
    return asked_of(wanted, given.workload or "500/100", given.slo, "the options")


def _phases(given: Given) -> list[str]:
    """Return the phases: those that were named, else those that the other options need."""
    if given.phases:
        chosen = [word.strip() for word in given.phases.split(",")]
        wrong = [item for item in chosen if item not in PHASES]
        if wrong:
            raise click.UsageError(f"--phases: {', '.join(wrong)}: not of {', '.join(PHASES)}")
    else:
        usual = {field.name: field.default for field in fields(Asked)}["phases"]
        chosen = [item for item in cast(tuple[str, ...], usual) if item != "slo" or given.slo]
        chosen += ["stress"] if given.stress else []
        chosen += ["open"] if given.request_rate else []
    if given.soak and "soak" not in chosen:
        chosen.append("soak")
    return chosen


def _client(given: Given, served: Served | None, target: Target) -> Client:
    """Return the load generator that was asked for, else that of the plan's own engine."""
    plain = not given.command and not given.image
    image = given.image or (served.image if served and plain else None)
    command = shlex.split(given.command) if given.command else []
    if not command:
        command = [served.executable if served else "vllm"]
    apart = given.client_cpus == "apart"
    if apart and not served:
        raise click.UsageError("--client-cpus apart needs --plan, which says where replicas run")
    try:
        cpus = cpus_of(given.client_cpus) if given.client_cpus and not apart else ()
    except ValueError:
        raise click.UsageError("--client-cpus: a list as 0-15,32 is meant, or `apart`") from None
    busy = (cpu for text in (served.cpus if served else ()) for cpu in cpus_of(text))
    here = given.load_host is None and all(_local(url) for url in target.urls)
    return Client(
        backend=cast(Backend, given.backend),
        version=given.version,
        command=tuple(command),
        image=image,
        engine=given.container_engine or (served.container_engine if served else "docker"),
        cpus=cpus,
        apart_from=tuple(busy) if apart else None,
        gpus=given.gpu_metrics or ("sysfs" if here else "none"),
        self_test=given.self_test,
        timeout=given.timeout,
        session_header=given.session_header,
    )


def _local(url: str) -> bool:
    """Say whether a URL is of this machine."""
    host = urlsplit(url).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _secrets(path: str | None) -> dict[str, str]:
    """Return the engines' key by the variable that load generators read it from."""
    key = read_text(path).strip() if path else os.environ.get(KEY_VARIABLE, "").strip()
    return {"OPENAI_API_KEY": key} if key else {}


def _repeatable() -> list[str]:
    """Return the words that were typed; none of them is a key."""
    return ["apiary", *sys.argv[1:]]
