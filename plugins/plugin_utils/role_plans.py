# SPDX-License-Identifier: GPL-3.0-or-later

"""The roles beside those of a GPU host: reads what they follow on the controller, then decides.

For the action `decide`; nothing that decides imports this.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from fnmatch import fnmatch
from functools import partial
from pathlib import Path
from typing import Any

from .documents import from_document
from .evidence.types import Evidence
from .findings import Finding, error
from .fleet import router_role
from .fleet.names import address_of
from .fleet.saved import quarantined, saved_plans
from .host import telemetry as telemetry_host
from .host import weights
from .host.types import ConcernPlan
from .plan.types import plan_of
from .reach import Known, reach_of, with_reach
from .render import replicas
from .render.replicas import closed
from .router.fleet import MissingHost
from .router.pools import PlannedHost
from .telemetry import monitoring_role
from .telemetry.targets import monitored, watched_host
from .web_keys import authority_of, make_web_keys

# Of hosts with GPUs, and of routers.
_GROUPS = ("gpu_hosts", "routers")

ROLES = ("router", "telemetry", "monitoring", "weights")


def decide_role(
    role: str,
    options: Mapping[str, Any],
    evidence: Evidence,
    python: str,
    check_mode: bool,
    inventory: Inventory,
    plan_of_role: Callable[[str], Any],
) -> Any:
    """Return what one of ROLES makes of a host; raise ApiaryError with every refusal.

    ``plan_of_role`` decides another role for the same host and evidence.
    """
    if role == "router":
        return _router(options, evidence, python, check_mode, inventory)
    if role == "telemetry":
        telemetry = _telemetry(options, evidence, python, plan_of_role)
        if options["telemetry_state"] == "present":
            more = _reaching(evidence, inventory)
            telemetry = replace(telemetry, resources=(*telemetry.resources, *more))
        return _with_keys(role, options, evidence.host, inventory, telemetry)
    if role == "weights":
        return weights.decide(options, evidence)
    hosts = [monitored(inventory.watched(item)) for item in options["monitoring_hosts"]]
    peers = [inventory.address(name) for name in options["monitoring_peers"]]
    plan = monitoring_role.decide({**options, "monitoring_peers": peers}, evidence, hosts)
    return _with_keys(role, options, evidence.host, inventory, plan)


@dataclass(frozen=True)
class Inventory:
    """The inventory as Ansible has it: variables by host, and hosts by group."""

    variables: Mapping[str, Mapping[str, Any]]
    groups: Mapping[str, Sequence[str]]
    known: Known = field(default_factory=Known)

    def place(self, host: str | Mapping[str, Any]) -> Mapping[str, Any]:
        """Return where a host and its plans are: by its name, or as it is described."""
        if not isinstance(host, str):
            return host
        variables = self.variables[host]
        root = variables.get("apiary_artifacts") or "artifacts"
        address = address_of(host, variables)
        reach, unknown = reach_of(host, variables, self.variables, self.groups, self.known)
        place = {"host": host, "address": address, "artifacts": f"{root}/{host}"}
        return {**place, "ports_closed": reach is not None, "unknown": unknown}

    def address(self, host: str) -> str:
        """Return a host's address by its name; what names no host is an address already."""
        return address_of(host, self.variables[host]) if host in self.variables else host

    def gathered(self, router: str) -> list[Evidence]:
        """Return what the role router has gathered of another router in this play."""
        result = self.variables[router].get("__router_gathered") or {}
        if not result.get("evidence"):
            return []
        return [from_document(Evidence, {**result["evidence"], "host": router}, router)]

    def watched(self, host: str | Mapping[str, Any]) -> Mapping[str, Any]:
        """Return what is watched of a host: by its name in the inventory, or as it is described."""
        if not isinstance(host, str):
            return host
        has_gpus, is_router = (host in self.groups.get(name, ()) for name in _GROUPS)
        return watched_host(host, self.variables[host], has_gpus, is_router)


def _with_keys(
    role: str, options: Mapping[str, Any], host: str, inventory: Inventory, plan: Any
) -> Any:
    """Return a plan whose keys and passwords are there, with the findings of its certificates."""
    own = {name.removeprefix(f"{role}_"): value for name, value in options.items()}
    if own["state"] == "absent" or not own["web_enabled"]:
        return plan
    addresses = (own["listen"], inventory.address(host), host)
    ending = make_web_keys(own["web_directory"], f"{host}-{role}", addresses)
    return replace(plan, findings=(*plan.findings, *ending))


