# SPDX-License-Identifier: GPL-3.0-or-later

"""A whole benchmark for the adapters: looks, measures, keeps what it measured in a directory.

Nothing that decides imports this.
"""

from __future__ import annotations

import dataclasses
import json
import math
import secrets
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...documents import dumps, from_document, to_document
from ...files import collection_version, read_text, utc_now, write_text
from ...findings import Finding, by_severity, error
from ...numbers import parse_cpulist
from ...plan.types import parse_plan
from ...slo import slo as limits
from .. import ledger, workloads
from ..comparison import compare
from ..cost import price_of, with_cost
from ..place import Served, served_by
from ..types import Bench, Price, Requested, Target
from . import drive
from .drive import RawStore
from .level import Client
from .preflight import Seen, plain_addresses
from .session import Execute, Session

COLLECTION = Path(__file__).parents[4]
SEEDS = 2**31
Show = Callable[[drive.Progress], None]


@dataclass(frozen=True)
class Order:
    """What is requested and where it goes; ``rules`` replace some of the protocol's numbers.

    With ``own_seed`` a new directory gets a seed of its own in place of the requested one: engines
    may know the prompts of an earlier run, and where they have no metrics nobody would see it.
    """

    name: str
    requested: Requested
    directory: Path
    environment: Mapping[str, Any]
    rules: Mapping[str, Any]
    own_seed: bool = False
    price: Price | None = None


def requested_of(
    given: Mapping[str, Any], workload: str | None, slo: str, subject: str
) -> Requested:
    """Return what is requested, by a person's words and by fields of Asked.

    Raises ApiaryError (BENCH-WORKLOAD, BENCH-SLO, DOC-…); ``subject`` names where it stands.
    """
    fields = dict(given)
    fields.pop("schema", None)
    if workload:
        fields["workload"] = to_document(workloads.workload(workload))
    elif isinstance(fields.get("workload"), str):
        fields["workload"] = to_document(workloads.workload(fields["workload"]))
    if slo:
        fields["slo"] = to_document(limits(slo))
    fields["stress"] = [
        to_document(workloads.workload(one)) if isinstance(one, str) else one
        for one in fields.get("stress") or ()
    ]
    requested = from_document(Requested, fields, subject)
    rates = [rate for rate in requested.request_rate if not (math.isfinite(rate) and rate > 0)]
    sizes = [size for size in requested.concurrency if size < 1]
    if rates or sizes:
        raise error(
            "BENCH-ASKED",
            subject,
            f"a load of {', '.join(map(str, (*rates, *sizes)))} is none that can be sent",
        )
    return requested


def conduct(order: Order, session: Session, show: Show = drive.silent) -> Bench:
    """Measure all that is requested; write bench.json and each raw result; return the Bench.

    Raises ApiaryError, and NextEngineRun where somebody else must restart the engines. What was
    measured by then is kept, and replayed when the same is asked of the same directory.
    """
    target, gpus = session.target, session.client.gpus
    metrics = (*target.metrics, *gpus.split(",")) if "/" in gpus else target.metrics
    plain_addresses((*target.urls, *metrics))
    seen = session.begin()
    order, notes = _served(order, seen)
    created, seed = _claim(order, session, seen)
    requested = dataclasses.replace(order.requested, seed=seed)
    driver = drive.Drive(
        requested,
        session.run,
        RawStore(order.directory / "raw"),
        show,
        session.ready,
        session.engine_run,
    )
    environment = environment_of(order, session, seen)
    known = ledger.rules(**order.rules)
    bench = driver.bench(order.name, created, session.target, environment, known)
    answer = () if driver.stopped else _evaluated(bench)
    findings = dict.fromkeys((*bench.findings, *session.findings, *notes, *answer))
    bench = dataclasses.replace(bench, findings=tuple(sorted(findings, key=by_severity)))
    bench = with_cost(bench, order.price)
    if bench.levels or not driver.stopped:
        write_text(order.directory / "bench.json", dumps(bench))
    if driver.stopped is not None:
        raise driver.stopped
    return bench


def _evaluated(bench: Bench) -> tuple[Finding, ...]:
    """Return what is to be said of the whole: rules replaced, not checked, nothing answered."""
    replaced = compare.rules_text(bench.environment.get("rules"))
    message = f"was measured by other rules than the protocol's: {replaced}"
    others = (Finding("BENCH-THRESHOLD", bench.name, message),) if replaced else ()
    doubt = compare.doubt(bench.name, compare.unproven([bench]))
    return (*others, *doubt, *compare.unanswered(bench))


def _served(order: Order, seen: Seen) -> tuple[Order, tuple[Finding, ...]]:
    """Return the order with the version that serves, whatever a plan says, and what differs."""
    planned = order.environment.get("engine")
    if not isinstance(planned, Mapping) or not seen.version:
        return order, ()
    reported = planned.get("version")
    engine = {**planned, "version": seen.version}
    notes: tuple[Finding, ...] = ()
    if reported is not None and _plain(str(reported)) != _plain(seen.version):
        engine["planned_version"] = reported
        message = (
            f"is served by version {seen.version}, its plan says {reported}; the result is of "
        )
        notes = (Finding("BENCH-PLAN-VERSION", order.name, message + seen.version),)
    environment = {**order.environment, "engine": engine}
    return dataclasses.replace(order, environment=environment), notes


