# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What deciding reads, read once by the process that the workers of all hosts are forked from.

Ansible imports an action plugin there, and forks a worker for each host and task: what a worker
has read is lost with it, which took two thirds of the time that a host's survey is decided in.
"""

from __future__ import annotations

import importlib

from .. import host
from ..documents import KNOWLEDGE, knowledge, learn
from ..engine.advisories import advisories
from ..engine.rules import rules
from ..evidence.types import Evidence
from ..gpus import gpu_models
from ..host.concerns import CONCERNS
from ..host.program import findings
from ..host.role_options import Role, read_role
from ..plan.types import Plan
from ..render.files import templates
from ..render.launcher import supervisor_files

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
