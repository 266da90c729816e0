# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What hosts told, as the situations that a rollout is decided from.

The plan that a host runs may be of an earlier version of Apiary, so only what is needed is read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..documents import knowledge
from ..findings import error
from .types import Lock, Situation, Slot


def slots_of(plan: Mapping[str, Any] | None, subject: str) -> tuple[Slot, ...]:
    """Return the replicas' places of a plan document; raise ROLLOUT-PLAN for one that is none."""
    try:
        return tuple(
            Slot(str(one["unit"]), int(one["port"]), tuple(map(str, one["gpus"])))
            for one in (plan or {}).get("replicas", ())
        )
    except (KeyError, TypeError, ValueError) as failure:
        raise error("ROLLOUT-PLAN", subject, f"is no plan: {failure}") from failure


def situation_of(
    host: str,
    told: Mapping[str, Any],
    wanted: Mapping[str, Any],
    would: Mapping[str, Any],
    servers: Mapping[str, Any],
    back: bool = False,
) -> Situation:
    """Return a host's situation.

    ``told`` is what rollout_info returned, ``wanted`` the new plan, ``would`` what converging
    would do with it, as it says in check mode, with ``turns``, what becomes of each secret that
    changes; ``servers`` is what a router knows: states by deployment/host-replica. ``back`` says
    that this is the way back from a change, whose own drains are nobody else's.
    Raises ApiaryError: ROLLOUT-PLAN.
    """
    lock = told.get("lock")
    deployment = wanted.get("deployment", {}).get("name")
    before: Mapping[str, Any] = told.get("plan") or {}
    running = slots_of(before, f"{host}: the plan that it runs")
    new = slots_of(wanted, f"{host}: the new plan")
    drained = tuple(
        slot.unit
        for slot in running
        if _is_parked(servers.get(f"{deployment}/{host}-{_index(slot.unit)}", {}))
    )
    out = tuple(map(str, lock.get("out", ()))) if lock else ()
    if lock and lock.get("torn"):
        out = drained  # it said which of them; nobody else would bring them back
    key = _key_change(before, wanted, would)
    changed: Sequence[str] = [*would.get("restarted", ()), *would.get("started", ())]
    return Situation(
        host=host,
        running=running,
        wanted=new,
        changed=tuple(dict.fromkeys(unit for unit in changed if unit.endswith(".service"))),
        files=bool(would.get("changed")),
        serving=tuple(map(str, told.get("serving", ()))),
        parked=tuple(unit for unit in drained if unit not in out),
        kept=told.get("current"),
        lock=None
        if not lock
        else Lock(
            str(lock.get("owner", "unknown")),
            str(lock.get("since", "unknown")),
            out,
            dead=bool(lock.get("torn")),
        ),
        routed=tuple(
            slot.unit
            for slot in new
            if back and f"{deployment}/{host}-{_index(slot.unit)}" in servers
        ),
        engine_key=bool(before) and key == "other",
        key_first=bool(before) and key == "accepted",
        nodes=max(_nodes(before), _nodes(wanted)),
    )


def _key_change(
    before: Mapping[str, Any], wanted: Mapping[str, Any], would: Mapping[str, Any]
) -> str:
    """Return what becomes of the key that routers show: `same`, `accepted` already, or `other`."""
    variable = knowledge("router.yml")["engine_key"]["variable"]
    asks = [variable in (_deployment(one).get("secrets") or ()) for one in (before, wanted)]
    turns = would.get("turns", {})
    turn = [turns[path] for path in turns if path.rpartition("/")[2] == variable]
    return "other" if asks[0] != asks[1] else str((turn or ["same"])[0])


def _deployment(plan: Mapping[str, Any]) -> Mapping[str, Any]:
    told = plan.get("deployment")
    return told if isinstance(told, Mapping) else {}


def _nodes(plan: Mapping[str, Any]) -> int:
    """Return how many hosts each replica of a plan spans."""
    node = plan.get("node")
    return int(node.get("size", 1)) if isinstance(node, Mapping) else 1


def _index(unit: str) -> str:
    """Return a replica's number as server names have it."""
    return unit.removesuffix(".service").rpartition("-")[2]


def _is_parked(server: Mapping[str, Any]) -> bool:
    """Say whether somebody has taken a server out, which is not the same as its being down."""
    return server.get("state") in ("drain", "maint")
