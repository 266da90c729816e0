# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A plan as the files of a systemd host: supervisor, slice, replicas, target, the plan itself."""

from __future__ import annotations

from collections.abc import Callable

from ..deployment import Runtime
from ..documents import dumps, knowledge
from ..plan.types import Plan, Replica
from .containers import container_files, shared_files
from .files import UNITS, RenderedFile, environment_file, templates
from .unit import SLICE, digest, directory, plan_path, spec_file, supervisor_files, unit_facts

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
