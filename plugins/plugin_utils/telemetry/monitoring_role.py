# SPDX-License-Identifier: GPL-3.0-or-later

"""The role `monitoring`: its options, a host's evidence and the fleet → the host's resources."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import PurePosixPath
from typing import Any

from ..documents import from_document
from ..evidence.types import Evidence
from ..host.facts import package_manager, version
from ..host.program import sandbox
from ..host.types import ConcernPlan
from ..render.unit import templates
from .plan import telemetry_plan
from .programs import dashboards
from .promql import configuration
from .types import MonitoredHost, TelemetrySettings

Resource = Mapping[str, Any]
# All that the role writes for Prometheus and Alertmanager is here, and nothing else is.
DIRECTORY = "/etc/prometheus/apiary"
SECRETS = f"{DIRECTORY}/secrets"
# What TLS and passwords take, by name of file and of secret (web_keys.py).
_WEB = ("authority.pem", "client.yml", "monitoring.password", "node.password", "web.pem", "web.yml")
_OWNED = (f"{DIRECTORY}/rules/*", f"{DIRECTORY}/targets/*")
_BOARDS = "apiary-*.json"
_ANYWHERE = ("", "0.0.0.0", "::")  # noqa: S104 - what an operator sets
# What Grafana needs to ask Prometheus: its own files, as Prometheus' secrets are closed to it.
_GRAFANA = ("authority.pem", "monitoring.password")


@dataclass(frozen=True)
class MonitoringPlan(ConcernPlan):
    """What a monitoring host becomes; ``programs`` are installed first and decide the rest."""

    programs: tuple[Resource, ...] = ()


def decide(
    options: Mapping[str, Any], evidence: Evidence, hosts: Sequence[MonitoredHost]
) -> MonitoringPlan:
    """Return what the host becomes; raise ApiaryError with every refusal.

    ``options`` are the role's with their prefix, and its addresses are those of this host.
    """
    own = {name.removeprefix("monitoring_"): value for name, value in options.items()}
    own["web"] = own.pop("web_enabled")
    if own["state"] == "absent":
        return MonitoringPlan(resources=tuple(_absent(own)))
    plan = telemetry_plan(hosts, _settings(own, evidence))
    boards = dashboards(plan) if own["grafana"] else {}
    return MonitoringPlan(
        findings=plan.findings,
        programs=tuple(_programs(own, evidence)),
        resources=(
            *_directories(own),
            _alertmanager(own, plan.files["alertmanager.yml"]),
            _prometheus(own, plan.files),
            *(_grafana(own, boards, evidence) if own["grafana"] else ()),
        ),
    )


def _bracketed(address: str) -> str:
    """Return an address as it stands before a port: IPv6 is in brackets."""
    return f"[{address}]" if ":" in address and not address.startswith("[") else address


def _addresses(own: Mapping[str, Any]) -> list[str]:
    """Return where the programs are reached: one host alone need not be where others reach it."""
    if len(own["peers"]) > 1:
        return [_bracketed(address) for address in own["peers"]]
    return ["127.0.0.1" if own["listen"] in _ANYWHERE else _bracketed(own["listen"])]


def _settings(own: Mapping[str, Any], evidence: Evidence) -> TelemetrySettings:
    names = {item.name for item in fields(TelemetrySettings)}
    addresses = _addresses(own)
    ports = {name: own[f"{name}_port"] for name in ("prometheus", "alertmanager")}
    places = {name: [f"{address}:{port}" for address in addresses] for name, port in ports.items()}
    document = {name: value for name, value in own.items() if name in names}
    document |= {
        "alertmanagers": own["alertmanagers"] or places["alertmanager"],
        "prometheuses": places["prometheus"],
        "ports": {**ports, **own["ports"]},
        "web": SECRETS if own["web"] else None,
        "own_alertmanagers": not own["alertmanagers"],
    }
    for name in ports:
        # What check mode would install has no version yet: the rest is for the oldest.
        reported = version(evidence, own[f"{name}_program"])
        document |= {f"{name}_version": reported} if reported else {}
    return from_document(
        TelemetrySettings, document, f"{evidence.host}: the role monitoring's settings"
    )


def _programs(own: Mapping[str, Any], evidence: Evidence) -> Iterable[Resource]:
    programs = (own["prometheus_program"], own["alertmanager_program"])
    outputs = [evidence.commands.get(program) for program in programs]
    if all(output is not None and output.exit == 0 for output in outputs):
        return
    # A package starts its service as soon as it is there, on all addresses unless it has options.
    for item in (_drop_in(own, "prometheus"), _drop_in(own, "alertmanager")):
        yield {"kind": "file", **item}
    if own["packages"]:
        manager = package_manager(evidence)
        yield {"kind": "packages", "manager": manager, "names": own["packages"]}


def _directories(own: Mapping[str, Any]) -> Iterable[Resource]:
    for path in (own["storage"], own["alertmanager_storage"]):
        yield {"kind": "directory", "path": path, "owner": own["user"]}
    # Alertmanager owns its secrets alone: whoever writes above says what Prometheus does.
    yield {"kind": "directory", "path": DIRECTORY, "owner": "root", "mode": "0755"}
    named = [receiver.get("secret_file") for receiver in own["receivers"]]
    there = [path.rpartition("/")[2] for path in named if path and path.startswith(SECRETS + "/")]
    secrets = sorted({*own["secrets"], *(_WEB if own["web"] else ())})
    keep = sorted({*secrets, *there})
    yield {
        "kind": "directory",
        "path": SECRETS,
        "owner": own["user"],
        "mode": "0700",
        "purge": "*",
        "keep": keep,
    }
    # Alertmanager reads a secret each time it sends: a changed one needs no reload.
    for name in secrets:
        yield {
            "kind": "file",
            "path": f"{SECRETS}/{name}",
            "secret": name,
            "owner": own["user"],
            "mode": "0600",
        }


def _drop_in(own: Mapping[str, Any], program: str) -> dict[str, str]:
    path = f"/etc/systemd/system/{own[f'{program}_unit']}.d/50-apiary.conf"
    # A package may start its service before the directory is there.
    storage = own[{"prometheus": "storage"}.get(program, f"{program}_storage")]
    limits = sandbox(f"{program}.service", ReadWritePaths=f"-{storage}")
    # The units that the packages bring stay as they are; what differs is in a drop-in.
    template = templates().get_template("monitoring/drop_in.conf.j2")
    others = [peer for peer in own["peers"] if peer != own["listen"]]
    content = template.render(
        own=own,
        program=program,
        directory=DIRECTORY,
        listen=_bracketed(own["listen"]),
        peers=[_bracketed(peer) for peer in others] if len(own["peers"]) > 1 else [],
        sandbox=limits,
    )
    return {"path": path, "content": content}


def _service(own: Mapping[str, Any], program: str, files: Sequence[Resource]) -> dict[str, Any]:
    return {
        "kind": "configuration",
        "service": own[f"{program}_unit"],
        "main": f"{DIRECTORY}/{program}.yml",
        "files": list(files),
        "area": "MONITORING",
    }


def _alertmanager(own: Mapping[str, Any], text: str) -> Resource:
    drop_in = _drop_in(own, "alertmanager")
    files = [drop_in, {"path": f"{DIRECTORY}/alertmanager.yml", "content": text}]
    check = ["amtool", "check-config"]
    resource = _service(own, "alertmanager", files)
    return {**resource, "check": check, "restarts": [drop_in["path"]]}


def _prometheus(own: Mapping[str, Any], texts: Mapping[str, str]) -> Resource:
    drop_in = _drop_in(own, "prometheus")
    address = "127.0.0.1" if own["listen"] in _ANYWHERE else _bracketed(own["listen"])
    scheme = "https" if own["web"] else "http"
    files = [
        {"path": f"{DIRECTORY}/{path}", "content": text}
        # The deepest first: what is named comes before what names it.
        for path, text in sorted(texts.items(), key=lambda item: (-item[0].count("/"), item[0]))
        if path != "alertmanager.yml"
    ]
    return {
        **_service(own, "prometheus", [drop_in, *files]),
        "owned": list(_OWNED),
        "check": ["promtool", "check", "config"],
        "restarts": [drop_in["path"]],
        "confirm_url": f"{scheme}://{address}:{own['prometheus_port']}/api/v1/status/runtimeinfo",
        "confirm_access": SECRETS if own["web"] else None,
    }


def _provisioning(own: Mapping[str, Any]) -> list[dict[str, str]]:
    folder, files = own["grafana_provisioning"], _grafana_files(own)
    return [
        {
            "path": f"{folder}/{name}s/apiary.yml",
            "content": configuration(f"grafana-{name}.yml", own=own, files=files),
        }
        for name in ("datasource", "dashboard")
    ]


def _grafana_files(own: Mapping[str, Any]) -> dict[str, str]:
    folder = PurePosixPath(own["grafana_provisioning"]).parent
    return {name: f"{folder}/apiary-{name}" for name in _GRAFANA}


def _grafana(
    own: Mapping[str, Any], boards: Mapping[str, str], evidence: Evidence
) -> Iterable[Resource]:
    folder, files = own["grafana_dashboards"], _provisioning(own)
    if own["grafana_package"]:
        manager = package_manager(evidence)
        yield {"kind": "packages", "manager": manager, "names": [own["grafana_package"]]}
    names = sorted(PurePosixPath(path).name for path in boards)
    # Other dashboards there are somebody else's. Grafana looks every ten seconds by itself.
    yield {"kind": "directory", "path": folder, "purge": _BOARDS, "keep": names}
    for path, text in sorted(boards.items()):
        yield {"kind": "file", "path": f"{folder}/{path}", "content": text}
    for name, place in _grafana_files(own).items():
        secret = {"secret": name, "mode": "0640"} if own["web"] else {}
        group = {"group": own["grafana_group"]} if own["web"] and own["grafana_unit"] else {}
        yield {"kind": "file", "path": place, **secret, **group}
    if not own["grafana_unit"]:
        yield from ({"kind": "file", **item} for item in files)
        return
    if own["web"]:
        # It reads what its own files name when it starts, and they do not change with it.
        after = [f"file {place}" for place in _grafana_files(own).values()]
        restart = ["systemctl", "try-restart", own["grafana_unit"]]
        yield {"kind": "command", "argv": restart, "after": after}
    yield {
        "kind": "configuration",
        "service": own["grafana_unit"],
        "main": files[0]["path"],
        "files": files,
        "reload": False,
        "area": "MONITORING",
    }


def _absent(own: Mapping[str, Any]) -> Iterable[Resource]:
    for program in ("prometheus", "alertmanager"):
        paths = (_drop_in(own, program)["path"], f"{DIRECTORY}/{program}.yml")
        resource = _service(own, program, [{"path": path} for path in paths])
        owned = list(_OWNED) if program == "prometheus" else []
        yield {**resource, "owned": owned, "state": "absent"}
    folder = own["grafana_dashboards"]
    yield {"kind": "directory", "path": folder, "purge": _BOARDS, "state": "absent"}
    written = [item["path"] for item in _provisioning(own)] + [*_grafana_files(own).values()]
    yield from ({"kind": "file", "path": path} for path in written)
    yield {"kind": "directory", "path": DIRECTORY, "state": "absent"}