def _telemetry(
    options: Mapping[str, Any], evidence: Evidence, python: str, plan_of_role: Callable[[str], Any]
) -> telemetry_host.TelemetryHostPlan:
    own = {name.removeprefix("telemetry_"): value for name, value in options.items()}
    driver, arguments = own["driver_version"], own["arguments"]
    if own["gpu_host"] and own["driver"] and driver is None:
        driver = plan_of_role("rocm").driver_version
    if arguments is None:
        arguments = plan_of_role("host_tuning").arguments if own["gpu_host"] else ()
    names = {item.name for item in fields(telemetry_host.Settings)}
    document = {name: value for name, value in own.items() if name in names} | {
        "web": own["web_enabled"],
        "gpus": own["gpus"] or None,
        "driver_version": driver,
        "arguments": list(arguments),
        "python": python,
    }
    subject = f"{evidence.host}: the role telemetry's settings"
    return telemetry_host.decide(
        from_document(telemetry_host.Settings, document, subject), evidence
    )


def _reaching(evidence: Evidence, inventory: Inventory) -> Iterator[Mapping[str, Any]]:
    """Yield what lets who watches reach replicas whose ports are closed to others already."""
    host, variables = evidence.host, inventory.variables
    names = [path for path in evidence.files if fnmatch(path, "/etc/apiary/*/ports.nft")]
    reach = reach_of(host, variables[host], variables, inventory.groups)[0] if names else None
    if reach is not None:
        plans, _reason = saved_plans(Path(inventory.place(host)["artifacts"]).absolute())
        for plan in plans:
            if f"/etc/apiary/{plan.deployment.name}/ports.nft" in names:
                yield from closed(plan, reach)


def decide_replicas(
    host: str,
    document: Mapping[str, Any] | None,
    options: Mapping[str, Any],
    evidence: Evidence | None,
    check_mode: bool,
    inventory: Inventory,
) -> replicas.ReplicasPlan:
    """Return what the role replicas makes of a host by a plan; raise ApiaryError."""
    if options["replicas_state"] == "absent":
        deployment = replicas.absent_deployment(options, document, host)
        return replicas.decide_absent(deployment, options)
    if not document:
        name = "replicas_plan"
        raise error("FLEET-VARIABLE", f"{host}: {name}", "is not set", name=name)
    plan = plan_of(document, "replicas_plan")
    options = with_reach(host, options, inventory.variables, inventory.groups)
    # In check mode another role may not have brought the container engine yet.
    restart = options["replicas_restart"]
    return replicas.decide(plan, options, evidence, restart, engine_later=check_mode)


def _router(
    options: Mapping[str, Any],
    evidence: Evidence,
    python: str,
    check_mode: bool,
    inventory: Inventory,
) -> ConcernPlan:
    plans, missing = [], []
    names = [name for name in options["router_peers"] if isinstance(name, str)]
    peers = [peer for name in names if name != evidence.host for peer in inventory.gathered(name)]
    unknown: dict[Finding, None] = {}
    options = {**options, "router_peers": [*map(inventory.place, options["router_peers"])]}
    for place in map(inventory.place, options["router_plans"]):
        found, reason = _plans(place)
        where = (place["host"], place["address"])
        plans += [PlannedHost(*where, plan, place.get("ports_closed")) for plan in found]
        # What a host refuses is told there; what leaves its ports open, here.
        unknown |= {each: None for each in place.get("unknown", ()) if each.severity == "warning"}
        if reason:
            missing.append(MissingHost(place["host"], reason))
    present = options["router_state"] == "present"
    if check_mode and present and not plans and not router_role.runs(evidence):
        # On a fresh fleet check mode has saved no plan: there is nothing to route to yet.
        return router_role.RouterRolePlan(programs=router_role.programs(options, evidence))
    authority = partial(authority_of, options["router_web_directory"])
    decided = router_role.decide(options, evidence, plans, missing, python, peers, authority)
    return replace(decided, findings=(*unknown, *decided.findings))


def _plans(place: Mapping[str, Any]) -> tuple[Any, str | None]:
    """Return a host's plans, and why they do not count or are not there."""
    if place.get("plan"):
        return [plan_of(place["plan"], place["host"])], None
    directory = Path(place.get("artifacts") or "artifacts").absolute()
    if quarantined(directory):
        return [], "is quarantined"
    return saved_plans(directory)
