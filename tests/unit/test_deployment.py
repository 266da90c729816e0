# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A deployment's own numbers and names."""

import dataclasses
import re

import pytest
from ansible_collections.apiary.instinct.plugins.plugin_utils.deployment import (
    check_deployment,
    own_user,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.engine.recipe import recipe
from ansible_collections.apiary.instinct.plugins.plugin_utils.findings import ApiaryError
from ansible_collections.apiary.instinct.plugins.plugin_utils.model.config import known

from support.engines import QWEN, deployment


def changed(path, value):
    """Return a good deployment with one field, named with dots, changed."""
    good = deployment(ep=True)
    head, _, rest = path.partition(".")
    if rest:
        value = dataclasses.replace(getattr(good, head), **{rest: value})
    return dataclasses.replace(good, **{head: value})


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("layout.tensor_parallel_size", 0),
        ("layout.tensor_parallel_size", -4),
        ("layout.replicas", 0),
        ("limits.max_model_len", 0),
        ("limits.max_num_batched_tokens", -1),
        ("limits.max_num_seqs", 0),
        ("limits.gpu_memory_utilization", 0.0),
        ("limits.gpu_memory_utilization", 1.01),
        ("limits.gpu_memory_utilization", float("nan")),
        ("limits.start_timeout_seconds", 0),
        ("limits.drain_timeout_seconds", -1),
        ("limits.quality_questions_per_hour", -1),
        ("base_port", 80),
        ("base_port", 65535),
        ("name", "Bad Name"),
        ("name", ""),
        ("name", "x\n"),
        ("user", "root;"),
        ("listen_address", "0.0.0.0 --evil"),
        ("model.path", "relative/path"),
        ("model.path", "/with space"),
        ("model.name", "--flag"),
        ("engine.executable", "vllm"),
        ("engine.name", "sglang"),
    ],
)
def test_a_value_that_cannot_be_meant_is_refused(path, value):
    (finding,) = check_deployment(changed(path, value))
    assert (finding.code, finding.severity, finding.subject) == ("DEPLOY-VALUE", "error", path)


def test_the_user_of_a_deployment_is_short_valid_and_nobody_else_s():
    assert own_user("qwen3-235b") == "apiary-qwen3-235b"
    long = ["a" * 63, "a" * 62 + "b", "a" * 24, "a" * 25, "a" * 15 + "-" + "b" * 40]
    users = [own_user(name) for name in long]
    assert len(set(users)) == len(long)
    assert all(re.fullmatch(r"[a-z_][a-z0-9_-]{0,30}", user) for user in users), users
    # A cut one is never a name that another deployment has whole.
    assert [user for user in users if "_" not in user] == ["apiary-" + "a" * 24]


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("limits.gpu_memory_utilization", 1.0),
        ("limits.drain_timeout_seconds", 0),
        ("limits.quality_questions_per_hour", 0),
        ("base_port", 65534),
        ("listen_address", "fe80::1"),
        ("name", "q"),
    ],
)
def test_bounds_are_allowed(path, value):
    assert check_deployment(changed(path, value)) == ()


def test_a_recipe_of_a_bad_deployment_is_refused_before_any_rule():
    with pytest.raises(ApiaryError, match="DEPLOY-VALUE"):
        recipe(known(QWEN), changed("layout.tensor_parallel_size", 0), "MI325X", 8000)


@pytest.mark.parametrize(
    ("part", "name"),
    [
        ("env", "HF_TOKEN"),
        ("env", "AWS_SECRET_ACCESS_KEY"),
        ("args", "--api-key"),
        ("args", "api_key"),
    ],
)
def test_a_secret_is_refused_and_not_repeated(part, name):
    (finding,) = check_deployment(changed(f"engine.{part}", {name: "hunter2"}))
    assert finding.code == "DEPLOY-SECRET"
    assert "hunter2" not in str(finding)


@pytest.mark.parametrize(
    "name", ["NCCL_MIN_NCHANNELS", "VLLM_TOKENIZER_X", "max-num-batched-tokens"]
)
def test_an_ordinary_name_is_no_secret(name):
    assert check_deployment(changed("engine.args", {name: 1})) == ()
