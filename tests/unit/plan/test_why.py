# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""`apiary explain --why`: one element in full, or what becomes of one that is not there."""

import pytest
from ansible_collections.apiary.instinct.plugins.plugin_utils.findings import ApiaryError
from ansible_collections.apiary.instinct.plugins.plugin_utils.plan.explain import explained
from ansible_collections.apiary.instinct.plugins.plugin_utils.plan.why import why_element

from support.demo import demo_plan


def why(asked):
    return why_element(demo_plan(), explained(demo_plan()), asked, "plan.json")


def refusal(asked):
    with pytest.raises(ApiaryError) as caught:
        why(asked)
    (finding,) = caught.value.findings
    assert finding.code == "EXPLAIN-NO-ELEMENT"
    return finding


def test_an_element_has_rule_reason_source_versions_and_wrong_claims():
    found = why("--attention-backend")
    assert found.rule == "VLLM-ATTENTION-AITER-FA"
    assert found.versions == "0.13.0 and newer"
    assert "head dim is 64, 128 or 256" in found.when
    assert found.reason
    assert found.source
    assert any("AITER_MHA" in claim.says for claim in found.claims)
    assert "VLLM-AITER-MHA-CHOICE" in {other.rule for other in found.related}
    text = "\n".join(found.lines())
    for part in ("ROCM_AITER_FA", "why:", "source:", "claimed:", "see also:"):
        assert part in text


@pytest.mark.parametrize(
    ("asked", "element"),
    [
        ("tensor-parallel-size", "--tensor-parallel-size"),
        ("--tensor_parallel_size", "--tensor-parallel-size"),
        ("-tp", "--tensor-parallel-size"),
        ("tp", "--tensor-parallel-size"),
        ("VLLM_ROCM_USE_AITER", "VLLM_ROCM_USE_AITER"),
        ("HOME", "HOME"),
        ("model", "model"),
    ],
)
def test_any_spelling_will_do(asked, element):
    assert why(asked).element == element


def test_rules_that_refuse_other_values_are_named():
    assert "VLLM-TP-HEADS" in {other.rule for other in why("-tp").related}


def test_what_the_plan_sets_for_the_unit_has_no_rule_of_the_engine():
    found = why("HOME")
    assert (found.rule, found.versions, found.claims) == ("SERVE-LOCAL-CACHE", "", ())
    assert found.replicas == (0, 1)


@pytest.mark.parametrize(
    ("asked", "says", "remedy"),
    [
        ("--max-num-seqs", "knows it, and its own default", "--max-num-batched-tokens"),
        ("--num-scheduler-steps", "known in 0.9.2 (Replace or remove it: leave it out", "nearest"),
        ("VLLM_USE_V1", "does not know it; it is known in 0.9.2 to 0.11.0", "VLLM_ROCM_USE_AITER"),
        (
            "--tensor-paralel-size",
            "perhaps --tensor-parallel-size is meant",
            "--tensor-parallel-size",
        ),
        ("VLLM_ROCM_USE_AITR", "does not know it", "VLLM_ROCM_USE_AITER"),
        ("zzz", "does not know it", "lists all"),
        ("--", "does not know it", "lists all"),
        ("", "does not know it", "lists all"),
        ("A B=c", "is not in this plan", "lists all"),
    ],
)
def test_what_is_not_there_has_its_nearest_names(asked, says, remedy):
    finding = refusal(asked)
    assert says in finding.message
    assert remedy in finding.remedy
