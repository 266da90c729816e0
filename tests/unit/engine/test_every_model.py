# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""All models × GPU kinds × layouts × versions: a recipe or a finding, and nothing else."""

import itertools
from collections import Counter

import pytest
from ansible_collections.apiary.instinct.plugins.plugin_utils.engine.recipe import assess
from ansible_collections.apiary.instinct.plugins.plugin_utils.gpus import gpu_models
from ansible_collections.apiary.instinct.plugins.plugin_utils.model.config import (
    known,
    known_names,
    read_config,
)

from support.engines import deployment
from support.shared import SHARED

CONFIGS = SHARED / "data/model-configs"
GPUS = [None, *gpu_models()]
LAYOUTS = [(size, ep) for size in (1, 2, 3, 4, 8, 16) for ep in (False, True)]
VERSIONS = ["0.9.2", "0.12.0", "0.14.1", "0.17.1", "0.20.2", "0.33.0"]
STAGES = {"parser", "config", "backend", "load", "run", None}


def models():
    """Each real config that is here, else the models that Apiary knows."""
    files = [path for path in sorted(CONFIGS.glob("*.json")) if path.name != "index.json"]
    if files:
        return [pytest.param(path.stem, id=path.stem) for path in files]
    return [pytest.param(name, id=name) for name in known_names()]


def architecture_of(name):
    path = CONFIGS / f"{name}.json"
    return read_config(path.read_text(), path.name) if path.is_file() else known(name)


@pytest.mark.parametrize("name", models())
def test_every_layout_on_every_gpu_gets_a_recipe_or_a_refusal(name):
    model = architecture_of(name)
    seen = Counter()
    cells = itertools.product(GPUS, LAYOUTS, VERSIONS)
    # A seventh of them for each model, and so every layout, GPU and version with one another's;
    # its name chooses which, so that all cells are tried by some.
    offset = sum(name.encode()) % 7
    for gpu, (size, ep), version in itertools.islice(cells, offset, None, 7):
        asked = deployment(name, version, size, ep=ep, max_model_len=2048)
        found = assess(model, asked, gpu, 8000)
        seen["refused" if found.refused else "made"] += 1
        for item in found.refused:
            assert item.finding.severity == "error"
            assert item.finding.message
            assert item.finding.remedy
            assert item.finding.source
            assert item.stage in STAGES
        if not found.refused:
            assert model.heads is None or model.heads % size == 0
            assert not (ep and model.family == "dense")
    # Whatever the model, one GPU or two hold it on some version, and 3 or 16 do not always.
    assert seen["made"]
    assert seen["refused"]
