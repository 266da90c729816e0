# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The options of module `bench`, which `apiary bench` fills too, as an order and a session."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from ...cpulist import parse_cpulist
from ...files import read_text
from ...findings import error
from ...plan.check import parse_plan
from ..of_plan import Served, served_by
from ..types import Target
from .conduct import Order, requested_of
from .level import Client
from .session import Execute, Session

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
