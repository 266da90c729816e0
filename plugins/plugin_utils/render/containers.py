# SPDX-License-Identifier: GPL-3.0-or-later

"""A replica in a container: image, mounts, rights, command, its unit, and what stands against it.

Podman and Docker spell every option used here alike. The unit is a quadlet, or a service around
docker run.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ..documents import knowledge
from ..findings import ApiaryError, Finding, has_errors
from ..plan.types import Plan, Replica
from .unit import (
    UNITS,
    RenderedFile,
    digest,
    directory,
    program,
    spec_file,
    templates,
    unit_facts,
)

FACTS = "serving/containers.yml"
PROGRAMS = "/usr/libexec/apiary"
PROGRAM = f"{PROGRAMS}/container"
CREDENTIALS = "/run/credentials"
RELAY = "/run/apiary-notify"
QUADLETS = "/etc/containers/systemd"


def _environment(plan: Plan, replica: Replica, facts: dict[str, Any]) -> dict[str, str]:
    """Return the plan's variables, and those that systemd would set for a process of its own."""
    name = facts["cache_root"]
    caches = knowledge(FACTS)["caches"]
    seen = caches["vision"] if plan.model.vision else {}
    return {
        # Python's getpass finds no name for a number that the image doesn't know.
        "USER": plan.deployment.account,
        **{variable: f"/var/cache/{name}/{folder}" for variable, folder in seen.items()},
        **replica.env,
        "CACHE_DIRECTORY": f"/var/cache/{name}",
        "RUNTIME_DIRECTORY": f"/run/apiary/{replica.unit}",
        "WATCHDOG_USEC": str(facts["watchdog_seconds"] * 10**6),
        **({"CREDENTIALS_DIRECTORY": CREDENTIALS} if plan.deployment.credentials else {}),
    }


def _caches(plan: Plan) -> dict[str, list[str]]:
    """Return the directories of the caches that are kept, and those that begin empty."""
    directories = knowledge("serving.yml")["cache_directories"]["entries"]
    caches = knowledge(FACTS)["caches"]
    retained = {
        entry["directory"] for name, entry in directories.items() if name not in caches["empty"]
    }
    if plan.model.vision:
        retained |= set(caches["vision"].values())
    empty = [directories[name]["directory"] for name in caches["empty"]]
    return {"retained": sorted(retained), "emptied": empty}


def shared_files() -> tuple[RenderedFile, RenderedFile]:
    """Return what a host's containers share: their system calls, what prepares them."""
    path = knowledge(FACTS)["rights"]["seccomp"]
    return (
        RenderedFile(path, "0644", _seccomp()),
        RenderedFile(PROGRAM, "0755", program("container")),
    )


def _seccomp() -> str:
    return json.dumps(knowledge("serving/seccomp.yml")["profile"], indent=1) + "\n"


def container_files(plan: Plan, replica: Replica, index: int) -> tuple[RenderedFile, ...]:
    """Return a replica's launch document and its unit.

    Raises ApiaryError where the plan's replicas could not run in a container.
    """
    findings = tuple(review(plan))
    if has_errors(findings):
        raise ApiaryError(*(finding for finding in findings if finding.severity == "error"))
    return (spec_file(plan, replica, index), _unit(plan, replica, index))


def unit_path(plan: Plan, replica: Replica) -> str:
    """Return where a replica's unit file lies; Podman's generator reads a directory of its own."""
    if plan.deployment.engine.runtime == "quadlet":
        return f"{QUADLETS}/{Path(replica.unit).stem}.container"
    return f"{UNITS}/{replica.unit}"


def _unit(plan: Plan, replica: Replica, index: int) -> RenderedFile:
    facts = knowledge(FACTS)
    shared = unit_facts(plan, replica, index)
    pull_seconds = facts["limits"]["pull_seconds"]
    life = knowledge("serving/life.yml")
    pause_seconds = life["backoff"]["most_seconds"]
    start_seconds = shared["spec"].start_timeout_seconds
    if plan.deployment.engine.runtime == "quadlet":
        start_seconds *= life["start"]["most_timeouts"]
    text = (
        templates()
        .get_template(f"containers/replica.{plan.deployment.engine.runtime}.j2")
        .render(
            **shared,
            **_caches(plan),
            environment=_environment(plan, replica, shared),
            executable=facts["images"]["executable"],
            limits=facts["limits"],
            programs=PROGRAMS,
            credentials_path=f"{directory(plan)}/credentials",
            rights=facts["rights"],
            sandbox=facts["sandbox"]["entries"],
            program=PROGRAM,
            credentials_directory=CREDENTIALS,
            seccomp_digest=digest(_seccomp()),
            relay=RELAY,
            # The engine's own limit is the supervisor's, whom Podman's conmon lets ask for no more.
            start_seconds=start_seconds + pull_seconds + pause_seconds,
            stop_spare_seconds=facts["limits"]["stop_spare_seconds"],
        )
    )
    return RenderedFile(unit_path(plan, replica), "0644", text, unit=replica.unit)


