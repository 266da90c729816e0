# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The facts about AMD's repositories agree with each other, and each names its source."""

import re

import pytest
from ansible_collections.apiary.instinct.plugins.plugin_utils.documents import knowledge
from ansible_collections.apiary.instinct.plugins.plugin_utils.gpus import gpu_models
from ansible_collections.apiary.instinct.plugins.plugin_utils.host.rocm import types

SUPPORT = knowledge("host/rocm/support.yml")
STREAMS = knowledge("host/rocm/streams.yml")
SYSTEMS = knowledge("host/rocm/systems.yml")
MODELS = gpu_models()


def sourced(text, sources):
    """Every name of a `source:` is one of the file's, or an address."""
    return all(
        part.removeprefix("sources.") in sources if part.startswith("sources.") else "://" in part
        for part in text.split(", ")
    )


@pytest.mark.parametrize(
    ("entry", "sources"),
    [
        *((one, SUPPORT["sources"]) for one in SUPPORT["series"].values()),
        *((one, SUPPORT["sources"]) for one in SUPPORT["avoid"]),
        *((STREAMS[name], STREAMS["sources"]) for name in ("driver", "legacy", "therock", "stale")),
        *((one, SYSTEMS["sources"]) for one in SYSTEMS["systems"].values()),
    ],
)
def test_every_entry_names_its_source(entry, sources):
    assert sourced(entry["source"], sources)


@pytest.mark.parametrize("name", SUPPORT["series"])
def test_a_series_agrees_with_the_rest(name):
    series = SUPPORT["series"][name]
    assert series["stream"] in STREAMS
    assert (series["stream"] == "therock") is types.is_current_stream(types.parse(name))
    for release, driver in series["pairs"].items():
        assert types.parse(release).series == name
        assert types.parse(driver).series in series["drivers"]
        assert types.parse(driver).series in SUPPORT["drivers"]
    for system in series["systems"]:
        assert system in SYSTEMS["systems"]
    tested = [model.rocm.series[name] for model in MODELS.values() if name in model.rocm.series]
    assert {system.split()[0] for systems in tested for system in systems} == {*series["systems"]}
    assert tested


def test_a_model_names_series_that_the_matrix_has():
    assert {name for model in MODELS.values() for name in model.rocm.series} == {*SUPPORT["series"]}


@pytest.mark.parametrize("name", SYSTEMS["systems"])
def test_a_system_has_what_its_family_needs(name):
    system = SYSTEMS["systems"][name]
    family = system["family"]
    for facts in (STREAMS["driver"], STREAMS["legacy"], STREAMS["therock"]):
        assert family in facts["paths"]
    for edition in system["versions"].values():
        assert ("suite" in edition) is (family == "debian")
        assert ("minor" in edition) is (family != "debian")
    for one in system["enable"]:
        assert re.compile(one["listed"])


def test_fingerprints_are_whole():
    for name in ("driver", "legacy", "therock"):
        assert re.fullmatch("[0-9A-F]{40}", STREAMS[name]["key"]["fingerprint"])
