# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the supervisor on a host is told of its replica: `apiary.launch/v1`, beside the argv."""

from __future__ import annotations

from ..documents import knowledge
from ..plan.ports import agent_port
from ..plan.timing import start_timeout
from ..plan.types import Plan, Replica
from .host.spec import LaunchSpec


def launch_spec(plan: Plan, replica: Replica, index: int) -> LaunchSpec:
    """Return the launch document of one replica of a plan."""
    deployment = plan.deployment
    address = deployment.listen_address
    # A wildcard address listens on loopback too.
    wildcard = address in ("0.0.0.0", "::", "")  # noqa: S104
    own = "127.0.0.1" if wildcard else address
    headless = plan.node is not None and plan.node.rank > 0
    return LaunchSpec(
        unit=replica.unit,
        deployment=deployment.name,
        replica=index,
        runtime=deployment.engine.runtime,
        gpus=replica.gpus,
        cpus=replica.cpus,
        memory_nodes=replica.memory_nodes,
        listen_address=address,
        probe_address=plan.node.master_address if plan.node and headless else own,
        port=replica.port,
        model_name=deployment.model.name,
        weights=deployment.model.path,
        secrets=deployment.credentials,
        after=tuple(other.unit for other in plan.replicas[:index]),
        start_timeout_seconds=start_timeout(plan, replica),
        drain_timeout_seconds=deployment.limits.drain_timeout_seconds,
        hang_seconds=deployment.limits.hang_timeout_seconds
        or knowledge("serving/life.yml")["watchdog"]["hang_seconds"],
        headless=headless,
        agent_port=None if headless else agent_port(replica),
    )
