# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a maintained host serves, whether anything is due, and what is started again after it."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..findings import ApiaryError, Finding

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
    """``todo`` says whether the host is changed, ``stop`` which units are stopped for it."""

    owner: str
    todo: bool
    summary: str
    before: tuple[Served, ...] = ()
    stop: tuple[str, ...] = ()
    start: tuple[str, ...] = ()


def plan_maintenance(
    host: str,
    served: Sequence[Mapping[str, Any]],
    due: Sequence[str],
    reboot: bool,
    owner: str,
) -> Maintenance:
    """Return what maintaining a host means; raise ROLLOUT-NODES.

    ``served`` are what rollout_info returned, with ``__serves_name``; ``due`` are the roles that
    would change something.
    """
    left = any(_owner(one).endswith(_MARK) for one in served)
    todo = bool(due) or reboot or left
    if todo:
        _refuse_several_nodes(host, served)
    before = tuple(_served(one) for one in served)
    serving = [unit for one in before for unit in one.serving]
    what = ", ".join(due) or "what an earlier run left" if todo else "nothing to do"
    again = ", with a reboot" if reboot else ""
    return Maintenance(
        owner=f"{owner}{_MARK}",
        todo=todo,
        summary=f"{host}: {what}{again}; serves {len(serving)} replicas",
        before=before,
        stop=tuple(serving) if reboot or _STOPPING & set(due) else (),
    )


def units_to_start(
    before: Collection[Served], served: Sequence[Mapping[str, Any]]
) -> tuple[str, ...]:
    """Return what is started after the change; what somebody had stopped stays so."""
    units = [
        str(replica["unit"])
        for one in served
        for replica in (one.get("plan") or {}).get("replicas", ())
    ]
    left = {str(unit) for one in served for unit in one.get("serving", ())}
    left |= {unit for one in before for unit in one.stopped}
    return tuple(unit for unit in units if unit not in left)


def _served(document: Mapping[str, Any]) -> Served:
    serving = tuple(map(str, document.get("serving", ())))
    ours = tuple(map(str, (document.get("lock") or {}).get("out", ())))
    return Served(
        name=str(document["__serves_name"]),
        serving=serving,
        stopped=tuple(unit for unit in map(str, document.get("stopped", ())) if unit not in ours),
        out=tuple(dict.fromkeys([*serving, *ours])),
    )


def _owner(document: Mapping[str, Any]) -> str:
    return str((document.get("lock") or {}).get("owner", ""))


def _refuse_several_nodes(host: str, served: Sequence[Mapping[str, Any]]) -> None:
    findings = list(_several_nodes(host, served))
    if findings:
        raise ApiaryError(*findings)


def _several_nodes(host: str, served: Sequence[Mapping[str, Any]]) -> Iterator[Finding]:
    if any((one.get("plan") or {}).get("node") for one in served):
        yield Finding(
            "ROLLOUT-NODES", host, "its replicas span hosts, which can only change together"
        )
