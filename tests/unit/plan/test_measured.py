# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What engines measured counts for the same recipe, and others' memory is seen."""

import dataclasses

import pytest
from ansible_collections.apiary.instinct.plugins.plugin_utils.bench.types import Workload
from ansible_collections.apiary.instinct.plugins.plugin_utils.documents import (
    to_document,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.plan.build import (
    PlanRequest,
    architecture_of,
    build_plans,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.plan.types import plan_of
from ansible_collections.apiary.instinct.plugins.plugin_utils.topology.types import Start
from ansible_collections.apiary.instinct.plugins.plugin_utils.tune.candidates import facts

from support.demo import demo_deployment
from support.topology.topologies import mi325x

GIB = 2**30


def planned(topology, keep=None, **changes):
    deployment = dataclasses.replace(demo_deployment(), **changes)
    request = PlanRequest(deployment, architecture_of(deployment, "demo"), keep)
    return build_plans((request,), topology)[0]


def started(plan, **figures):
    """The topology of a host whose first replica's engine measured this."""
    one = plan.replicas[0]
    start = {
        "unit": one.unit,
        "at": 1_790_000_000,
        "engine_version": plan.deployment.engine.version,
        "gpu_model": "MI325X",
        "recipe": one.recipe,
        "gpus": one.gpus,
    }
    return dataclasses.replace(mi325x(), starts=(Start(**{**start, **figures}),))


def notes(plan):
    return {one.code: one for one in plan.findings if one.code.startswith("FIT-MEASURED")}


@pytest.fixture(scope="module")
def computed():
    return planned(mi325x())


def test_a_measured_figure_counts_for_all_replicas_of_its_recipe(computed):
    tokens = int(computed.memory.kv_tokens_per_engine * 0.9)
    weights = int(computed.memory.weights_bytes_per_gpu * 1.1)
    host = started(computed, kv_tokens=tokens, weights_bytes_per_gpu=weights)
    plan = planned(host)
    assert [one.kv_tokens for one in plan.replicas] == [tokens, tokens]
    assert plan.memory.kv_tokens_per_host == 2 * tokens
    assert plan.memory.weights_bytes_per_gpu == weights
    assert plan.memory.max_sequences == pytest.approx(0.9 * computed.memory.max_sequences, 1e-3)
    note = notes(plan)["FIT-MEASURED"]
    assert note.source.startswith("measured on ")
    assert "2026-09-21" in note.source
    assert f"{tokens:,} tokens of KV cache a replica (computed " in note.message
    assert "FIT-RESERVE-ASSUMED" not in {one.code for one in plan.findings}
    assert len({one.recipe for one in plan.replicas}) == 1
    # Commands are as they were: nothing restarts for it.
    assert [one.argv for one in plan.replicas] == [one.argv for one in computed.replicas]
    sources = {one.name: one.source for one in facts(plan, host, Workload("w", 1000, 100))}
    assert sources["kv_tokens_per_host"] == note.source


@pytest.mark.parametrize(
    "other", [{"recipe": "0" * 16}, {"engine_version": "0.1.0"}, {"gpu_model": "MI300X"}]
)
def test_figures_of_something_else_do_not(computed, other):
    plan = planned(started(computed, kv_tokens=5_000_000, **other))
    assert plan == computed


def test_what_agrees_with_the_computed_changes_nothing_but_where_it_is_from(computed):
    close = int(computed.memory.kv_tokens_per_engine * 1.01)
    plan = planned(started(computed, kv_tokens=close))
    assert plan.replicas == computed.replicas
    assert notes(plan) == {}


@pytest.mark.parametrize("factor", [0.01, 100])
def test_what_is_not_credible_does_not_count(computed, factor):
    plan = planned(started(computed, kv_tokens=int(computed.memory.kv_tokens_per_engine * factor)))
    assert plan.replicas == computed.replicas
    assert set(notes(plan)) == {"FIT-MEASURED-ODD"}


@pytest.mark.parametrize("factor", [0.9, 1.0, 100])
def test_the_run_after_the_first_start_changes_no_plan(computed, factor):
    host = started(computed, kv_tokens=int(computed.memory.kv_tokens_per_engine * factor))
    before = plan_of(to_document(computed), "plan.json")
    assert planned(host, keep=before) == before


def test_a_plan_that_changes_counts_with_what_was_measured(computed):
    tokens = int(computed.memory.kv_tokens_per_engine * 0.9)
    plan = planned(started(computed, kv_tokens=tokens), keep=computed, base_port=9000)
    assert plan.replicas[0].recipe == computed.replicas[0].recipe
    assert plan.replicas[0].kv_tokens == tokens


def test_a_restart_changes_no_plan(computed):
    tokens = int(computed.memory.kv_tokens_per_engine * 0.9)
    before = planned(started(computed, kv_tokens=tokens))
    before = plan_of(to_document(before), "plan.json")
    again = started(computed, kv_tokens=tokens + 1000, at=1_790_009_999)
    assert planned(again, keep=before) == before
    # Nor does a host that has not started anything yet.
    assert planned(mi325x(), keep=before) == before


def taken(topology, key, used):
    gpus = [
        dataclasses.replace(gpu, vram_used_bytes=used if gpu.bdf == key else 0)
        for gpu in topology.gpus
    ]
    return dataclasses.replace(topology, gpus=tuple(gpus))


def test_memory_that_others_use_is_a_finding(computed):
    key = computed.replicas[0].gpus[0]
    busy = taken(mi325x(), key, 40 * GIB)
    (found,) = [one for one in planned(busy).findings if one.code == "PLAN-GPU-MEMORY"]
    assert f"{key} (40.0 of 256.0 GiB)" in found.message
    # A replica of ours that runs there is no other.
    for quiet in (
        planned(busy, keep=computed),
        planned(dataclasses.replace(busy, starts=started(computed).starts)),
        planned(taken(mi325x(), key, GIB)),
    ):
        assert "PLAN-GPU-MEMORY" not in {one.code for one in quiet.findings}
