# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Parameter counts against transformers' own models, as tests/meta/run.py recorded them."""

import json

import pytest
from ansible_collections.apiary.instinct.plugins.plugin_utils.documents import knowledge
from ansible_collections.apiary.instinct.plugins.plugin_utils.findings import has_errors
from ansible_collections.apiary.instinct.plugins.plugin_utils.model.config import (
    architecture,
    known,
    known_names,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.model.modules import modules

from support.model_zoo import GOLDEN, TOLERANCE, UNLIKE, real_configs

RECORD = json.loads(GOLDEN.read_text(encoding="utf-8"))
FAMILIES = knowledge("models/families.yml")["families"]
# Types that transformers cannot build, and why.
NOT_BUILT = {
    "gemma3n": "its tower needs timm",
    "qwen3_omni_moe": "counted as its thinker, which is what is served",
}


@pytest.mark.parametrize("name", sorted(set(RECORD["zoo"]) - set(UNLIKE)))
def test_every_type_has_the_parameters_of_its_model(name):
    case = RECORD["zoo"][name]
    model = architecture(case["config"], name)
    assert model.total_parameters == pytest.approx(case["parameters"], rel=TOLERANCE)
    assert [item.code for item in model.findings if item.severity != "info"] == []
    assert not has_errors(model.findings)
    assert sum(module.parameters for module in modules(model)) >= model.total_parameters
    assert 0 < model.active_parameters <= model.total_parameters


@pytest.mark.parametrize("name", sorted(UNLIKE))
def test_what_is_said_to_differ_does(name):
    case = RECORD["zoo"][name]
    model = architecture(case["config"], name)
    assert model.total_parameters != pytest.approx(case["parameters"], rel=TOLERANCE)


def covered():
    """The types whose shapes a recorded model has, as itself or inside a wrapper."""
    found = set()
    for name, case in RECORD["zoo"].items():
        found.add(name.split()[0])
        inner = case["config"].get("text_config") or {}
        found.add(inner.get("model_type"))
    return found


def test_every_type_is_recorded_or_says_why_not():
    wrapped = {entry.get("text") for name, entry in FAMILIES.items() if name in covered()}
    for name in set(FAMILIES) - covered() - wrapped - set(NOT_BUILT):
        entry = FAMILIES[name]
        # Not in transformers: its entry says where its shapes are from, or whose they are.
        alike = entry.get("like") in covered() and set(entry) <= {"like", "text", "towers"}
        assert "source" in entry or alike, name


@pytest.mark.parametrize("name", known_names())
def test_shipped_models_have_the_parameters_of_their_models(name):
    assert known(name).total_parameters == pytest.approx(RECORD["real"][name], rel=TOLERANCE)


@pytest.mark.parametrize(("name", "config"), real_configs().items())
def test_real_configs_have_the_parameters_of_their_models(name, config):
    model = architecture(config, name)
    assert model.total_parameters == pytest.approx(RECORD["real"][name], rel=TOLERANCE)
