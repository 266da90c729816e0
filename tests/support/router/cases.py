# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Routers whose configurations are golden files, and checked by HAProxy itself."""

from __future__ import annotations

from dataclasses import replace

from ansible_collections.apiary.instinct.plugins.plugin_utils.router.pools import (
    PlannedHost,
    pools_from_plans,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.router.types import (
    Affinity,
    ApiKey,
    Experiment,
    Limits,
    Queueing,
    Router,
    RouterSettings,
    RouterTracing,
    Tls,
)

from support.demo import demo_plan

EVERYTHING = RouterSettings(
    listen=("*", "::"),
    ports={"qwen3-235b": 8443},
    affinity=Affinity(
        keys=("header:X-Session-Id", "cookie:session", "json:prompt_cache_key", "address")
    ),
    tls=Tls(minimum="TLSv1.3"),
    keys=(ApiKey("alice", "a" * 64, 600), ApiKey("batch@team", "b" * 64, None, 32, "low")),
    queueing=Queueing(within_slo={"small": 96}),
    limits=Limits(body_seconds=20, connections_per_source=500),
    paths=("/v1/custom",),
    admin_listen="::1",
    active_routers=2,
    threads=4,
    name_replica=True,
)
SHARED = replace(EVERYTHING, listen=("*",), ports={}, shared_port=8000, threads=None, paths=())
DIVIDED = RouterSettings(
    shared_port=8000,
    keys=(ApiKey("alice", "a" * 64),),
    experiments={"qwen3-235b": Experiment("small", 0.1)},
)
TRACED = RouterTracing(ratio=0.01)


def routers() -> dict[str, Router]:
    """Return the routers by name."""
    plan = demo_plan()
    one = [PlannedHost("gpu-001", "10.0.0.1", plan)]
    deployment = replace(plan.deployment, name="small", secrets=("VLLM_API_KEY",))
    moved = tuple(replace(replica, port=replica.port + 100) for replica in plan.replicas)
    other = replace(deployment, model=replace(deployment.model, name="org/small"))
    names = ("--served-model-name", "org/small", "small", "--lora-modules", "sql=/srv/sql")
    served = tuple(replace(replica, argv=(*replica.argv[:2], *names)) for replica in moved)
    two = [
        *one,
        PlannedHost("gpu-002", "10.0.0.2", replace(plan, deployment=other, replicas=served)),
    ]
    pair = [*one, PlannedHost("gpu-002", "10.0.0.2", replace(plan, deployment=deployment))]
    several = [
        *one,
        PlannedHost("gpu-002.example.org", "fd00::2", plan),
        PlannedHost("gpu-001", "10.0.0.1", replace(plan, deployment=deployment, replicas=moved)),
    ]
    cases = {
        "default": (one, RouterSettings()),
        "everything": (several, EVERYTHING),
        "shared": (two, SHARED),
        "experiment": (pair, DIVIDED),
        "traced": (one, RouterSettings(tracing=TRACED)),
        "haproxy-2.4": (one, RouterSettings(version="2.4.24-0ubuntu0.22.04.1")),
    }
    found = {
        name: Router(settings, pools_from_plans(plans, settings)[0])
        for name, (plans, settings) in cases.items()
    }
    large, small = found["shared"].pools
    found["shared"] = replace(found["shared"], pools=(replace(large, images=True), small))
    return found