_VERSION = re.compile(r"(?<!\d)\d+(?:\.\d+)+")


def is_pinned(image: str) -> bool:
    """Say whether a registry can't move what this names."""
    return "@sha256:" in image


def review(plan: Plan) -> Iterator[Finding]:
    """Yield every finding about a plan whose replicas shall run in containers."""
    yield from _image(plan)
    for index, replica in enumerate(plan.replicas):
        words = {"its command": replica.argv, "its environment": tuple(replica.env.values())}
        for where, texts in words.items():
            garbled = [text for text in texts if not text.isprintable()]
            if where == "its command" and "" in texts:
                garbled.append("")
            if garbled:
                yield Finding(
                    "CONTAINER-WORD",
                    f"replica {index}",
                    f"{where} has {', '.join(map(repr, garbled))}; Podman's generator drops empty"
                    " words and garbles what can't be printed",
                    source=knowledge(FACTS)["engines"]["quadlet"]["garbles_source"],
                )
    path = plan.deployment.model.path
    if ":" in path or "," in path:
        yield Finding(
            "CONTAINER-PATH",
            "model.path",
            f"{path} has a colon or comma, which parts the fields of a mount",
        )
    if plan.deployment.engine.image is not None:
        yield from _ipc(plan, plan.deployment.engine.image)


def _image(plan: Plan) -> Iterator[Finding]:
    engine = plan.deployment.engine
    if engine.image is None:
        official = list(knowledge(FACTS)["images"]["families"])[0]  # noqa: RUF015 - a generator
        yield Finding(
            "CONTAINER-NO-IMAGE",
            "engine.image",
            f"is not set, and runtime {engine.runtime} runs an image",
            version=engine.version,
            official=official,
        )
    elif not is_pinned(engine.image):
        yield Finding(
            "CONTAINER-UNPINNED",
            engine.image,
            "is named by its tag, which its registry can move: replicas of one fleet could run"
            " different engines; expected a digest",
        )


def _ipc(plan: Plan, image: str) -> Iterator[Finding]:
    """Tell of the variable that official images set, where engines exchange GPU memory."""
    facts = knowledge(FACTS)["images"]
    baked = any(f"{name}:" in image or f"{name}@" in image for name in facts["legacy_ipc"])
    several = any(len(replica.gpus) > 1 for replica in plan.replicas)
    configured = all("HSA_ENABLE_IPC_MODE_LEGACY" in replica.env for replica in plan.replicas)
    if baked and several and not configured:
        yield Finding(
            "CONTAINER-IPC-MODE",
            image,
            "sets HSA_ENABLE_IPC_MODE_LEGACY=1, with which some driver and ROCm pairs fail:"
            " `hipIpcGetMemHandle failed`, p2p.cc:256",
            source=facts["legacy_ipc_source"],
        )


def engine_findings(runtime: str, version: str | None, host: str) -> Iterator[Finding]:
    """Yield why a host's engine, as `podman --version` or `docker --version` tells it, won't do.

    ``version`` None: the host has none.
    """
    facts = knowledge(FACTS)["engines"].get(runtime)
    if facts is None:
        return
    engine = "podman" if runtime == "quadlet" else runtime
    match = _VERSION.search(version or "")
    if match is None:
        yield Finding(
            "CONTAINER-ENGINE-ABSENT",
            host,
            f"found no {engine}, which engine.runtime {runtime} needs",
        )
    elif _order(match[0]) < _order(facts["minimum"]):
        what = "reads no quadlets" if runtime == "quadlet" else "lacks options of `run`"
        yield Finding(
            "CONTAINER-RUNTIME-OLD",
            host,
            f"found {engine} {match[0]}, which {what}; expected {facts['minimum']} or later",
            source=facts["source"],
        )


def _order(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))
