# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""`apiary advise`: what is known of a release, and what an upgrade brings and ends."""

import json
import re

from apiary.app.cli import main
from support.engines import KIMI


def advise(capsys, *arguments):
    assert main(["advise", *arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def ids(document):
    return [row["id"] for row in document["advisories"]]


def test_a_release_lists_its_defects_the_gravest_first(capsys):
    document = advise(capsys, "--engine", "0.28.0", "--gpu", "MI325X")
    assert document["schema"] == "apiary.advisories/v1"
    assert (document["release"], document["aiter"], document["rocm"]) == (
        "0.28.0",
        "0.1.19",
        "7.2.3",
    )
    rows = {row["id"]: row for row in document["advisories"]}
    row = rows["AITER-4855"]
    assert (row["symptom"], row["proof"], row["severity"]) == ("wrong", "fixed", "error")
    assert "aiter is" not in row["when"]  # the image says which it is
    assert "model type is glm_moe_dsa" in row["when"]
    assert row["avoid"] == {"env": "VLLM_ROCM_USE_AITER_CUSTOM_AR", "value": "0"}
    assert "ROCm/aiter#4855" in row["source"]
    assert "VLLM_ROCM_USE_AITER_CUSTOM_AR: 0" in row["do"]
    symptoms = [each["symptom"] for each in document["advisories"]]
    assert symptoms == sorted(symptoms, key=list(dict.fromkeys(symptoms)).index)
    assert symptoms[0] == "wrong"


def test_another_gpu_and_another_aiter_have_others(capsys):
    mi355x = ids(advise(capsys, "--engine", "0.28.0", "--gpu", "MI355X"))
    assert "AITER-4751" in mi355x
    assert "AITER-5049" in ids(advise(capsys, "--engine", "0.30.0", "--gpu", "MI355X"))
    assert "AITER-4855" not in mi355x
    mended = ids(advise(capsys, "--engine", "0.28.0", "--aiter", "0.1.21"))
    assert "AITER-4855" not in mended


def test_an_upgrade_brings_some_and_ends_others(capsys):
    document = advise(capsys, "--engine", "0.31.0", "--from", "0.27.1", "--model", KIMI)
    assert "VLLM-51964" in document["ends"]
    assert "LEFT-CUSTOM-AR" in document["brings"]
    assert set(document["brings"]) <= set(ids(document))
    assert not set(document["ends"]) & set(ids(document))
    # Of another model nothing is said, but as one of several that a condition names.
    whens = [re.sub(r"\(.*\)", "", row["when"]) for row in document["advisories"]]
    assert whens
    assert not any("glm" in when for when in whens)


def test_a_person_gets_a_table_with_every_source(capsys):
    assert main(["advise", "--engine", "0.15.0", "--gpu", "MI355X", "--from", "0.14.1"]) == 0
    out = capsys.readouterr().out
    assert "vLLM 0.15.0 on MI355X (AITER unknown, ROCm unknown)" in out
    assert "INFERENCEX-606: SemiAnalysisAI/InferenceX#606" in out
    assert "the upgrade from 0.14.1 ends: VLLM-32895" in out


def test_what_is_no_release_or_no_gpu_is_refused(capsys):
    assert main(["advise", "--engine", "latest"]) == 1
    assert "ENGINE-UNKNOWN-VERSION: --engine" in capsys.readouterr().err
    assert main(["advise", "--engine", "0.33.0", "--from", "soon"]) == 1
    assert main(["advise", "--engine", "0.33.0", "--gpu", "H100"]) == 2
