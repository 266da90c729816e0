# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The page: self-contained, escaped, and readable without scripts."""

import base64
import hashlib
import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest
from ansible_collections.apiary.instinct.plugins.plugin_utils.report.headline import make_report

from apiary.bench.report.page import page, plotly_js
from support.bench.documents import TP8, bench, level, loads

STEPS = (1, 8, 64)
HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(2)>\"'&{{7*7}}%{y}"


class Reader(HTMLParser):
    """Collects the elements of a page, its scripts and its text."""

    def __init__(self, text):
        super().__init__()
        self.elements, self.scripts, self.text, self._script = [], [], [], None
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag == "script":
            self._script = dict(attrs)
            self.scripts.append([self._script, ""])

    def handle_endtag(self, tag):
        if tag == "script":
            self._script = None

    def handle_data(self, data):
        if self._script is not None:
            self.scripts[-1][1] += data
        else:
            self.text.append(data)


@pytest.fixture(scope="module")
def html():
    made = [bench("DP2/TP4/EP4", steps=STEPS), bench("DP1/TP8/EP8", TP8, steps=STEPS)]
    return page(make_report(made))


@pytest.fixture(scope="module")
def read(html):
    return Reader(html)


def test_nothing_in_the_page_leads_outside(read):
    for tag, attributes in read.elements:
        for name in ("src", "href", "action", "srcset", "poster", "data"):
            value = attributes.get(name)
            assert value is None or value.startswith(("#", "data:,")), (tag, value)
    styles = "".join(read.text)
    assert "@import" not in styles
    assert not re.search(r"url\(\s*['\"]?http", styles)


def test_plotly_is_there_once(html):
    assert html.count(plotly_js()[:200]) == 1


def test_the_policy_allows_these_scripts_and_no_request(read):
    policy = next(
        attributes["content"]
        for tag, attributes in read.elements
        if tag == "meta" and attributes.get("http-equiv") == "Content-Security-Policy"
    )
    assert policy.startswith("default-src 'none'; script-src ")
    programs = [text for attributes, text in read.scripts if "type" not in attributes]
    assert len(programs) == 2
    for text in programs:
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"'sha256-{digest}'" in policy
    assert "unsafe-inline" not in policy.split("script-src")[1].split(";")[0]
    assert "connect-src" not in policy


def test_without_scripts_the_tables_say_it_all(read):
    text = "".join(read.text)
    for word in ("DP2/TP4/EP4", "is better than", "TTFT p90 ms", "missed SLO", "9f2c1e5a77b0"):
        assert word in text
    assert sum(tag == "table" for tag, _ in read.elements) > 6


def test_a_hostile_name_stays_text():
    made = bench(HOSTILE, model=HOSTILE, steps=STEPS, engine_runs=1)
    environment = made.environment | {"layout": HOSTILE, "hosts": [HOSTILE], HOSTILE: HOSTILE}
    work = replace(made.requested.workload, name=HOSTILE)
    levels = tuple(level(load) for load in loads("scaling", STEPS, work=work))
    made = replace(
        made,
        environment=environment,
        levels=levels,
        requested=replace(made.requested, workload=work),
    )
    read = Reader(page(make_report([made])))
    assert [attributes.get("type") for attributes, _ in read.scripts] == [
        "application/json",
        None,
        None,
    ]
    assert not any(tag == "img" for tag, _ in read.elements)
    assert not any(name.startswith("on") for _, attributes in read.elements for name in attributes)
    assert HOSTILE in "".join(read.text)
    data = read.scripts[0][1]
    assert "<" not in data
    assert ">" not in data
    # In a figure the name is neither markup nor a template.
    assert "%{y}\\u003c/extra" not in data


def test_the_same_results_make_the_same_page(html):
    made = [bench("DP2/TP4/EP4", steps=STEPS), bench("DP1/TP8/EP8", TP8, steps=STEPS)]
    assert page(make_report(made)) == html


def test_the_environment_tells_alike_facts_once(html):
    assert html.count("6.8.0-60-generic") == 1
    assert html.count("apiary bench http://gpu-001:8000 --workload 5600/140") == 2
