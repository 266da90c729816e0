# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What holds for every recipe, whatever version, model, layout and GPU."""

import dataclasses
import functools
import shlex

from ansible_collections.apiary.instinct.plugins.plugin_utils.documents import knowledge
from ansible_collections.apiary.instinct.plugins.plugin_utils.engine.conditions import order
from ansible_collections.apiary.instinct.plugins.plugin_utils.engine.facts import names
from ansible_collections.apiary.instinct.plugins.plugin_utils.engine.flags import (
    env_vars,
    flags,
    versions,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.engine.recipe import assess, recipe
from ansible_collections.apiary.instinct.plugins.plugin_utils.engine.review import review
from ansible_collections.apiary.instinct.plugins.plugin_utils.findings import ApiaryError
from ansible_collections.apiary.instinct.plugins.plugin_utils.gpus import gpu_models
from ansible_collections.apiary.instinct.plugins.plugin_utils.model.config import (
    known,
    known_names,
)
from hypothesis import given
from hypothesis import strategies as st

from support.engines import QWEN, deployment
from support.examples import examples

GPUS = [None, *gpu_models()]
SIZES = st.sampled_from([1, 2, 3, 4, 6, 8])
architecture_of = functools.cache(known)
asked = st.builds(
    deployment,
    name=st.sampled_from(known_names()),
    version=st.sampled_from(versions()),
    size=SIZES,
    ep=st.booleans(),
    profile=st.sampled_from([None, *names()]),
    env=st.sampled_from([{}, {"VLLM_ROCM_USE_AITER": 0}, {"VLLM_ROCM_USE_AITER_MOE": 0}]),
    kv_cache_dtype=st.sampled_from(["auto", "fp8", "bfloat16", "fp8_ds_mla"]),
    max_model_len=st.sampled_from([None, 1, 32768, 10**6]),
    max_num_seqs=st.sampled_from([None, 8, 2048]),
    max_num_batched_tokens=st.sampled_from([None, 1024, 65536]),
)


def attempt(wanted, gpu):
    """Return the recipe, or None and the codes of the refusal."""
    try:
        return recipe(architecture_of(wanted.model.name), wanted, gpu, 8000), ()
    except ApiaryError as refusal:
        return None, {item.code for item in refusal.findings if item.severity == "error"}


@given(asked, st.sampled_from(GPUS))
@examples(3)
def test_no_recipe_has_an_element_that_its_version_does_not_know(wanted, gpu):
    made, _ = attempt(wanted, gpu)
    if made is None:
        return
    accepted = flags(made.version)
    name = None
    for part in made.argv[2:]:
        if part.startswith("-"):
            assert part in accepted
            name = accepted[part]
        elif name.choices is not None:
            assert part in name.choices
    known_env = env_vars(made.version)
    for variable, value in made.env.items():
        assert not variable.startswith("VLLM_") or variable in known_env
        choices = known_env[variable].choices if variable in known_env else None
        assert choices is None or value in choices


@given(asked, st.sampled_from(GPUS))
@examples(3)
def test_what_is_allowed_divides(wanted, gpu):
    made, codes = attempt(wanted, gpu)
    model, size = architecture_of(wanted.model.name), wanted.layout.tensor_parallel_size
    if made is None:
        assert codes
        return
    scheme = model.details.get("quantization") or {}
    block = (scheme.get("block") or [1])[0]
    group = scheme.get("group") or 1
    assert model.heads % size == 0
    if model.attention == "gqa":
        assert model.kv_heads % size == 0 or size % model.kv_heads == 0
    if model.experts and not wanted.layout.expert_parallel:
        width = model.details["moe_intermediate_size"]
        assert width % size == 0
        assert width % (size * group) == 0
        # From 0.29.0 on Triton's kernels take a part of a block.
        refined = order(made.rules_of) >= order("0.29.0")
        aiter = made.env.get("VLLM_ROCM_USE_AITER") == "1"
        triton = not aiter or made.env.get("VLLM_ROCM_USE_AITER_MOE") == "0"
        assert width % (size * block) == 0 or (refined and triton)
    if model.family == "dense":
        assert model.details["intermediate_size"] % (size * block) == 0
        assert not wanted.layout.expert_parallel
    if made.attention_backend == "ROCM_AITER_MLA" and order(made.rules_of) <= order("0.17.1"):
        assert model.heads // size in (16, 128)


@given(asked, st.sampled_from(GPUS))
@examples(1)
def test_the_same_question_has_the_same_answer(wanted, gpu):
    assert attempt(wanted, gpu) == attempt(wanted, gpu)


NAMES = st.one_of(
    st.text(max_size=12),
    st.sampled_from(["seed", "tp", "--no-enable-prefix-caching", "compilation-config.a.b", "O"]),
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3)
    ),
    max_leaves=4,
)


@given(
    st.sampled_from(versions()),
    st.dictionaries(NAMES, VALUES, max_size=3),
    st.dictionaries(NAMES, VALUES, max_size=3),
)
@examples(3)
def test_any_override_is_kept_whole_or_refused_with_a_finding(version, args, env):
    wanted = deployment(version=version, ep=True, args=args, env=env)
    made, codes = attempt(wanted, "MI325X")
    if made is None:
        assert codes
    else:
        assert all(isinstance(part, str) and "\n" not in part for part in made.argv)
        assert all(isinstance(part, str) and "\n" not in part for part in made.env.values())


@given(asked, st.sampled_from(GPUS))
@examples(2)
def test_to_force_every_refusal_leaves_a_recipe_with_warnings(wanted, gpu):
    model = architecture_of(wanted.model.name)
    found = assess(model, wanted, gpu, 8000)
    rules = {item.rule for item in found.refused}
    if "VLLM-CHOICE" in rules:
        return  # the KV format is a limit's value; what follows from it is not judged
    forced = dataclasses.replace(wanted, force=tuple(sorted(rules)))
    made = recipe(model, forced, gpu, 8000)
    assert made.argv == found.recipe.argv
    assert [item.code for item in made.findings].count("ENGINE-FORCED") == len(found.refused)


@given(
    st.lists(
        st.one_of(
            st.text(max_size=12),
            st.sampled_from(
                ["vllm", "serve", "docker run -e A=1 x", "--seed", "-tp", "$X", "'", '"', "\\\n"]
            ),
        ),
        max_size=12,
    ).map(" ".join),
    st.sampled_from(["", "vllm serve m "]),
)
@examples(4)
def test_any_text_is_reviewed_or_refused_with_a_finding(text, start):
    try:
        findings = review(start + text, architecture_of(QWEN), deployment(), "MI325X").findings
        allowed = set(knowledge("findings/engine.yml"))
    except ApiaryError as refusal:
        findings = refusal.findings
        allowed = {"ENGINE-RECIPE-EMPTY", "ENGINE-RECIPE-SYNTAX"}
    assert {item.code for item in findings} <= allowed
    assert all(item.subject and item.remedy for item in findings)


@given(asked, st.sampled_from(GPUS))
@examples(1.5)
def test_what_apiary_writes_passes_its_own_review(wanted, gpu):
    made, _ = attempt(wanted, gpu)
    if made is None:
        return
    env = " ".join(f"{name}={shlex.quote(value)}" for name, value in made.env.items())
    text = f"{env} vllm {shlex.join(made.argv)}"
    reviewed = review(text, architecture_of(wanted.model.name), wanted, gpu)
    grave = [item for item in reviewed.findings if item.severity == "error"]
    missing = [item for item in reviewed.findings if item.code == "ENGINE-MISSING"]
    assert not grave
    assert not missing or wanted.engine.env
    assert reviewed.attention_backend == made.attention_backend
