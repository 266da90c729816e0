# SPDX-License-Identifier: GPL-3.0-or-later

"""All that a host is to serve, decided from its evidence and the inventory's deployments."""

from __future__ import annotations

import dataclasses
import functools
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from ..deployment import Deployment
from ..documents import dumps, from_document
from ..evidence.types import Evidence
from ..findings import ApiaryError, Finding, has_errors
from ..model.types import Architecture
from ..plan.build import PlanRequest, build_plans
from ..plan.explain import summary
from ..plan.nodes import Member, Place, check_nodes, node_of, nodes_of
from ..plan.together import others_of, running_plans, tell_others
from ..plan.types import Plan, plan_of
from ..render.replicas import render_systemd
from ..render.unit import RenderedFile
from ..topology.host import from_evidence
from ..topology.types import Topology
from .names import address_of

_PLAN = re.compile(r"/etc/apiary/(?:[^/]+/)?plan\.json")


@dataclasses.dataclass(frozen=True)
class Wish:
    """What the inventory asks a host to serve, as documents.

    ``keep`` is the plan whose placement the first deployment keeps, with ``keep_running`` each
    keeps that of the plan that runs; ``remove_others`` frees what other deployments hold.
    """

    deployments: Sequence[Mapping[str, Any]]
    keep: Mapping[str, Any] | None = None
    keep_running: bool = False
    remove_others: bool = False


@dataclasses.dataclass(frozen=True)
class Serving:
    """What a host is to serve: a plan for each deployment, and ``others`` that it has plans of.

    ``findings`` are those that belong to no plan.
    """

    topology: Topology
    plans: tuple[Plan, ...]
    others: tuple[Plan, ...]
    findings: tuple[Finding, ...]

    @functools.cached_property
    def files(self) -> Mapping[str, tuple[RenderedFile, ...]]:
        """Return the files of each deployment, rendered once."""
        return {plan.deployment.name: render_systemd(plan) for plan in self.plans}

    def plan_text(self, deployment: str) -> str:
        """Return the plan of a deployment as its host has it."""
        path = f"/etc/apiary/{deployment}/plan.json"
        return next(item.content for item in self.files[deployment] if item.path == path)

    @property
    def pods(self) -> list[int]:
        """Return how many GPUs each replica has, the sizes of a Kubernetes node's pods."""
        return [len(replica.gpus) for plan in self.plans for replica in plan.replicas]

    @property
    def summary(self) -> list[str]:
        """Return what people are shown, a line each."""
        told = (f"  {finding}" for finding in self.findings if finding.severity != "info")
        return [*(line for plan in self.plans for line in summary(plan)), *told]

    def documents(self) -> dict[str, str]:
        """Return what is saved on the controller, texts by path below the host's directory."""
        texts = {plan.deployment.name: self.plan_text(plan.deployment.name) for plan in self.plans}
        files = {
            f"files{item.path}": item.content
            for rendered in self.files.values()
            for item in rendered
        }
        return {
            "topology.json": dumps(self.topology),
            "plan.json": next(iter(texts.values())),
            **{f"{name}/plan.json": text for name, text in texts.items()},
            **files,
        }


class Fleet:
    """The hosts that the inventory has for these deployments, in its order.

    ``variables`` are Ansible's hostvars; ``evidence_of`` returns what a host has told in this run,
    or None.
    """

    def __init__(
        self,
        variables: Mapping[str, Any],
        hosts: Sequence[str],
        evidence_of: Callable[[str], Mapping[str, Any] | None],
    ) -> None:
        self.variables, self.hosts, self.evidence_of = variables, hosts, evidence_of

    def place(self, host: str, deployment: Deployment) -> Place:
        """Return a host's place among those that its replicas span."""
        # Of all hosts of a fleet only the names count; those of the group are looked at closely.
        # Each is fetched once: Ansible gathers a host's variables anew at every access.
        members = [
            Member(
                name,
                address_of(name, own),
                own.get("apiary_node_group"),
                deployment if _asked(own, deployment.name) else None,
            )
            for name, own in ((name, self.variables[name]) for name in self.hosts)
        ]
        own = self.variables[host]
        node = node_of(host, members, deployment)
        return Place(node, address_of(host, own), own.get("apiary_interface"))

    def member(self, host: str, deployment: Deployment) -> Member:
        """Return a host with what it is asked to serve under this name, and what it has."""
        own = self.variables[host]
        asked = _asked(own, deployment.name)
        evidence = self.evidence_of(host)
        return Member(
            host=host,
            address=address_of(host, own),
            deployment=from_document(Deployment, asked, host) if asked else None,
            topology=topology_of(evidence, host) if evidence else None,
        )


def _asked(own: Mapping[str, Any], name: str) -> Mapping[str, Any] | None:
    """Return what a host, by its variables, is asked to serve under a name."""
    asked = own.get("apiary_deployments") or [own.get("apiary_deployment") or {}]
    return next((one for one in asked if one.get("name") == name), None)


def topology_of(evidence: Evidence | Mapping[str, Any], host: str) -> Topology:
    """Return a host's topology under the name that its operator knows, the inventory's."""
    return dataclasses.replace(from_evidence(evidence), host=host)


def running_paths(evidence: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the plans that the host holds by path, from the scope "plans"; no others."""
    documents = {}
    for path, text in sorted(evidence.get("files", {}).items()):
        if not _PLAN.fullmatch(path):
            continue
        try:
            document = json.loads(text)
        except ValueError:
            continue
        if isinstance(document, dict):
            documents[path] = document
    return documents


def running_documents(evidence: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the plans that the host holds."""
    return list(running_paths(evidence).values())


def spans_hosts(wish: Wish, host: str) -> bool:
    """Say whether replicas span hosts, so that the other members' evidence is needed, too."""
    return any(nodes_of(from_document(Deployment, one, host)) > 1 for one in wish.deployments)


def decide_serving(
    host: str,
    wish: Wish,
    topology: Topology,
    running: Sequence[Mapping[str, Any]],
    fleet: Fleet,
    architecture_of: Callable[[Deployment, str], Architecture],
) -> Serving:
    """Return what a host is to serve; raise ApiaryError for what can't be.

    ``running`` are the documents of the plans that the host has now.
    """
    deployments = [from_document(Deployment, one, host) for one in wish.deployments]
    plans_now, unread = running_plans(running, host)
    others = others_of(plans_now, deployments)
    kept = {plan.deployment.name: plan for plan in plans_now if wish.keep_running}
    if wish.keep:
        kept[deployments[0].name] = plan_of(wish.keep, f"{host}: the plan to keep")
    places = {one.name: fleet.place(host, one) for one in deployments if nodes_of(one) > 1}
    asked = [
        PlanRequest(one, architecture_of(one, host), kept.get(one.name), places.get(one.name))
        for one in deployments
    ]
    alike = list(_alike(asked, fleet, topology))
    if has_errors(alike):
        raise ApiaryError(*alike)
    findings = (*tell_others(others, wish.remove_others), *unread, *alike)
    try:
        plans = build_plans(asked, topology, () if wish.remove_others else others)
    except ApiaryError as refusal:
        # Who has the GPUs that are missing is told with the refusal.
        known = [one for one in findings if one.severity != "info"]
        raise ApiaryError(*refusal.findings, *known) from None
    return Serving(topology, tuple(plans), others, findings)


def _alike(asked: Sequence[PlanRequest], fleet: Fleet, topology: Topology) -> Iterator[Finding]:
    for one in asked:
        if one.place is not None:
            members = [fleet.member(name, one.deployment) for name in one.place.node.hosts]
            yield from check_nodes(one.place.node, members, topology)
