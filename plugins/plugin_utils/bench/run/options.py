# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The options that `apiary bench` and the action `bench` share, as target and load generator."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ...cpulist import parse_cpulist
from ..of_plan import Served
from ..types import Target
from .level import Client


def target_of(
    options: Mapping[str, Any], served: Served | None, urls: Iterable[str], metrics: Iterable[str]
) -> Target:
    """Return what is measured; what the options leave open is that of the plans."""
    open_ = ("tokenizer", "gpus", "hosts")
    return Target(
        urls=tuple(str(url).rstrip("/") for url in urls),
        model=options["model"] or "",
        metrics=tuple(map(str, metrics)),
        **{name: options[name] or getattr(served, name, None) for name in open_},
    )


def client_of(
    options: Mapping[str, Any],
    served: Served | None,
    command: Iterable[str],
    engine: str,
    gpus: str,
) -> Client:
    """Return the load generator; raise ValueError where CPUs are no list of the kernel's."""
    bound = (*options.get("replica_cpus", ()), *(served.cpus if served else ()))
    busy = tuple(cpu for text in bound for cpu in parse_cpulist(text))
    cpus = options["client_cpus"]
    return Client(
        command=tuple(map(str, command)),
        engine=engine,
        cpus=parse_cpulist(cpus) if cpus and cpus != "apart" else (),
        apart_from=busy if cpus == "apart" else None,
        gpus=gpus,
        **{name: options[name] for name in _AS_THEY_ARE},
    )


_AS_THEY_ARE = ("backend", "version", "image", "self_test", "timeout", "session_header")
