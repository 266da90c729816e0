# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What changes on another vLLM version, and why."""

import pytest
from ansible_collections.apiary.instinct.plugins.plugin_utils.engine.migration import (
    migration,
    parts,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.engine.recipe import assess, recipe
from ansible_collections.apiary.instinct.plugins.plugin_utils.model.config import known

from support.engines import DEEPSEEK, KIMI, QWEN, deployment, published


def changes(before, after, name=QWEN, size=4, **more):
    def made(version):
        return deployment(name, version, size, ep=True, max_model_len=4096, **more)

    old = recipe(known(name), made(before), "MI325X", 8000)
    return {
        (change.element, change.kind): change
        for change in migration(old, assess(known(name), made(after), "MI325X", 8000))
    }


def test_a_recipe_does_not_change_against_itself():
    made = recipe(known(QWEN), published("0.14.1"), "MI325X", 8000)
    assert migration(made, made) == ()


def test_what_a_newer_version_brings_is_added_with_its_reason():
    found = changes("0.14.1", "0.33.0")
    drain = found["--shutdown-timeout", "added"]
    assert (drain.before, drain.after) == (None, "--shutdown-timeout 60")
    assert "running requests finish" in drain.reason
    assert "0.18.0 and newer" in drain.reason
    assert drain.source


def test_what_only_older_versions_need_is_removed_with_the_reason():
    found = changes("0.14.1", "0.33.0", DEEPSEEK, 8)
    block = found["--block-size", "removed"]
    assert (block.before, block.after) == ("--block-size 1", None)
    assert "needed for 0.12.0 to 0.17.1 only" in block.reason


def test_what_a_new_kernel_makes_needless_is_removed():
    found = changes("0.15.1", "0.33.0", KIMI, 8)
    assert "no longer needs it" in found["VLLM_ROCM_USE_AITER_MLA", "removed"].reason
    assert "0.15.0 to 0.16.0 only" in found["VLLM_ROCM_USE_AITER_FP4BMM", "removed"].reason
    backend = found["attention backend", "backend"]
    assert (backend.before, backend.after) == ("TRITON_MLA", "ROCM_AITER_MLA")


def test_a_spelling_that_changes_is_renamed():
    found = changes("0.32.0", "0.33.0", args={"enable-prefix-caching": False})
    renamed = found["--no-enable-prefix-caching", "renamed"]
    assert renamed.after == "--disable-prefix-caching"


def test_a_default_that_changes_under_the_recipe_is_said():
    found = changes("0.32.0", "0.33.0")
    default = found["VLLM_ROCM_USE_AITER_FP8BMM", "default"]
    assert (default.before, default.after) == ("true", "false")
    # The recipe says it itself, so that its default is of no matter.
    assert ("--gpu-memory-utilization", "default") not in changes("0.14.1", "0.33.0")
    assert not [name for name, kind in found if "FLASHINFER" in name]


GONE = "VLLM_V1_USE_PREFILL_DECODE_ATTENTION"


def test_what_the_new_version_refuses_comes_first():
    old = deployment(QWEN, "0.11.0", 4, ep=True, env={GONE: 1})
    new = deployment(QWEN, "0.33.0", 4, ep=True, env={GONE: 1})
    before = recipe(known(QWEN), old, "MI325X", 8000)
    first, *_ = migration(before, assess(known(QWEN), new, "MI325X", 8000))
    assert (first.element, first.kind) == (GONE, "refused")
    assert "0.9.2 to 0.14.1" in first.reason


def test_a_flag_that_is_gone_says_what_replaces_it():
    def made(version, **args):
        return recipe(known(QWEN), deployment(QWEN, version, 4, ep=True, args=args), "MI325X", 8000)

    found = {
        change.element: change
        for change in migration(made("0.14.1", **{"swap-space": 4}), made("0.33.0"))
    }
    assert "known in 0.9.2 to 0.17.1" in found["--swap-space"].reason
    assert "does not swap" in found["--swap-space"].reason


def test_a_value_that_changes_is_changed():
    old = published("0.33.0")
    made = recipe(known(QWEN), old, "MI325X", 8000)
    other = recipe(known(QWEN), old, "MI325X", 8001)
    (change,) = migration(made, other)
    assert (change.element, change.kind, change.before, change.after) == (
        *("--port", "changed"),
        *("8000", "8001"),
    )


@pytest.mark.parametrize("version", ["0.14.1", "0.33.0"])
def test_the_parts_of_a_recipe_are_all_of_it(version):
    asked = deployment(
        version=version,
        ep=True,
        args={
            "compilation-config.cudagraph_mode": "PIECEWISE",
            "middleware": ["a.b", "c.d"],
            "seed": -1,
            "no-such": True,
        },
        force=("VLLM-KNOWN-FLAG",),
    )
    made = recipe(known(QWEN), asked, "MI325X", 8000)
    found = parts(made)
    assert len(found) == len(made.reasons) - 1  # the model is no element
    assert found["flag compilation_config.cudagraph_mode"].text == "PIECEWISE"
    assert found["flag seed"].text == "-1"
    assert found["flag no_such"].text == ""
    assert found["flag middleware"].text == "a.b --middleware c.d"
