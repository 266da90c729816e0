# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a replica's container is, whoever runs it: image, mounts, variables, rights, command.

Podman and Docker spell every option used here alike.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ...documents import knowledge
from ...plan.types import Plan, Replica
from ..unit import directory, plan_path, unit_facts

FACTS = "serving/containers.yml"
PROGRAMS = "/usr/libexec/apiary"
PROGRAM = f"{PROGRAMS}/container"
CREDENTIALS = "/run/credentials"
RELAY = "/run/apiary-notify"


@dataclass(frozen=True)
class Mount:
    """A directory or file of the host that the container has, at ``target``."""

    source: str
    target: str
    writable: bool = False

    @property
    def volume(self) -> str:
        """Return it as the value of --volume."""
        return f"{self.source}:{self.target}:{'rw' if self.writable else 'ro'}"


@dataclass(frozen=True)
class ContainerRun:
    """One replica's container. ``options`` are words of `run`; ``command`` follows the image.

    ``prepare`` are the words after `container prepare`, which resolves what changes from boot to
    boot. Directories: ``private`` is root's, ``shared`` what replicas tell each other.
    """

    name: str
    image: str
    environment: dict[str, str]
    mounts: tuple[Mount, ...]
    options: tuple[str, ...]
    prepare: tuple[str, ...]
    command: tuple[str, ...]
    private: str
    shared: str


def container_run(plan: Plan, replica: Replica, index: int) -> ContainerRun:
    """Return the container of one replica; the plan's findings say what it may lack."""
    facts = unit_facts(plan, replica, index)
    name, document = facts["cache_root"], facts["spec_path"]
    weights = plan.deployment.model.path
    shared = f"/run/apiary/{replica.unit}"
    return ContainerRun(
        name=name,
        image=plan.deployment.engine.image or "",
        environment=_environment(plan, replica, facts),
        mounts=(
            Mount(PROGRAMS, PROGRAMS),
            Mount(document, document),
            # What was planned, beside what the engine measures.
            Mount(plan_path(plan), plan_path(plan)),
            Mount(weights, weights),
            Mount(f"/var/cache/{name}", f"/var/cache/{name}", writable=True),
            # The replicas before this one tell there how far they are; its own lies below.
            Mount("/run/apiary", "/run/apiary"),
            Mount(shared, shared, writable=True),
        ),
        options=_options(replica, name, facts["stop_seconds"]),
        prepare=_prepare(plan, facts),
        command=(
            "run",
            "--spec",
            document,
            "--",
            knowledge(FACTS)["images"]["executable"],
            *replica.argv[1:],
        ),
        private=f"/run/apiary-private/{replica.unit}",
        shared=shared,
    )


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


def _options(replica: Replica, name: str, stop_seconds: int) -> tuple[str, ...]:
    facts = knowledge(FACTS)
    limits = facts["limits"]
    files = limits["open_files"]
    bound = [f"--cpuset-cpus={replica.cpus}"] if replica.cpus else []
    if replica.memory_nodes:
        bound.append(f"--cpuset-mems={','.join(map(str, replica.memory_nodes))}")
    return (
        f"--entrypoint={PROGRAMS}/launch",
        # Not the directory of the caches: Python would import `triton` from there.
        f"--workdir=/var/cache/{name}/home",
        *bound,
        "--ipc=private",
        f"--shm-size={limits['shared_memory']}",
        f"--tmpfs=/tmp:{limits['temporary']}",
        "--ulimit=memlock=-1:-1",
        f"--ulimit=nofile={files}:{files}",
        "--ulimit=core=0:0",
        "--pids-limit=-1",
        # Weights, devices and systemd's socket have the host's labels, and keep them.
        "--security-opt=label=disable",
        f"--stop-timeout={stop_seconds}",
    )


def _prepare(plan: Plan, facts: dict[str, Any]) -> tuple[str, ...]:
    """Return what `container prepare` is told: the document, the user, secrets, caches."""
    directories = knowledge("serving.yml")["cache_directories"]["entries"]
    caches = knowledge(FACTS)["caches"]
    empty = [directories[name]["directory"] for name in caches["empty"]]
    retained = {
        entry["directory"] for name, entry in directories.items() if name not in caches["empty"]
    }
    if plan.model.vision:
        retained |= set(caches["vision"].values())
    return (
        "--spec",
        facts["spec_path"],
        "--user",
        plan.deployment.account,
        *(("--credentials", f"{directory(plan)}/credentials") if facts["credentials"] else ()),
        *(word for folder in sorted(retained) for word in ("--keep", folder)),
        *(word for folder in empty for word in ("--empty", folder)),
    )
