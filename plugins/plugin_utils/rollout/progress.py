# SPDX-License-Identifier: GPL-3.0-or-later

"""How far the change of one host is, what events of it mean, and what a maintained host serves.

Playbooks hand an event to `rollout` and register what it returns; they decide nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from ..findings import Finding, error
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


Outcome = Literal["waiting", "begun", "done", "failed", "back"]


@dataclass(frozen=True)
class Progress:
    """The state of one host's change.

    ``may_begin`` says whether the failure budget lasts. ``out`` are the units out of the routers,
    ``late`` those that return when the routers know their new port or key, ``unreached`` the
    routers at which something may still be drained. ``before`` are the answers of replicas before
    their replacement, by unit. ``way_back`` says how going back ended. ``maintenance`` is what a
    maintained host served; ``away`` says that it is out of service.
    """

    outcome: Outcome = "waiting"
    may_begin: bool = True
    locked: bool = False
    out: tuple[str, ...] = ()
    late: tuple[str, ...] = ()
    unreached: tuple[str, ...] = ()
    before: dict[str, Any] = field(default_factory=dict)
    failure: Failure | None = None
    way_back: Finding | None = None
    stranded: bool = False
    release: str = ""
    maintaining: bool = False
    away: bool = False
    maintenance: Maintenance | None = None


def may_begin(hosts: Mapping[str, Progress], batch: Collection[str], budget: int) -> bool:
    """Return whether another host may be begun: one begun in an earlier batch was lost."""
    failed = [
        host
        for host, progress in hosts.items()
        if progress.outcome == "failed" or (progress.outcome == "begun" and host not in batch)
    ]
    return len(failed) <= budget


def lost(hosts: Mapping[str, Progress]) -> Finding | None:
    """Return the finding of hosts that were begun and did not end: they became unreachable."""
    names = [host for host, progress in hosts.items() if progress.outcome == "begun"]
    if not names:
        return None
    if any(hosts[name].maintaining for name in names):
        doing, out = "maintained", "stays out of the routers"
    else:
        doing, out = "changed", "what was drained stays out"
    message = f"could not be reached any more while it was {doing}; it is locked, and {out}"
    return Finding("ROLLOUT-LOST", ", ".join(names), message)


def outcome_word(progress: Progress) -> str:
    """Return the outcome as `apiary rollout` reads it."""
    way_back = progress.way_back
    if progress.outcome == "back" or (
        progress.outcome == "failed" and way_back and way_back.code == "ROLLOUT-ROLLED-BACK"
    ):
        return "rolled back"
    return progress.outcome


def closing(progress: Progress, host: str) -> tuple[Finding, ...]:
    """Return what makes the host's change a failure at the end of the run."""
    findings = []
    if progress.outcome == "failed":
        findings.append(_failed(progress, host))
    # A drain that a router retains would cost capacity for good, so it is no success.
    if progress.unreached:
        findings.append(
            Finding(
                "ROLLOUT-ROUTER-UNREACHABLE",
                ", ".join(progress.unreached),
                f"could not be reached; {host} may still be drained there",
            )
        )
    return tuple(findings)


def note(progress: Progress, host: str) -> str:
    """Return what a person should know of a host that did not fail; empty where nothing."""
    if progress.outcome == "waiting":
        return f"{host} was not begun: too many hosts had failed; it serves what it served before"
    if progress.outcome == "back":
        return (
            f"{host} was done, and serves release {progress.release} again, "
            "because other hosts failed"
        )
    return ""


def _failed(progress: Progress, host: str) -> Finding:
    if progress.stranded and progress.way_back:
        return progress.way_back
    message = progress.failure.message if progress.failure else "it failed"
    message = "".join(message.splitlines()[:1])
    if progress.way_back:
        message += f"; {progress.way_back.message}"
    elif progress.maintaining:
        message += "; it stays out of the routers" if progress.away else "; nothing was changed"
    return Finding("ROLLOUT-FAILED", host, message)


_LONGEST = 10_000


@dataclass(frozen=True)
class Failure:
    """The task that failed first, and its findings as the module or action returned them."""

    task: str
    message: str
    findings: tuple[dict[str, Any], ...] = ()


def failure_of(task: str, result: Mapping[str, Any]) -> Failure:
    """Return why a task failed; of a loop, the first item that did."""
    items = [one for one in _mappings(result.get("results")) if one.get("failed")]
    first: Mapping[str, Any] = items[0] if items else result
    message = str(first.get("msg", first))[:_LONGEST]
    return Failure(task, message, _mappings(first.get("findings")))


def _mappings(value: Any) -> tuple[dict[str, Any], ...]:
    """Return the mappings of a list; a host may return what it likes."""
    listed = value if isinstance(value, (list, tuple)) else ()
    return tuple(one for one in listed if isinstance(one, dict))
