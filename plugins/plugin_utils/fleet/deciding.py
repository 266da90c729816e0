# SPDX-License-Identifier: GPL-3.0-or-later

"""All concerns of a host decided from one evidence, and what is read for that beforehand."""

from __future__ import annotations

import hashlib
import importlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from .. import host
from ..deployment import Deployment
from ..documents import KNOWLEDGE, from_document, knowledge, learn
from ..engine.advisories import advisories
from ..engine.rules import rules
from ..evidence.types import Evidence
from ..findings import ApiaryError, Finding, error
from ..gpus import gpu_models
from ..host.program import findings
from ..host.role_options import Role, digest, read_role, settings_of, without_secrets
from ..host.types import CONCERNS, decide
from ..model.types import Architecture
from ..plan.types import Plan, plan_of
from ..render.replicas import decide as decide_replicas
from ..render.replicas import decide_absent
from ..render.unit import supervisor_files, templates
from ..topology.types import Topology
from .facts import facts_of
from .serving import (
    Fleet,
    Serving,
    Wish,
    decide_serving,
    running_documents,
    running_paths,
    topology_of,
)
from .survey import Concern, concern_of, deployment_of, refused, running, served
from .types import Change, ConcernSurvey, HostFacts, Served, Survey

# Beside the concerns that are asked for: a reboot follows from the others.
ALWAYS = ("reboot",)
# What is applied by one look; between these parts a host that changed is looked at again.
_PARTS = (
    ("rocm", "host_tuning"),
    ("weight_cache", "container_runtime"),
    ("device_plugin", "replicas"),
)
# What these change may need a reboot.
_REBOOTING = ("rocm", "host_tuning")


def scopes_for(concerns: Sequence[str], whole: bool, contained: bool) -> list[str]:
    """Return the scopes of evidence that concerns need; ``whole`` for a survey's facts, too."""
    scopes = [scope for name in concerns for scope in CONCERNS.get(name, ())]
    if "replicas" in concerns:
        scopes += ["gpu", "plans", *(["container"] if contained else [])]
    if set(concerns) & set(_REBOOTING):
        scopes.append("reboot")
    if whole:
        scopes += ["gpu", "rocm", "plans"]
    return sorted(set(scopes)) or ["gpu", "plans"]


def due(survey: Survey, asked: Sequence[str], applied: bool) -> list[str]:
    """Return the concerns whose roles have to run, in the order of ``asked``.

    Where roles are ``applied``, as they are not in check mode, what comes after one of them in the
    same part of the run has to be run, too: it may depend on what that has changed.
    """
    found = {one.concern.partition(":")[0] for one in survey.concerns if not one.settled}
    for first, second in _PARTS:
        if applied and first in found and second in asked:
            found.add(second)
    return [name for name in (*asked, *ALWAYS) if name in found]


@dataclass(frozen=True)
class Decided:
    """What was decided of one host, before it is compared with the host.

    ``objects`` is a sha256 of what a Kubernetes node asks of its cluster, None where it is none.
    """

    host: str
    collected_at: str
    concerns: tuple[Concern, ...]
    facts: HostFacts = field(default_factory=HostFacts)
    topology: Topology | None = None
    serving: Serving | None = None
    wanted: tuple[Served, ...] = ()
    running: tuple[Served, ...] = ()
    findings: tuple[Finding, ...] = ()
    secrets: Mapping[str, Any] = field(default_factory=dict)
    objects: str | None = None

    def survey(self, concerns: Sequence[ConcernSurvey]) -> Survey:
        """Return the survey, with what was found of each concern."""
        return Survey(
            host=self.host,
            collected_at=self.collected_at,
            facts=self.facts,
            concerns=tuple(concerns),
            wanted=self.wanted,
            running=self.running,
            findings=self.findings,
        )


