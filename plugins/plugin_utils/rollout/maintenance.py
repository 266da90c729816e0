# SPDX-License-Identifier: GPL-3.0-or-later

"""What a maintained host serves, whether anything is due, and what is started again after it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..findings import error
from .read import own_units

_MARK = ", maintain.yml"
# A driver can't be replaced under an engine, and a host is rebooted only when nothing serves.
_STOPPING = frozenset({"rocm", "host_tuning", "reboot"})


@dataclass(frozen=True)
class Served:
    """A deployment of the host before its maintenance.

    ``out`` is what the lock names: what serves, and what an earlier run of this controller had
    taken out. ``stopped`` is what somebody stopped, but for that.
    """

    name: str
    serving: tuple[str, ...] = ()
    stopped: tuple[str, ...] = ()
    out: tuple[str, ...] = ()


@dataclass(frozen=True)
class Maintenance:
    """``todo`` says whether the host is changed, ``stop`` which units are stopped for it.

    ``back`` is what serves after it, which returns to the routers.
    """

    owner: str
    todo: bool
    summary: str
    before: tuple[Served, ...] = ()
    stop: tuple[str, ...] = ()
    start: tuple[str, ...] = ()
    back: tuple[Served, ...] = ()


def plan_maintenance(
    host: str, served: Sequence[Mapping[str, Any]], due: Sequence[str], reboot: bool, owner: str
) -> Maintenance:
    """Return what maintaining a host means; raise ROLLOUT-NODES.

    ``served`` are what rollout_info returned, with ``__serves_name``; ``due`` are the roles that
    would change something.
    """
    before = tuple(_served(one, host) for one in served)
    left = any(_owner(one).endswith(_MARK) for one in served)
    todo = bool(due) or reboot or left
    if todo:
        _refuse_several_nodes(host, served)
    units = [unit for one in before for unit in one.serving]
    what = ", ".join(due) or "what an earlier run left" if todo else "nothing to do"
    again = ", with a reboot" if reboot else ""
    return Maintenance(
        owner=f"{owner}{_MARK}",
        todo=todo,
        summary=f"{host}: {what}{again}; serves {len(units)} replicas",
        before=before,
        stop=tuple(units) if reboot or _STOPPING & set(due) else (),
    )


def units_to_start(
    before: Collection[Served], served: Sequence[Mapping[str, Any]], host: str
) -> tuple[str, ...]:
    """Return what is started after the change; what somebody had stopped stays so."""
    plans = [(str(one["__serves_name"]), one.get("plan") or {}) for one in served]
    units = [
        unit
        for name, plan in plans
        for unit in own_units([each["unit"] for each in plan.get("replicas", ())], name, host)
    ]
    left = {unit for one in serving(served, host) for unit in one.serving}
    left |= {unit for one in before for unit in one.stopped}
    return tuple(unit for unit in units if unit not in left)


def serving(served: Sequence[Mapping[str, Any]], host: str) -> tuple[Served, ...]:
    """Return the deployments of which something serves."""
    return tuple(one for one in (_served(document, host) for document in served) if one.serving)


def _served(document: Mapping[str, Any], host: str) -> Served:
    """Return a deployment as the host reports it; raise ROLLOUT-PLAN."""
    name = str(document["__serves_name"])
    serves = own_units(document.get("serving", ()), name, host)
    ours = own_units((document.get("lock") or {}).get("out", ()), name, f"{host}: its lock")
    stopped = own_units(document.get("stopped", ()), name, host)
    return Served(
        name=name,
        serving=serves,
        stopped=tuple(unit for unit in stopped if unit not in ours),
        out=tuple(dict.fromkeys([*serves, *ours])),
    )


def _owner(document: Mapping[str, Any]) -> str:
    return str((document.get("lock") or {}).get("owner", ""))


def _refuse_several_nodes(host: str, served: Sequence[Mapping[str, Any]]) -> None:
    if any((one.get("plan") or {}).get("node") for one in served):
        raise error(
            "ROLLOUT-NODES", host, "its replicas span hosts, which can only change together"
        )
