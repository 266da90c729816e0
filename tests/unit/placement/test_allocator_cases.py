# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The requests that were put to the device plugins' allocators, through `apiary place --jsonl`."""

import io
import json

import pytest
from ansible_collections.apiary.instinct.plugins.plugin_utils.documents import to_document
from ansible_collections.apiary.instinct.plugins.plugin_utils.placement.place import Placed

from apiary.host.place_command import answers
from support.shared import SHARED
from support.topology.allocator_cases import load, sound

FILE = SHARED / "data" / "allocator-cases.json"
pytestmark = pytest.mark.skipif(not FILE.is_file(), reason="the recorded requests are not here")


@pytest.fixture(scope="module")
def cases():
    return load(FILE)


def placed(cases, cost, step=1):
    """Each request, or one of so many, with its answer; its sets are positions of devices."""
    for case in cases.requests[::step]:
        found = Placed(cases.topologies[case.topology], cases.request(case, cost), runner_up=False)
        assert not list(found.findings())
        yield case, found, cases.members(case, found.replicas)


def test_never_heavier_than_a_peer_and_always_the_optimum(cases):
    won = 0
    for case, found, sets in placed(cases, "device-plugin"):
        weights = [cases.weight(case.topology, members) for members in sets]
        assert [(weight,) for weight in weights] == found.costs
        if case.optimum is not None and cases.complete(case.topology):
            assert sum(weights) == case.optimum
        for peer in (case.plugin, case.nvidia):
            if sound(case, peer):
                theirs = sum(cases.weight(case.topology, members) for members in peer)
                assert sum(weights) <= theirs
                won += sum(weights) < theirs
    assert won > 1000


def test_the_fabric_cost_answers_every_request_exactly(cases):
    for case, found, sets in placed(cases, "fabric", step=3):
        assert found.cuts.exact
        taken = [member for members in sets for member in members]
        assert [len(members) for members in sets] == list(case.sizes)
        assert len(set(taken)) == len(taken)
        assert set(taken) <= set(case.available)
        assert set(case.required) <= set(sets[0])


@pytest.mark.parametrize("cost", ["fabric", "device-plugin"])
def test_a_line_a_topology_gives_the_same(cases, cost):
    some = {case.topology: case for case in cases.requests}.values()
    lines = []
    for case in some:
        request = cases.request(case, cost)
        line = {"topology": to_document(cases.topologies[case.topology]), "sizes": case.sizes}
        lines.append(
            json.dumps(line | {"exclude": list(request.busy), "require": list(request.require)})
        )
    found = [answer for answer, _failed in answers(io.StringIO("\n".join(lines)), cost)]
    for case, answer in zip(some, found, strict=True):
        ours = Placed(cases.topologies[case.topology], cases.request(case, cost), runner_up=False)
        assert [tuple(share["gpus"]) for share in answer["replicas"]] == list(ours.replicas)
        assert answer["findings"] == []
