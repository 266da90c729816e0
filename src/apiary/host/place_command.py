# SPDX-License-Identifier: GPL-3.0-or-later

"""`apiary place`: one host for a person, or a whole fleet a line each."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TextIO

import click
from ansible_collections.apiary.instinct.plugins.plugin_utils.documents import (
    from_document,
    to_document,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.findings import (
    ApiaryError,
    Finding,
    error,
    has_errors,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.placement.costs import COSTS
from ansible_collections.apiary.instinct.plugins.plugin_utils.placement.place import Placed, total
from ansible_collections.apiary.instinct.plugins.plugin_utils.placement.place import (
    place as place_replicas,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.placement.request import spelled
from ansible_collections.apiary.instinct.plugins.plugin_utils.placement.types import (
    Placement,
    Request,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.plan.explain import (
    cost_words,
    why_these,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.topology.read import (
    check_sound,
    from_evidence,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.topology.types import Topology

from apiary.app.inputs import json_option, load_plan, load_topology
from apiary.app.output import EXIT_FINDINGS, echo, exit_code, grid, print_document, report, show


@dataclass(frozen=True)
class _Line:
    """A request of --jsonl; ``keep`` are the GPUs that each replica has now."""

    topology: dict[str, Any]
    sizes: tuple[int, ...]
    exclude: tuple[str, ...] = ()
    require: tuple[tuple[str, ...], ...] = ()
    keep: tuple[tuple[str, ...], ...] = ()


@click.command(name="place")
@click.argument("topology_file", metavar="[TOPOLOGY]", required=False, type=click.Path())
@click.option("--tp", type=int, help="tensor_parallel_size: GPUs per replica.")
@click.option("--replicas", default=1, show_default=True, type=int)
@click.option(
    "--sizes", metavar="N,N,…", help="GPUs of each replica, instead of --tp × --replicas."
)
@click.option("--busy", multiple=True, metavar="BDF", help="A GPU to leave out; repeatable.")
@click.option(
    "--require",
    multiple=True,
    metavar="N:BDF,BDF…",
    help="GPUs that replica N (from 0) must have; repeatable.",
)
@click.option(
    "--keep",
    metavar="PLAN",
    type=click.Path(),
    help="Replicas of this plan that can stay keep their GPUs.",
)
@click.option(
    "--cost",
    type=click.Choice(list(COSTS)),
    default="fabric",
    show_default=True,
    help="What counts.",
)
@click.option(
    "--jsonl", is_flag=True, help="A request a line on stdin, an answer a line on stdout."
)
@json_option
def place_command(
    topology_file: str | None,
    tp: int | None,
    replicas: int,
    sizes: str | None,
    busy: tuple[str, ...],
    require: tuple[str, ...],
    keep: str | None,
    cost: str,
    jsonl: bool,
    as_json: bool,
) -> int:
    """Cut a host into replicas, all at once, at the least cost.

    \b
    apiary place evidence/gpu-001.json --tp 4 --replicas 2
    apiary place evidence/gpu-001.json --sizes 4,2,1 --busy 0000:05:00.0
    apiary place evidence/gpu-001.json --tp 4 --replicas 2 --keep plan.json
    apiary place --jsonl < requests.jsonl > answers.jsonl

    \b
    A line of --jsonl:  {"topology": {…}, "sizes": [2, 4], "exclude": [BDF…], "require": [[BDF…]]}
    its answer:         {"replicas": [{"gpus": [BDF…], "cost": …}], "cost": …, "findings": […]}
    """
    if jsonl:
        if topology_file or tp or sizes or busy or require or keep:
            raise click.UsageError("--jsonl reads everything but --cost from stdin")
        failed = False
        for answer, bad in answers(sys.stdin, cost):
            echo(json.dumps(answer, sort_keys=True))
            failed = failed or bad
        return EXIT_FINDINGS if failed else 0
    if topology_file is None:
        raise click.UsageError("give a TOPOLOGY file, or --jsonl")
    if (tp is None) == (sizes is None):
        raise click.UsageError("give either --tp or --sizes")
    host = load_topology(topology_file)
    request = Request(
        sizes=_sizes(sizes) if sizes is not None else (tp or 0,) * max(replicas, 0),
        busy=busy,
        require=_required(require),
        keep=tuple(replica.gpus for replica in load_plan(keep).replicas) if keep else (),
        cost=cost,
    )
    placement = place_replicas(host, request)
    if as_json:
        print_document(placement)
    else:
        _show(placement, request)
    findings = [*host.findings, *placement.findings]
    report(findings, as_json)
    return exit_code(findings)


def _sizes(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(size) for size in text.split(","))
    except ValueError:
        raise click.BadParameter(
            f"{text!r} is not a list such as 4,2,2", param_hint="--sizes"
        ) from None


def _required(texts: tuple[str, ...]) -> tuple[tuple[str, ...], ...]:
    named: dict[int, list[str]] = {}
    for text in texts:
        number, colon, keys = text.partition(":")
        if not colon or not number.isdecimal() or not keys:
            raise click.BadParameter(f"{text!r} is not N:BDF,BDF…", param_hint="--require")
        named.setdefault(int(number), []).extend(keys.split(","))
    return tuple(tuple(named.get(index, ())) for index in range(max(named, default=-1) + 1))


def _show(placement: Placement, request: Request) -> None:
    nics = any(share.nics for share in placement.replicas)
    rows = [
        (
            str(index),
            " ".join(share.gpus),
            share.cpus or "any",
            ",".join(map(str, share.memory_nodes)) or "any",
            *[" ".join(share.nics)] * nics,
            cost_words(placement.cost_fields, share.cost),
        )
        for index, share in enumerate(placement.replicas)
    ]
    columns = ("replica", "GPUs", "CPUs", "memory nodes", *["nearest NICs"] * nics, "cost")
    show(grid(f"{placement.host}: {spelled(request.sizes)}", columns, rows))
    for line in why_these(placement):
        echo(line)
    echo(f"free: {' '.join(placement.free) or 'none'}")
    if placement.usable:
        room = ", ".join(
            f"TP{item.tensor_parallel_size} × {item.replicas} ({item.on_one_node} on one NUMA node)"
            for item in placement.usable
        )
        echo(f"still fits, either: {room}")


def answers(lines: TextIO, cost: str) -> Iterator[tuple[dict[str, Any], bool]]:
    """Yield the answer to each request, and whether a finding of it is an error.

    A line that can't be read or placed is answered by its findings; the others are not held up.
    """
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            answer, findings = _answer(line, f"line {number}", cost)
        except ApiaryError as refusal:
            answer, findings = {"replicas": [], "cost": None}, list(refusal.findings)
        answer["findings"] = to_document(findings) if findings else []
        yield answer, has_errors(findings)


def _answer(line: str, subject: str, cost: str) -> tuple[dict[str, Any], list[Finding]]:
    try:
        data = json.loads(line)
    except (ValueError, RecursionError) as failure:  # a number may have too many digits
        raise error("FILE-SYNTAX", subject, f"is not JSON: {failure}") from failure
    options = from_document(_Line, data, subject)
    document = options.topology
    if str(document.get("schema", "")).startswith("apiary.evidence/"):
        topology = from_evidence(document, subject)
    else:
        topology = from_document(Topology, {"host": subject, **document}, subject)
        check_sound(topology, subject)
    request = Request(options.sizes, options.exclude, options.require, options.keep, cost)
    placed = Placed(topology, request, runner_up=False)
    answer = {
        "host": topology.host,
        "replicas": [
            {"gpus": gpus, "cost": _number(price)}
            for gpus, price in zip(placed.replicas, placed.costs, strict=True)
        ],
        "cost": _number(total(placed.costs)),
        "exact": placed.cuts.exact,
    }
    return answer, [*topology.findings, *placed.findings()]


def _number(price: tuple[int, ...]) -> int | list[int]:
    """Return a cost as JSON has it: a number, or the list of a lexicographic one."""
    return price[0] if len(price) == 1 else list(price)
