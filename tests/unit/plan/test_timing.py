# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

import dataclasses

from ansible_collections.apiary.instinct.plugins.plugin_utils.model.config import known
from ansible_collections.apiary.instinct.plugins.plugin_utils.plan.cases import cases_of
from ansible_collections.apiary.instinct.plugins.plugin_utils.plan.replica import start_timeout

from support.demo import demo_plan
from support.engines import KIMI, QWEN, deployment
from support.planned import build_plan
from support.topology.topologies import mi325x


def timeout(name, speed=None, **limits):
    one = deployment(name, size=8, ep=True, max_model_len=32768, **limits)
    one = dataclasses.replace(one, model=dataclasses.replace(one.model, read_mb_per_second=speed))
    plan = build_plan(one, mi325x(), known(name))
    (replica,) = plan.replicas
    seconds = start_timeout(plan, replica)
    assert replica.start_timeout_seconds == seconds
    assert replica.env["VLLM_ENGINE_READY_TIMEOUT_S"] == str(seconds)
    return seconds


def test_a_start_may_take_as_long_as_its_weights_need():
    assert timeout(QWEN) == 3600  # 220 GiB: no less than an hour
    assert timeout(QWEN, speed=100) > 6000
    assert 4000 < timeout(KIMI) < 5000  # 595 GB, twice, at 500 MB/s, and half an hour
    assert timeout(KIMI, speed=11000) == 3600


def test_what_the_operator_says_stands():
    assert timeout(KIMI, start_timeout_seconds=900) == 900


def test_a_computed_timeout_is_no_change_between_versions():
    one = deployment(KIMI, size=8, ep=True, max_model_len=32768)
    (case,) = cases_of(build_plan(one, mi325x(), known(KIMI)))
    assert case.on_version("0.33.0").recipe.env == case.recipe.env


def test_plans_without_one_get_the_computed():
    plan = demo_plan()
    old = dataclasses.replace(plan.replicas[0], start_timeout_seconds=None)
    assert start_timeout(plan, old) == plan.deployment.limits.start_timeout_seconds
    limits = dataclasses.replace(plan.deployment.limits, start_timeout_seconds=None)
    asked = dataclasses.replace(plan.deployment, limits=limits)
    assert start_timeout(dataclasses.replace(plan, deployment=asked), old) == 3600
