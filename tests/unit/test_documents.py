# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

import json

import pytest
from ansible_collections.apiary.instinct.plugins.plugin_utils.deployment import Deployment
from ansible_collections.apiary.instinct.plugins.plugin_utils.documents import (
    dumps,
    from_document,
    to_document,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.findings import ApiaryError
from ansible_collections.apiary.instinct.plugins.plugin_utils.topology.types import Topology

from support.topology.topologies import mi325x

ASKED = {
    "name": "demo",
    "model": {"name": "org/model", "path": "/srv/models/org/model"},
    "engine": {"version": "0.33.0"},
    "layout": {"tensor_parallel_size": 4, "replicas": 2},
}


def changed(path, value):
    """The document with one field set, or removed where value is None."""
    document = json.loads(json.dumps(ASKED))
    *parents, last = path.split(".")
    part = document
    for name in parents:
        part = part.setdefault(name, {})
    if value is None:
        del part[last]
    else:
        part[last] = value
    return document


def test_a_document_reads_back_as_what_it_was_written_from():
    topology = mi325x()
    assert from_document(Topology, json.loads(dumps(topology)), "x") == topology


def test_documents_are_sorted_and_carry_their_schema():
    document = json.loads(dumps(mi325x()))
    assert document["schema"] == "apiary.topology/v1"
    assert list(document) == sorted(document)


@pytest.mark.parametrize(
    ("path", "value", "code", "says"),
    [
        ("layout.tensor_parallel_size", "four", "DOC-TYPE", "expected a whole number"),
        ("layout.tensor_parallel_size", True, "DOC-TYPE", "found True"),
        ("layout", [4, 2], "DOC-TYPE", "expected a mapping"),
        ("layout.replica", 2, "DOC-UNKNOWN", "layout.replica is not known"),
        ("model.path", None, "DOC-MISSING", "model.path is missing"),
        ("engine.args", "x", "DOC-TYPE", "engine.args"),
        ("schema", "apiary.deployment/v9", "DOC-SCHEMA", "apiary.deployment/v1"),
    ],
)
def test_a_wrong_field_is_named(path, value, code, says):
    with pytest.raises(ApiaryError) as caught:
        from_document(Deployment, changed(path, value), "fleet.yml")
    (finding,) = caught.value.findings
    assert (finding.code, finding.subject) == (code, "fleet.yml")
    assert says in finding.message


@pytest.mark.parametrize(
    ("place", "value", "path"),
    [
        (("gpus", 1, "bdf"), 5, "gpus[1].bdf"),
        (("links", 3, "bandwidth_mb_s"), [1], "links[3].bandwidth_mb_s"),
        (("links", 0, "bandwidth_mb_s", 1), "x", "links[0].bandwidth_mb_s[1]"),
        (("numa_nodes", 0, "cores", 2), 7, "numa_nodes[0].cores[2]"),
        (("links", 2, "type"), "nvlink", "links[2].type"),
        (("gpus",), {}, "gpus"),
    ],
)
def test_a_field_deep_inside_is_named(place, value, path):
    document = to_document(mi325x())
    part = document
    for step in place[:-1]:
        part = part[step]
    part[place[-1]] = value
    with pytest.raises(ApiaryError) as caught:
        from_document(Topology, document, "gpu-001.json")
    (finding,) = caught.value.findings
    assert finding.code == "DOC-TYPE"
    assert finding.message.startswith(f"field {path}: expected ")


def test_a_document_that_is_no_mapping_is_refused():
    with pytest.raises(ApiaryError, match="expected a mapping"):
        from_document(Deployment, ["name"], "fleet.yml")


def test_whole_numbers_serve_as_shares():
    deployment = from_document(Deployment, changed("limits.gpu_memory_utilization", 1), "x")
    assert deployment.limits.gpu_memory_utilization == 1.0


def test_plain_data_of_a_finding():
    with pytest.raises(ApiaryError) as caught:
        from_document(Deployment, {}, "x")
    assert to_document(caught.value.findings)[0]["severity"] == "error"
