# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What engines serve (real vLLM in `make e2e`) against the table that rules are made from."""

from __future__ import annotations

import json
import re
import urllib.request

import pytest
from ansible_collections.apiary.instinct.plugins.plugin_utils.documents import knowledge
from ansible_collections.apiary.instinct.plugins.plugin_utils.engine.conditions import order

SAMPLE = re.compile(r"^([a-zA-Z_:][\w:]*)(?:\{(.*)\})? \S+$")
LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
KINDS = re.compile(r"^# TYPE (\S+) (\S+)$", re.M)


def read(text):
    """Return labels by name of series, kinds by name, and the bounds of histograms."""
    labels, bounds = {}, {}
    for found in filter(None, map(SAMPLE.match, text.splitlines())):
        told = dict(LABEL.findall(found[2] or ""))
        labels.setdefault(found[1], set()).update(told)
        if "le" in told:
            bounds.setdefault(found[1].removesuffix("_bucket"), {})[told["le"]] = None
    return labels, dict(KINDS.findall(text)), bounds


def holds(entry, version):
    since, until = entry.get("since"), entry.get("until")
    here = order(version)
    return (since is None or order(since) <= here) and (until is None or here <= order(until))


@pytest.fixture(scope="module")
def served(variables, plan):
    """What a replica serves once it has answered a request."""
    port = variables["lab_ports"][str(plan["replicas"][0]["port"])]
    model = plan["deployment"]["model"]["name"]
    body = {"model": model, "prompt": "Hello", "max_tokens": 4, "ignore_eos": True}
    ask(port, "/v1/completions", json.dumps(body).encode())
    return read(ask(port, "/metrics"))


def ask(port, path, body=None):
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", body, headers)
    with urllib.request.urlopen(request, timeout=120) as answer:
        return answer.read().decode()


def test_every_name_of_the_table_is_served_with_its_labels_and_kind(served, plan):
    labels, kinds, _bounds = served
    absent, wrong = [], []
    for entry in knowledge("telemetry/vllm.yml")["series"]:
        name = entry["name"]
        shown = f"{name}_bucket" if entry["kind"] == "histogram" else name
        if not holds(entry, plan["deployment"]["engine"]["version"]):
            continue
        if shown not in labels:
            absent += [] if "only_when" in entry else [shown]
        elif not set(entry["labels"]) <= labels[shown]:
            wrong.append((shown, sorted(labels[shown])))
        elif kinds.get(name, entry["kind"]) != entry["kind"]:
            wrong.append((name, kinds[name]))
    assert (absent, wrong) == ([], [])


def test_what_a_version_lacks_is_not_served(served, plan):
    labels, _kinds, _bounds = served
    for entry in knowledge("telemetry/vllm.yml")["series"]:
        if not holds(entry, plan["deployment"]["engine"]["version"]):
            assert not {entry["name"], f"{entry['name']}_bucket"} & labels.keys()


def test_bounds_of_histograms_are_those_that_slos_count(served):
    """A bound that is not there would count no request at all."""
    _labels, _kinds, bounds = served
    table = knowledge("telemetry/vllm.yml")
    for entry in table["series"]:
        if entry["name"] in bounds and "buckets" in entry:
            wanted = [repr(float(one)) for one in table["buckets"][entry["buckets"]]]
            assert list(bounds[entry["name"]]) == [*wanted, "+Inf"], entry["name"]
