# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

import json

from ansible_collections.apiary.instinct.plugins.plugin_utils.documents import knowledge
from ansible_collections.apiary.instinct.plugins.plugin_utils.model.config import read_config


def named(value):
    """Every tower that an entry of families.yml names, at any depth."""
    if isinstance(value, dict):
        towers = value.get("towers", {})
        for tower in towers.values() if isinstance(towers, dict) else []:
            yield from tower.values() if isinstance(tower, dict) else [tower]
        for inner in value.values():
            yield from named(inner)


def test_every_tower_that_a_family_names_is_known():
    names = set(named(dict(knowledge("models/families.yml")))) - {None}
    assert names
    assert names <= set(knowledge("models/towers.yml")["towers"])


def test_a_wrapper_whose_tower_is_not_known_is_read_and_says_so():
    model = read_config(json.dumps({"model_type": "kimi_vl", "vision_config": {}}), "config.json")
    assert "MODEL-UNKNOWN-VISION" in {finding.code for finding in model.findings}
