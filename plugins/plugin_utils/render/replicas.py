# SPDX-License-Identifier: GPL-3.0-or-later

"""What the role replicas brings a host to: a plan as resources, or a deployment's absence.

Who reaches the replicas' ports is a table of nftables of each deployment, and not `IPAddressDeny=`
of the units: that filters what an engine sends as well (traces, images that a prompt names), and
none of Docker's containers.
"""

from __future__ import annotations

import ipaddress
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..deployment import Runtime, own_user
from ..documents import dumps, knowledge, to_document
from ..evidence.types import Evidence
from ..findings import Finding, error
from ..host.program import sandbox
from ..plan.replica import agent_port
from ..plan.types import Plan, Replica
from .containers import container_files, engine_findings, shared_files
from .unit import (
    SLICE,
    UNITS,
    RenderedFile,
    digest,
    directory,
    environment_file,
    plan_path,
    spec_file,
    supervisor_files,
    templates,
    unit_facts,
)

Resource = Mapping[str, Any]
Options = Mapping[str, Any]

# The scope of evidence that has the version of each runtime's container engine.
ENGINE_SCOPE = "container"
_VERSIONS = {"quadlet": "podman_version", "docker": "docker_version"}
_SHELL = "/usr/sbin/nologin"


@dataclass(frozen=True)
class ReplicasPlan:
    """``unsure`` says that the container engine is missing, which another role may bring."""

    resources: tuple[Resource, ...]
    findings: tuple[Finding, ...] = ()
    unsure: bool = False


def decide(
    plan: Plan,
    options: Options,
    evidence: Evidence | None,
    restart: bool = True,
    files: Sequence[RenderedFile] | None = None,
    engine_later: bool = False,
) -> ReplicasPlan:
    """Return what serving a plan means; ``files`` are the plan's, where they are rendered already.

    ``options`` may have ``reach``: the addresses that alone reach the ports, or None for everybody;
    without it they stay as they are.
    ``evidence`` has the container engine's version; replicas on the host itself need none. With
    ``engine_later`` another role may bring the engine first.
    """
    rendered = render_systemd(plan) if files is None else files
    findings, unsure = _engine(plan, evidence)
    if unsure and engine_later:
        findings = []
    findings += list(_unnamed(plan, options.get("replicas_secrets") or {}))
    return ReplicasPlan(
        tuple(_resources(plan, options, restart, rendered)), tuple(findings), unsure
    )


def decide_absent(deployment: str, options: Options) -> ReplicasPlan:
    """Return what taking a deployment away means; a user of the operator's stays."""
    caches = options["replicas_remove_caches"]
    return ReplicasPlan(
        (
            {"kind": "replicas", "deployment": deployment, "state": "absent", "caches": caches},
            {"kind": "user", "state": "absent", **_own(deployment)},
            *opened(deployment),
        )
    )


