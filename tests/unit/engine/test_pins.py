# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The AITER and ROCm that the image of a release has."""

import dataclasses

import pytest
from ansible_collections.apiary.instinct.plugins.plugin_utils.documents import knowledge
from ansible_collections.apiary.instinct.plugins.plugin_utils.engine.conditions import (
    order,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.engine.facts import pins_of, stack
from ansible_collections.apiary.instinct.plugins.plugin_utils.engine.flags import pins

from support.engines import deployment


@pytest.mark.parametrize(
    ("release", "aiter", "rocm"),
    [
        ("0.14.1", "0.1.7.post4", "7.0"),
        ("0.18.0", "0.1.10.post2", "7.0"),
        ("0.19.0", "0.1.10.post2", "7.2.1"),
        ("0.22.1", "0.1.13", "7.2.2"),
        ("0.33.0", "0.1.26", "10.0.0"),
    ],
)
def test_the_image_of_a_release_has_the_aiter_and_rocm_that_it_was_built_with(release, aiter, rocm):
    assert pins_of(release) == {"aiter": aiter, "rocm": rocm}
    engine_spec = deployment(version=release).engine
    assert stack(engine_spec) == {"aiter": None, "rocm": None}
    named = dataclasses.replace(engine_spec, image=f"vllm/vllm-openai-rocm:v{release}", rocm="6.4")
    assert stack(named) == {"aiter": aiter, "rocm": "6.4"}


def test_an_unknown_pairing_is_unknown(monkeypatch):
    assert pins_of("0.15.1") == {}
    assert pins_of("0.13.0") == {}  # has pins, and no image
    assert pins_of("99.0") == {}
    monkeypatch.setitem(knowledge("vllm/images.yml"), "commits", {})
    assert pins_of("0.16.0") == {"rocm": "7.0"}  # a commit of AITER's that nobody has looked up


def test_every_release_with_pins_and_an_image_has_aiter_and_rocm():
    first, pinned = (
        order(knowledge("vllm/images.yml")["from"]),
        knowledge("vllm/pins.yml")["versions"],
    )
    imaged = [version for version in pinned if order(version) >= first and pins(version)]
    assert len(imaged) >= 27
    for version in imaged:
        assert set(pins_of(version)) == {"aiter", "rocm"}, version
