# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The judge with a real vLLM, where `make test-engine` has been run before."""

import pytest

from engine import bench, cases
from engine.__main__ import CANARY, HOME
from engine.cases import Case
from engine.environment import environment, is_current
from engine.models import models
from engine.verdict import verdict

VERSION = "0.14.1"


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return models(tmp_path_factory.mktemp("judge"), real=False)[CANARY]


@pytest.fixture(scope="module")
def verdicts(model, tmp_path_factory):
    """One hearing of all that the tests below ask about."""
    place = HOME / "sources" / VERSION
    if not (is_current(HOME) and place.is_dir()):
        pytest.skip("no vLLM at hand; `make test-engine` fetches it")
    serve = ("serve", str(model.directory), "-tp", "8")
    aiter = {"VLLM_ROCM_USE_AITER": "1"}
    put = [
        *cases.canaries(model, "MI325X", aiter),
        Case("right", "MI325X", serve, aiter, backend="ROCM_AITER_FA"),
        Case("unknown variable", "MI325X", serve, aiter | {"VLLM_NO_SUCH": "1"}),
        Case("blocks of 1", "MI325X", (*serve, "--block-size", "1"), aiter),
        Case("refused", "MI325X", (*serve, "--bad"), aiter, refused=(("R", "parser"),)),
    ]
    log = tmp_path_factory.mktemp("log") / "vllm.log"
    said = bench.opinions(place, environment(HOME), put, "MI325X", log)
    return {case.id: verdict(case, said[case.id]) for case in put}


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("canary: a flag that is nobody's", "unrecognized arguments: --no-such-flag"),
        ("canary: heads that 3 does not divide", "must be divisible by tensor parallel size"),
        ("canary: a wrong backend", "says attention runs on TRITON_MLA"),
        ("canary: refused for nothing", "CANARY says vLLM refuses it"),
        ("unknown variable", "does not know VLLM_NO_SUCH"),
        ("blocks of 1", "No common block size for 1"),
    ],
)
def test_what_is_wrong_is_seen(verdicts, name, words):
    assert verdicts[name].outcome == "wrong"
    assert words in verdicts[name].problem


def test_what_is_right_is_accepted_with_its_backend(verdicts):
    assert (verdicts["right"].outcome, verdicts["right"].backend) == ("accepted", "agreed")


def test_what_is_refused_with_reason_is_as_predicted(verdicts):
    assert verdicts["refused"].outcome == "predicted"
