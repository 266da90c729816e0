# SPDX-License-Identifier: GPL-3.0-or-later

"""node_exporter, and the timer that writes what Apiary knows of a host for it."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ....module_utils import host_metrics
from ....module_utils.engine_causes import cause_ids
from ...documents import dumps, knowledge
from ...evidence.types import Evidence
from ...findings import error
from ...gpus import gpu_facts, gpu_models
from ...topology.host import from_evidence
from ..facts import os_release
from ..program import sandbox, standalone, unit_text
from ..rocm.target import driver_facts, system_of
from ..rocm.types import parse
from ..types import MANAGED, UNITS, HostFile
from ..weight_cache.mounts import unit_name
from .types import Service, Settings

PROGRAM = "/usr/libexec/apiary/host_metrics.py"
SETTINGS = "/etc/apiary/telemetry.json"
WEB, WEB_USER, _COMMENT = "/etc/apiary/web", "apiary-web", "Apiary keys of node_exporter"
SERVICE, TIMER = "apiary-telemetry.service", "apiary-telemetry.timer"


def family(settings: Settings, evidence: Evidence) -> Mapping[str, Any]:
    """Return the names that node_exporter has in the host's family of systems."""
    release = os_release(evidence)
    system = system_of(release)
    families = knowledge("telemetry/exporters.yml")["node"]["families"]
    found: Mapping[str, Any] | None = families.get(system.family if system else "")
    if found is None:
        raise error(
            "MONITORING-SYSTEM",
            evidence.host,
            f"nothing is known of node_exporter's package on {release.name}",
        )
    return found


def directory(settings: Settings, evidence: Evidence) -> str:
    """Return the directory of text files that node_exporter reads."""
    found: str = family(settings, evidence)["directory"]
    return found


def exporter(settings: Settings, evidence: Evidence, folder: str) -> Service:
    """Return node_exporter's service: the distribution's unit with flags of ours."""
    known, exporters = family(settings, evidence), knowledge("telemetry/exporters.yml")
    facts, names = exporters["node"], exporters["web"]
    host = f"[{settings.listen}]" if ":" in settings.listen else settings.listen
    release = os_release(evidence)
    flag = names["older"].get(f"{release.id} {release.version}", names["flag"])
    flags = [
        f"--web.listen-address={host}:{settings.node_port}",
        f"--collector.textfile.directory={folder}",
        *(
            f"--collector.{name}"
            for name in (*facts["collectors"]["enabled"], *settings.node_collectors)
        ),
        f"--collector.systemd.unit-include={facts['units']['include']}",
        *([f"{flag}={WEB}/web.yml"] if settings.web else []),
    ]
    group = f"SupplementaryGroups={WEB_USER}\n" if settings.web else ""
    command = " ".join(_argument(word) for word in (known["program"], *flags))
    own = group + sandbox("node_exporter.service")
    text = unit_text("node-exporter.conf", mark=MANAGED, command=command, sandbox=own)
    path = f"{UNITS}/{known['unit']}.d/50-apiary.conf"
    return Service(
        known["unit"],
        path,
        (HostFile(path, text),),
        settings.node_package or known["package"],
        known["program"],
    )


def web(settings: Settings) -> Iterator[Mapping[str, Any]]:
    """Yield what TLS and the password take, which the exporter reads anew at every request.

    A group of its own has it read them whatever user its package has made; a credential of systemd
    would stay as it was at the start.
    """
    if not settings.web:
        return
    shell = "/usr/sbin/nologin"
    yield {"kind": "user", "name": WEB_USER, "comment": _COMMENT, "system": True, "shell": shell}
    for name in ("web.pem", "web.yml"):
        file = {"kind": "file", "path": f"{WEB}/{name}", "secret": name}
        yield {**file, "group": WEB_USER, "mode": "0640"}


def no_web() -> tuple[Mapping[str, Any], ...]:
    """Return the absence of that."""
    user = {"kind": "user", "name": WEB_USER, "comment": _COMMENT, "state": "absent"}
    return {"kind": "directory", "path": WEB, "state": "absent"}, user


def _argument(word: str) -> str:
    """Return a word as ExecStart= takes it: systemd reads backslash, dollar and percent itself."""
    word = word.replace("\\", "\\\\").replace("$", "$$").replace("%", "%%")
    return shlex.quote(word) if any(sign in word for sign in " ()|*;\\") else word


def expected(settings: Settings, evidence: Evidence, folder: str) -> dict[str, Any]:
    """Return what the host is to have, as host_metrics.py reads it."""
    facts = knowledge("telemetry/host.yml")
    told: dict[str, Any] = {
        "gpu_host": settings.gpu_host,
        "gpus": None,
        "mesh": False,
        "guest": False,
        "models": {},
        "driver": None,
        "arguments": list(settings.arguments),
        "mounts": {mount: unit_name(mount) for mount in sorted(settings.mounts)},
        "mount_seconds": facts["mount_seconds"],
        "causes": cause_ids(knowledge("serving/causes.yml")),
        "file": f"{folder}/{facts['file']}",
        "metrics": {
            name: {"help": one["help"], "kind": one["kind"]}
            for name, one in facts["metrics"].items()
        },
    }
    if not settings.gpu_host:
        return told
    topology = from_evidence(evidence)
    models = {gpu.model for gpu in topology.gpus if gpu.model}
    guest = any(gpu.virtual_function for gpu in topology.gpus)
    slots = {gpu.bdf for gpu in topology.gpus}
    board = None
    if len(models) == 1 and not guest:
        board = gpu_facts(next(iter(models))).links.mesh
    carried = -(-len(slots) // board) * board if board else len(slots) or None
    return {
        **told,
        "gpus": settings.gpus or carried,
        "mesh": board is not None,
        "guest": guest,
        "models": {
            number: model.name
            for model in gpu_models().values()
            if model.name in models
            for number in (*model.devices, *model.virtual_functions)
        },
        "driver": _module(settings),
    }


def _module(settings: Settings) -> str | None:
    """Return the version that the driver's module reports, None where nobody asked for one."""
    known = driver_facts(parse(settings.driver_version or ""))
    return known.get("module") if known else None


def textfile(settings: Settings, told: Mapping[str, Any]) -> Service:
    """Return the timer, its service, the program and what the program reads."""
    facts = knowledge("telemetry/host.yml")
    folder = str(Path(told["file"]).parent)
    seconds = settings.interval_seconds or facts["interval_seconds"]
    limit = 2 * host_metrics.SYSTEMCTL_SECONDS + len(told["mounts"]) * (told["mount_seconds"] + 1)
    service = unit_text(
        SERVICE,
        mark=MANAGED,
        python=settings.python,
        program=PROGRAM,
        settings=SETTINGS,
        limit=limit,
        sandbox=sandbox(SERVICE, ReadWritePaths=folder),
    )
    program = standalone(Path(host_metrics.__file__))
    return Service(
        TIMER,
        f"{UNITS}/{TIMER}",
        (
            HostFile(PROGRAM, program),
            HostFile(SETTINGS, dumps(told)),
            HostFile(f"{UNITS}/{SERVICE}", service),
            HostFile(f"{UNITS}/{TIMER}", unit_text(TIMER, mark=MANAGED, seconds=seconds)),
        ),
    )
