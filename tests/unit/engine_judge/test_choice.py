# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The commands that are put to a release where not all of them are."""

import argparse
import dataclasses

import pytest

from engine import __main__, choice
from engine.cases import Case
from engine.models import models


def case(name, *argv, **more):
    return Case(name, "MI325X", ("serve", f"/models/{name}", *argv), {}, **more)


def names(cases):
    return [one.id for one in cases]


A = case("a", "--flag", "16", kind="Llama fp8")
B = case("b", "--flag", "32", "--other", "x", kind="Llama fp8", refused=(("RULE", "config"),))
C = case("c", "--flag", "64", kind="Llama awq")


def test_each_fact_is_shown_once_by_the_fewest():
    assert names(choice.telling([A, B, C])) == ["b", "c"]  # of A's nothing is left


def test_the_order_is_that_of_the_cases():
    assert names(choice.telling([C, A, B])) == ["c", "b"]


def test_a_number_or_a_path_is_no_fact_and_a_word_is():
    assert choice.shown(A) == choice.shown(case("d", "--flag", "8", kind="Llama fp8"))
    assert choice.shown(A) != choice.shown(case("a", "--flag", "fp8", kind="Llama fp8"))


@pytest.mark.parametrize(
    "here",
    [
        dataclasses.replace(A, refused=(("NEW", "load"),)),  # refused here and not there
        dataclasses.replace(A, argv=A.argv[:2]),  # a flag that the release beside it gets
        dataclasses.replace(A, backend="ROCM_ATTN"),
        dataclasses.replace(A, env={"VLLM_ROCM_USE_AITER": "1"}),
    ],
)
@pytest.mark.parametrize("side", ["before", "after"])
def test_what_the_release_beside_it_gets_otherwise_is_put(here, side):
    same = [dataclasses.replace(here, id=f"same {number}") for number in range(3)]
    everything = [*same, here]
    alike = choice.telling(everything, **{side: everything})
    assert names(alike) == ["same 0"]
    other = [*same, A]
    assert "a" in names(choice.telling(everything, **{side: other}))


def test_memory_that_another_release_takes_is_put():
    here = [case("a", memory={"weights": 1.0}), case("b", memory={"weights": 2.0})]
    there = [here[0], dataclasses.replace(here[1], memory={"weights": 3.0})]
    assert names(choice.telling(here, there)) == ["b"]


def test_a_whole_model_is_built_only_where_nothing_else_shows_as_much():
    def whole(name, *argv, kind):
        return case(name, *argv, kind=kind, memory={"weights": 1.0})

    some = [
        whole("most", "--flag", kind="Llama"),
        whole("slow", kind="Qwen"),
        case("a", kind="Qwen"),
    ]
    assert names(choice.telling(some)) == ["most", "a"]


@pytest.fixture(scope="module")
def known(tmp_path_factory):
    return models(tmp_path_factory.mktemp("engine"), real=False)


@pytest.fixture
def put(known, monkeypatch, tmp_path):
    def put(*arguments, releases=("0.31.0", "0.32.0", "0.33.0")):
        monkeypatch.setattr(__main__, "HOME", tmp_path)
        asked = __main__.parser().parse_args(arguments)
        return __main__.docket(releases, known, asked)

    return put


def test_all_puts_everything_to_the_newest_and_all_that_it_shows_to_the_others(put, known):
    some, every = put("all", "--small"), put("--small")
    assert names(some("0.33.0")) == names(every("0.33.0"))
    asked = argparse.Namespace(gpu="MI325X", small=True, draws=1)
    drawn = __main__.questions("0.32.0", known, asked, "0.33.0")
    chosen = some("0.32.0")
    assert len(chosen) < len(drawn)
    assert set().union(*map(choice.shown, drawn)) == set().union(*map(choice.shown, chosen))
