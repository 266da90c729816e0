# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The winner of a tuning as a file of variables."""

import dataclasses

import pytest
import yaml
from ansible_collections.apiary.instinct.plugins.plugin_utils.deployment import Deployment
from ansible_collections.apiary.instinct.plugins.plugin_utils.documents import from_document
from ansible_collections.apiary.instinct.plugins.plugin_utils.tune import knobs
from ansible_collections.apiary.instinct.plugins.plugin_utils.tune.summary import tuned_variables

from support.demo import demo_deployment


class _Loader(yaml.SafeLoader):
    """Reads what Ansible does."""


_Loader.add_constructor("!unsafe", lambda loader, node: loader.construct_scalar(node))


def read(text):
    data = yaml.load(text, Loader=_Loader)  # noqa: S506
    return from_document(Deployment, data["apiary_deployment"], "tuned.yml")


@pytest.mark.parametrize(
    "changes",
    [
        {"limits.max_num_seqs": 32},
        {"layout": {"sizes": [4, 2, 2], "expert_parallel": False}},
        {"engine.env.SWITCH": "1", "engine.args.block-size": 16},
        {"limits.gpu_memory_utilization": 0.95},
    ],
)
def test_it_says_the_whole_deployment(changes):
    before = demo_deployment()
    after = knobs.changed(before, changes)
    text, diff = tuned_variables(before, after, "state.json")
    assert read(text) == after
    assert diff
    last = next(iter(changes)).rpartition(".")[2]
    assert any(
        line.startswith("+") and (last in line or "sizes" in line) for line in diff.splitlines()
    )


def test_what_holds_by_default_is_left_out():
    text, diff = tuned_variables(demo_deployment(), demo_deployment(), "state.json")
    assert diff == ""
    assert "null" not in text
    assert "base_port: 8000" not in text
    assert read(text) == demo_deployment()


def test_a_value_that_looks_like_a_template_is_none():
    engine = dataclasses.replace(demo_deployment().engine, args={"chat-template": "{{ messages }}"})
    after = dataclasses.replace(demo_deployment(), engine=engine)
    text, _diff = tuned_variables(demo_deployment(), after, "state.json")
    assert "!unsafe" in text
    assert read(text) == after