def names_of(files: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield the addresses that the plan among a deployment's files has for its replicas."""
    (text,) = [item["content"] for item in files if item["path"].endswith("/plan.json")]
    plan = json.loads(text)
    yield plan["deployment"]["listen_address"]
    if plan.get("node") and plan["node"]["rank"] == 0:
        yield plan["node"]["master_address"]


def _own(deployment: str) -> dict[str, str]:
    """Return the user of a deployment alone, whom its comment tells from anybody else's."""
    return {"name": own_user(deployment), "comment": f"Apiary engines of {deployment}"}


def absent_deployment(options: Options, plan: Mapping[str, Any] | None, host: str) -> str:
    """Return the deployment that is to be absent; raise FLEET-VARIABLE where none is named.

    ``plan`` is a document, of which only the name counts: it may be of another version.
    """
    deployment = (plan or {}).get("deployment")
    named = deployment.get("name") if isinstance(deployment, Mapping) else None
    name = options.get("replicas_deployment") or named
    if not name:
        raise error(
            "FLEET-VARIABLE",
            f"{host}: replicas_deployment",
            "is not set, and there is no plan",
            name="replicas_deployment",
        )
    return str(name)


def _resources(
    plan: Plan, options: Options, restart: bool, files: Sequence[RenderedFile]
) -> Iterator[Resource]:
    name = plan.deployment.name
    stale = rf"apiary-{name}-[0-9]+\.service" if options["replicas_remove_stale"] else "(?!)"
    units = {
        "services": [replica.unit for replica in plan.replicas],
        "target": plan.target,
        "stale_pattern": stale,
    }
    home = options["replicas_home"]
    user = {"name": plan.deployment.user} if plan.deployment.user else _own(name)
    yield {"kind": "user", **user, "system": True, "home": home, "shell": _SHELL}
    if "reach" in options:
        reach, required = options["reach"], options.get("replicas_ports_closed") not in (None, "")
        yield from opened(name) if reach is None else closed(plan, reach, required)
    documents = to_document(tuple(files))
    yield {
        "kind": "replicas",
        "deployment": name,
        "files": documents,
        **units,
        "secrets": list(plan.deployment.credentials),
        "restart": restart,
    }
    yield {
        "kind": "release",
        "deployment": name,
        "files": [
            {key: value for key, value in item.items() if key != "content"} for item in documents
        ],
        "units": units,
    }


def _engine(plan: Plan, evidence: Evidence | None) -> tuple[list[Finding], bool]:
    """Return why the host's container engine can't run the replicas, and whether it is missing."""
    runtime = plan.deployment.engine.runtime
    if runtime not in _VERSIONS:
        return [], False
    output = evidence.commands.get(_VERSIONS[runtime]) if evidence else None
    missing = output is None or output.exit != 0
    version = "" if output is None or missing else output.stdout
    return list(engine_findings(runtime, version, plan.host)), missing


def _unnamed(plan: Plan, values: Mapping[str, Any]) -> Iterator[Finding]:
    for name in sorted(set(values) - set(plan.deployment.secrets)):
        yield Finding(
            "REPLICA-SECRET-UNNAMED",
            plan.deployment.name,
            f"replicas_secrets has a value for {name}, which the deployment does not name",
        )


def closed(plan: Plan, addresses: Sequence[str], required: bool = False) -> Iterator[Resource]:
    """Yield what lets these addresses and networks alone reach the replicas of a plan.

    Whether ``required`` or not, it is not begun while somebody else is connected to them.
    """
    name = plan.deployment.name
    rules, unit = _paths(name)
    networks = [ipaddress.ip_network(address, strict=False) for address in addresses]
    facts = {"name": name, "rules": rules, "nft": knowledge("serving/reach.yml")["program"]}
    families = {
        family: sorted({str(network) for network in networks if network.version == version})
        for family, version in (("ip", 4), ("ip6", 6))
    }
    units = [replica.unit for replica in plan.replicas]
    more = {"units": units, "sandbox": sandbox("apiary-NAME-ports.service")}
    texts: dict[str, tuple[str, dict[str, Any]]] = {
        rules: ("ports.nft.j2", {"ports": tuple(_ports(plan)), "families": families}),
        f"{UNITS}/{unit}": ("ports.service.j2", more),
    }
    yield {"kind": "packages", "names": [knowledge("serving/reach.yml")["package"]]}
    for path, (template, values) in texts.items():
        content = templates().get_template(template).render(**facts, **values)
        yield {"kind": "file", "path": path, "content": content}
    yield {
        "kind": "service",
        "name": unit,
        "enabled": True,
        "state": "started",
        "restart_after": [f"file {UNITS}/{unit}"],
        "reload_after": [f"file {rules}"],
        "peers": {
            "ports": list(_ports(plan)),
            "addresses": [str(network) for network in networks],
            "required": required,
        },
    }


def opened(deployment: str) -> Iterator[Resource]:
    """Yield what takes the table away again: its unit does that when it stops."""
    rules, unit = _paths(deployment)
    yield {"kind": "service", "name": unit, "enabled": False, "state": "stopped"}
    yield {"kind": "file", "path": f"{UNITS}/{unit}"}
    yield {"kind": "file", "path": rules}


def _paths(deployment: str) -> tuple[str, str]:
    return f"/etc/apiary/{deployment}/ports.nft", f"apiary-{deployment}-ports.service"


def _ports(plan: Plan) -> Iterator[str]:
    """Yield ports as nft takes them; of an engine over hosts only what no other host needs."""
    for replica in plan.replicas:
        yield str(replica.port)
        last = agent_port(replica)
        if last is not None:
            first = replica.internal_port
            yield str(last) if first is None else f"{first}-{last}"


# One replica's files, the unit's own last.
Renderer = Callable[[Plan, Replica, int], tuple[RenderedFile, ...]]


def render_systemd(plan: Plan) -> tuple[RenderedFile, ...]:
    """Return every file of the plan, what others need first: supervisor, slice, replicas, target.

    Raises ApiaryError with REPLICA-VARIABLE for a variable that systemd would not pass on.
    """
    render = RUNTIMES[plan.deployment.engine.runtime]
    runs_on_host = plan.deployment.engine.runtime == "native"
    names = [replica.unit for replica in plan.replicas]
    target = templates().get_template("target.j2").render(plan=plan, units=names)
    return (
        *(RenderedFile(path, mode, text) for path, mode, text in supervisor_files()),
        *(() if runs_on_host else shared_files()),
        RenderedFile(f"{UNITS}/{SLICE}", "0644", _slice()),
        *(
            file
            for index, replica in enumerate(plan.replicas)
            for file in render(plan, replica, index)
        ),
        RenderedFile(f"{UNITS}/{plan.target}", "0644", target),
        RenderedFile(plan_path(plan), "0644", dumps(plan)),
    )


def native_files(plan: Plan, replica: Replica, index: int) -> tuple[RenderedFile, ...]:
    """Return the files of a replica that runs on the host itself: environment, document, unit."""
    environment = environment_file(replica.env)
    environment_path = f"{directory(plan)}/replica-{index}.env"
    unit = (
        templates()
        .get_template("replica.service.j2")
        .render(
            **unit_facts(plan, replica, index),
            environment_path=environment_path,
            environment_digest=digest(environment),
            sandbox=_sandbox(plan),
        )
    )
    return (
        RenderedFile(environment_path, "0644", environment, replica.unit),
        spec_file(plan, replica, index),
        RenderedFile(f"{UNITS}/{replica.unit}", "0644", unit, replica.unit),
    )


def _sandbox(plan: Plan) -> dict[str, dict[str, object]]:
    """Return the directives that hold a replica in; homes stay readable where it lives in one."""
    facts = knowledge("serving.yml")["sandbox"]
    entries = dict(facts["entries"])
    paths = (plan.deployment.engine.executable, plan.deployment.model.path)
    if any(path.startswith(tuple(facts["homes"])) for path in paths):
        entries["ProtectHome"] = facts["home_in_use"]
    return entries


def _slice() -> str:
    return templates().get_template("slice.j2").render(**knowledge("serving.yml")["slice"])


RUNTIMES: dict[Runtime, Renderer] = {
    "native": native_files,
    "quadlet": container_files,
    "docker": container_files,
}