@dataclass(frozen=True)
class Deciding:
    """What it takes to decide. ``options`` are the roles' by role, ``document`` the evidence's.

    ``pods_given`` says that the inventory itself names the sizes of pods; ``manifests`` is what
    the controller has of the cluster's objects. ``wrong`` are the refusals of options by role.
    """

    host: str
    document: Mapping[str, Any]
    wish: Wish
    options: Mapping[str, Mapping[str, Any]]
    roles: Mapping[str, Role]
    pods_given: bool
    restart: bool
    fleet: Fleet
    architecture_of: Callable[[Deployment, str], Architecture]
    manifests: str | None = None
    wrong: Mapping[str, ApiaryError] = field(default_factory=dict)

    def decide(self, concerns: Sequence[str]) -> Decided:
        """Return all of these concerns, decided; what can't be is told in its findings."""
        evidence = from_document(Evidence, self.document, f"{self.host}: evidence")
        looked = "lscpu" in evidence.commands  # of the scope gpu
        topology = topology_of(evidence, self.host) if looked else None
        serving: Serving | None = None
        serves: list[Concern] = []
        if topology and {"replicas", "device_plugin"} & set(concerns):
            serving, serves = self._serving(topology, evidence)
        found: list[Concern] = []
        objects = None
        reasons: list[str] = []
        for name in concerns:
            if name == "replicas":
                continue
            one, plan = self._concern(name, evidence, serving)
            found.append(one)
            reasons += one.reboot
            if name == "device_plugin" and plan and plan.node:
                objects = hashlib.sha256(plan.manifests_text.encode()).hexdigest()
        if set(concerns) & set(_REBOOTING):
            found.append(self._reboot(tuple(reasons), evidence))
        if "replicas" in concerns:
            found += serves
        return Decided(
            host=self.host,
            collected_at=evidence.collected_at,
            concerns=tuple(found),
            facts=facts_of(evidence, topology) if topology else HostFacts(),
            topology=topology,
            serving=serving,
            wanted=tuple(_wanted(serving)) if serving and not self._gone() else (),
            running=self._running(evidence),
            findings=tuple(one for one in serving.findings if one.severity != "info")
            if serving
            else (),
            secrets=self._secrets(found),
            objects=objects,
        )

    def _concern(
        self, name: str, evidence: Evidence, serving: Serving | None
    ) -> tuple[Concern, Any]:
        if name in self.wrong:
            return refused(name, "", self.wrong[name]), None
        options = dict(self.options[name])
        asked = digest(without_secrets(self.roles[name], options))
        if name == "device_plugin" and not self.pods_given and serving:
            options["device_plugin_pod_gpus"] = serving.pods
        try:
            plan: Any = decide(name, settings_of(name, options), evidence)
            one = concern_of(name, plan, options, asked)
        except ApiaryError as refusal:
            return refused(name, asked, refusal), None
        if name == "device_plugin" and plan.node:
            one = replace(one, changes=(*one.changes, *self._objects(plan, options)))
        return one, plan

    def _objects(self, plan: Any, options: Mapping[str, Any]) -> Iterator[Change]:
        """Yield what would be written on the controller, by the first node for all."""
        present = options["device_plugin_state"] == "present"
        text = plan.manifests_text if present else None
        if options["device_plugin_manifests_dest"] and text != self.manifests:
            path = f"{options['device_plugin_manifests_dest']}/device-plugin.yml"
            yield Change(path, self.manifests or "", text or "")

    def _reboot(self, reasons: tuple[str, ...], evidence: Evidence) -> Concern:
        if "reboot" in self.wrong:
            return refused("reboot", "", self.wrong["reboot"])
        options = self.options["reboot"]
        settings = {"reasons": reasons, "allowed": options["reboot_allowed"]}
        plan: Any = decide("reboot", settings, evidence)
        one = concern_of("reboot", plan, options, digest({"allowed": options["reboot_allowed"]}))
        # The reasons are told with the concerns that have them.
        needed = (Change("reboot"),) if plan.needed else ()
        return replace(one, reboot=(), changes=(*one.changes, *needed))

    def _serving(
        self, topology: Topology, evidence: Evidence
    ) -> tuple[Serving | None, list[Concern]]:
        """Return what is to be served here, and a concern for each deployment."""
        asked = {str(one.get("name")): digest(one) for one in self.wish.deployments}
        try:
            if "replicas" in self.wrong:
                raise self.wrong["replicas"]
            if not self.wish.deployments:
                raise _nothing_asked(self.host)
            serving = decide_serving(
                self.host,
                self.wish,
                topology,
                running_documents(self.document),
                self.fleet,
                self.architecture_of,
            )
        except ApiaryError as refusal:
            names = asked or {"": ""}
            return None, [refused(f"replicas:{one}", names[one], refusal) for one in names]
        options = self.options.get("replicas")
        if options is None:
            return serving, []
        found = [
            self._replicas(plan, options, evidence, asked[plan.deployment.name], serving)
            for plan in serving.plans
        ]
        if self.wish.remove_others:
            others = [plan.deployment.name for plan in serving.others]
            found = [*(self._absent(name, options) for name in others), *found]
        return serving, found

    def _gone(self) -> bool:
        """Say whether the host is to lose what it is asked to serve."""
        return bool(self.options.get("replicas", {}).get("replicas_state") == "absent")

    def _replicas(
        self,
        plan: Plan,
        options: Mapping[str, Any],
        evidence: Evidence,
        asked: str,
        serving: Serving,
    ) -> Concern:
        name = plan.deployment.name
        if self._gone():
            return self._absent(name, options, asked)
        files = serving.files[name]
        # Another role may bring the container engine first.
        decided = decide_replicas(plan, options, evidence, self.restart, files, engine_later=True)
        concern = deployment_of(name, decided, options, asked, plan.findings)
        if not decided.unsure:
            return concern
        now = decide_replicas(plan, options, evidence, self.restart, files)
        return replace(concern, missing=now.findings)

    def _absent(self, name: str, options: Mapping[str, Any], asked: str = "") -> Concern:
        decided = decide_absent(options["replicas_deployment"] or name, options)
        return deployment_of(name, decided, options, asked)

    def _secrets(self, concerns: Sequence[Concern]) -> dict[str, Any]:
        """Return the values that the resources refer to by name."""
        serves = any(concern.name.startswith("replicas:") for concern in concerns)
        values = self.options.get("replicas", {}).get("replicas_secrets") or {}
        return dict(values) if serves else {}

    def _running(self, evidence: Evidence) -> tuple[Served, ...]:
        plans = {}
        for path, document in running_paths(self.document).items():
            try:
                plans[path] = plan_of(document, f"{self.host}: {path}")
            except ApiaryError:  # of another version of Apiary: what it serves is not known
                continue
        return running(evidence, plans)


def _wanted(serving: Serving) -> Iterator[Served]:
    for plan in serving.plans:
        yield served(plan, serving.plan_text(plan.deployment.name))


def _nothing_asked(host: str) -> ApiaryError:
    return error(
        "FLEET-NO-DEPLOYMENT",
        host,
        "is to serve replicas, and the inventory gives it no deployment",
    )


# Read only where somebody measures, or asks what a code means.
_OTHERS = frozenset({"bench", "findings"})


def warm() -> dict[str, Role]:
    """Read facts, programs, the packages of the concerns and their roles; return these by name."""
    for path in sorted(KNOWLEDGE.rglob("*.yml")):
        name = path.relative_to(KNOWLEDGE)
        if name.parts[0] not in _OTHERS:
            knowledge(name.as_posix())
    # What serves on hosts, compiled; the programs of routers and monitoring are others'.
    for template in ("replica.service.j2", "target.j2", "slice.j2"):
        templates().get_template(template)
    supervisor_files()
    findings("WEIGHTS")
    rules()
    advisories()
    gpu_models()
    learn(Evidence, Plan)
    for concern in CONCERNS:
        importlib.import_module(f"{host.__name__}.{concern}")
    return {name: read_role(name) for name in (*CONCERNS, "replicas")}