def _plain(version: str) -> str:
    """Return a version without its local part, which a build adds: 0.11.0+rocm700."""
    return version.removeprefix("v").partition("+")[0]


def environment_of(order: Order, session: Session, seen: Seen) -> dict[str, Any]:
    """Return everything around the numbers that is needed to get them again."""
    client = session.client
    return {
        "apiary": collection_version(COLLECTION),
        "engine": {"name": "vllm", "version": seen.version, "image": client.image},
        "kernel": seen.host["kernel"],
        "numa_balancing": seen.host["numa_balancing"],
        "model": session.target.model,
        "client": {
            "backend": client.backend,
            "version": client.version,
            "host": seen.host["name"],
            "cores": client.cores,
            "cpus": list(client.cpus),
            "load_before": seen.host["load"],
            "self_test": client.self_test,
            "timeout": client.timeout,
        },
        **({"rules": dict(order.rules)} if order.rules else {}),
        **order.environment,
    }


def _claim(order: Order, session: Session, seen: Seen) -> tuple[str, int]:
    """Say of what the directory is, or see that it is of the same.

    Returns when it was begun and the seed. Raises BENCH-OTHER where raw results of another target
    or client lie there.
    """
    path = order.directory / "target.json"
    engine = order.environment.get("engine")
    planned = engine if isinstance(engine, Mapping) else {}
    own = {
        **to_document(session.target),
        "plan_hash": order.environment.get("plan_hash"),
        "engine_version": seen.version,
        "image": planned.get("image") or session.client.image,
        "backend": session.client.backend,
        "version": session.client.version,
    }
    if path.exists():
        try:
            told = json.loads(read_text(str(path)))
            created, seed, other = str(told.pop("created")), int(told.pop("seed")), told
        except (ValueError, TypeError, KeyError, AttributeError):
            created, seed, other = "", 0, {}
        if other != own:
            differs = ", ".join(sorted(name for name in own if own[name] != other.get(name)))
            raise error(
                "BENCH-OTHER",
                str(order.directory),
                f"has results of another benchmark: its {differs} is another",
            )
        return created, seed if order.own_seed else order.requested.seed
    seed = secrets.randbelow(SEEDS) if order.own_seed else order.requested.seed
    created = utc_now()
    write_text(path, dumps({**own, "created": created, "seed": seed}))
    return created, seed


_OF_CLIENT = ("backend", "version", "image", "self_test", "timeout", "session_header")


def served_of(names: Iterable[str]) -> Served | None:
    """Return what the plans in these files on the controller say; None where there are none."""
    texts = {name: read_text(name) for name in names}
    plans = [(parse_plan(text, name), text) for name, text in texts.items()]
    return served_by(plans) if plans else None


def begin(
    arguments: Mapping[str, Any], served: Served | None, execute: Execute
) -> tuple[Order, Session]:
    """Return what is to be measured, and the session that runs it by ``execute``.

    What the arguments leave open is that of the plans. Raises ApiaryError.
    """
    requested = arguments["requested"]
    order = Order(
        arguments["name"],
        requested_of(requested, arguments["workload"], arguments["slo"], "requested"),
        Path(arguments["dest"]),
        {**(served.environment if served else {}), **arguments["environment"]},
        arguments["rules"],
        own_seed="seed" not in requested,
        price=price_of(arguments["gpu_hour_price"]),
    )
    open_ = ("tokenizer", "gpus", "hosts")
    target = Target(
        urls=tuple(str(url).rstrip("/") for url in arguments["urls"]),
        model=arguments["model"] or "",
        metrics=tuple(map(str, arguments["metrics"])),
        **{name: arguments[name] or getattr(served, name, None) for name in open_},
    )
    client = _client(arguments, served.cpus if served else ())
    return order, Session(target, client, execute, engine_run=arguments["engine_run"])


def _client(arguments: Mapping[str, Any], replica_cpus: Iterable[str]) -> Client:
    """Return the load generator; refuse CPUs that are no list of the kernel's."""
    cpus, bound = arguments["client_cpus"], (*arguments["replica_cpus"], *replica_cpus)
    try:
        busy = tuple(cpu for text in bound for cpu in parse_cpulist(text))
        own = parse_cpulist(cpus) if cpus and cpus != "apart" else ()
    except ValueError:
        lists = " and ".join(filter(None, (cpus, *bound)))
        raise error(
            "BENCH-CPUS", "client_cpus, replica_cpus", f"{lists}: not lists of CPUs"
        ) from None
    return Client(
        command=tuple(map(str, arguments["command"] or ("vllm",))),
        engine=arguments["container_engine"],
        cpus=own,
        apart_from=busy if cpus == "apart" else None,
        gpus=arguments["gpu_metrics"],
        **{name: arguments[name] for name in _OF_CLIENT},
    )
