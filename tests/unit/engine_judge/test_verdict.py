# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which answers of vLLM agree with which words of ours."""

import dataclasses

import pytest

from engine.cases import Case
from engine.verdict import (
    canary_problem,
    disagreements,
    foreign,
    record,
    row,
    summary,
    table,
    verdict,
)


def case(*refused, backend=None):
    return Case("a case", "MI325X", ("serve", "/model"), {"A": "1"}, backend, refused)


def said(stage="accepted", backends=("ROCM_AITER_FA",), unknown=()):
    opinion = {"stage": stage, "unknown_env": list(unknown), "backends": list(backends)}
    if stage != "accepted":
        opinion |= {"error": "ValueError: no", "at": ["vllm/config.py:7 check"]}
    return opinion


@pytest.mark.parametrize(
    ("refused", "stage", "outcome"),
    [
        ((), "accepted", "accepted"),
        ((), "parser", "wrong"),
        ((), "config", "wrong"),
        ((), "backend", "wrong"),
        ((), "load", "wrong"),
        ((("R", "parser"),), "parser", "predicted"),
        ((("R", "config"),), "parser", "predicted"),
        ((("R", "config"),), "config", "predicted"),
        ((("R", "backend"),), "config", "predicted"),
        ((("R", "load"),), "load", "predicted"),
        ((("R", "load"),), "backend", "predicted"),
        ((("R", "parser"),), "config", "wrong"),
        ((("R", "config"),), "load", "wrong"),
        ((("R", "parser"), ("S", "config")), "config", "predicted"),
        ((("R", "parser"),), "accepted", "wrong"),
        ((("R", "config"),), "accepted", "wrong"),
        ((("R", "backend"),), "accepted", "wrong"),
        ((("R", "load"),), "accepted", "unseen"),
        ((("R", "run"),), "accepted", "unseen"),
        ((("R", None),), "accepted", "unseen"),
        ((("R", None),), "config", "wrong"),
        ((("R", "run"),), "load", "wrong"),
        ((("R", None), ("S", "config")), "accepted", "wrong"),
    ],
)
def test_a_refusal_agrees_with_the_stage_that_it_names(refused, stage, outcome):
    found = verdict(case(*refused), said(stage))
    assert found.outcome == outcome
    assert (found.problem is not None) == (outcome == "wrong")


@pytest.mark.parametrize(
    ("predicted", "backends", "outcome", "backend"),
    [
        ("ROCM_AITER_FA", ["ROCM_AITER_FA"], "accepted", "agreed"),
        (None, ["ROCM_AITER_FA"], "accepted", "unpredicted"),
        (None, [], "accepted", ""),
        ("ROCM_ATTN", ["ROCM_AITER_FA"], "wrong", ""),
        ("ROCM_AITER_FA", ["ROCM_AITER_FA", "ROCM_ATTN"], "wrong", ""),
        ("ROCM_AITER_FA", [], "wrong", ""),
    ],
)
def test_the_backend_is_the_one_that_the_recipe_says(predicted, backends, outcome, backend):
    found = verdict(case(backend=predicted), said(backends=backends))
    assert (found.outcome, found.backend) == (outcome, backend)


def test_a_variable_that_the_version_does_not_know_is_wrong():
    found = verdict(case(), said(unknown=["VLLM_USE_V1"]))
    assert found.outcome == "wrong"
    assert "VLLM_USE_V1" in (found.problem or "")


def test_a_judge_that_cannot_say_is_no_agreement():
    found = verdict(case(("R", "config")), {"broken": "OSError: no memory"})
    assert found.outcome == "broken"
    assert "no memory" in (found.problem or "")


def test_a_disagreement_names_the_rule_the_error_its_place_and_the_command():
    found = [verdict(case(("VLLM-X", None)), said("config"))] * 3
    (text,) = disagreements("0.14.1", found)
    assert text == (
        "vLLM 0.14.1: VLLM-X says vLLM takes it, and it does not (config):"
        " ValueError: no (at vllm/config.py:7 check)\n"
        "  a case; 2 more: a case; a case\n"
        "  A=1 vllm serve /model"
    )


def test_agreement_has_nothing_to_say():
    assert disagreements("0.14.1", [verdict(case(), said())]) == []


def test_a_judge_that_agrees_with_a_canary_is_named():
    wrong, right = verdict(case(backend="TRITON_MLA"), said()), verdict(case(), said())
    broken = verdict(case(), {"broken": "no"})
    assert canary_problem([wrong, wrong]) is None
    assert canary_problem([wrong, right]) == "the judge does not see a wrong case: a case"
    assert canary_problem([broken]) is not None


@pytest.mark.parametrize(
    ("version", "own", "words"),
    [
        ("0.29.0", ["Dots3NoteForCausalLM", "HYV4ForCausalLM"], []),
        ("0.30.0", ["Dots3NoteForCausalLM"], []),
        ("0.20.2", [], []),
        ("0.30.0", ["Dots3NoteForCausalLM", "HYV4ForCausalLM"], ["no rule refuses HYV4"]),
        ("0.29.0", ["Dots3NoteForCausalLM"], ["a rule refuses HYV4"]),
    ],
)
def test_a_class_for_other_gpus_is_refused_by_a_rule_and_no_other_is(version, own, words):
    opinion = {"classes": {name: "NotImplementedError: not on ROCm" for name in own}}
    found = foreign(version, opinion)
    assert len(found) == len(words)
    assert all(word in problem for word, problem in zip(words, found, strict=True))


def test_classes_that_the_judge_cannot_name_are_no_agreement():
    assert foreign("0.30.0", {"broken": "its process ended"}) != []


def test_the_table_counts_every_case_once():
    found = [
        verdict(case(backend="ROCM_AITER_FA"), said()),
        verdict(case(), said()),
        verdict(case(("R", "config")), said("config")),
        verdict(case(("R", "load")), said()),
        verdict(case(), said("load")),
        verdict(case(), {"broken": "no"}),
    ]
    line = row("0.14.1", found, 31.4)
    assert line == ("0.14.1", "6", "2", "1", "1", "1", "1", "2", "31")
    heading, numbers = table([line]).splitlines()
    assert len(heading) == len(numbers)
    assert heading.split()[0] == "vLLM"


@pytest.mark.parametrize(
    ("apiary", "vllm", "words"),
    [
        (1000, 1005, "1 within 1 %, 0 off by less than 5 %, 0 by more, 0 unknown"),
        (1000, 1020, "0 within 1 %, 1 off by less than 5 %, 0 by more, 0 unknown"),
        (1000, 2000, "0 within 1 %, 0 off by less than 5 %, 1 by more, 0 unknown"),
        (None, 2000, "0 within 1 %, 0 off by less than 5 %, 0 by more, 1 unknown"),
    ],
)
def test_a_run_is_summed_up_by_what_vllm_takes_and_holds(apiary, vllm, words):
    kv = {"full": 8, "sliding": 0, "linear": 0}
    whole = dataclasses.replace(case(), memory={"weights": apiary, **kv})
    cases = [(whole, said() | {"memory": {"weights": vllm, **kv}})]
    cases += [(case(), said("load")), (case(("R", "config")), said("config"))]
    line = summary([record(verdict(one, opinion), opinion) for one, opinion in cases])
    assert line.startswith("recipes that no rule refuses: 2, 1 accepted; ")
    assert f"weights of 1 whole models: {words}; KV cache of 1 whole models: 1 within" in line
