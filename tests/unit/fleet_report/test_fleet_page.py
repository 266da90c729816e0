# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The page of a fleet: compact, inert, and every host on its map."""

import json
import re
from dataclasses import replace

from ansible_collections.apiary.instinct.plugins.plugin_utils.fleet.report.build import fleet_report
from ansible_collections.apiary.instinct.plugins.plugin_utils.fleet.report.types import Place

from apiary.fleet.report.page import fleet_page, natural, short_names
from support.acceptances import inputs

NOW = "2026-11-22T09:15:00Z"
HOSTILE = "</script><script>document.title='owned'</script><img src=x onerror=alert(1)>&\"'"


def cells(text):
    return re.findall(r'<button type="button" class="host ([^"]*)" data-host="([^"]*)"', text)


def test_every_host_is_on_the_map():
    report = fleet_report(list(inputs(200)), NOW)
    found = cells(fleet_page(report))
    assert sorted(name for _state, name in found) == sorted(one.host for one in report.hosts)
    assert {state.split()[0] for state, _name in found} == {one.state for one in report.hosts}


def test_a_thousand_hosts_stay_small():
    report = fleet_report(list(inputs(1000)), NOW)
    assert len(fleet_page(report)) < 1_500_000


def test_no_name_becomes_markup():
    given = list(inputs(2))
    given[0] = replace(given[0], host=HOSTILE, place=Place(HOSTILE, HOSTILE, HOSTILE))
    text = fleet_page(fleet_report(given, NOW))
    assert "<img" not in text
    assert text.count("<script") == 2
    data = re.search(r'<script type="application/json" id="data">(.*?)</script>', text)
    assert HOSTILE in json.loads(data[1])["hosts"]


def test_only_its_own_script_may_run():
    text = fleet_page(fleet_report(list(inputs(2)), NOW))
    policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]*)"', text)[1]
    assert "default-src &#39;none&#39;" in policy
    assert policy.count("sha256-") == 1


def test_short_names_are_distinct_and_whole_words():
    assert short_names(["gpu-001", "gpu-002"]) == {"gpu-001": "001", "gpu-002": "002"}
    assert short_names(["a.b1", "a.b2"]) == {"a.b1": "b1", "a.b2": "b2"}
    assert short_names(["host"]) == {"host": "host"}
    assert short_names([]) == {}
    assert short_names(["gpu-", "gpu-1"])["gpu-"] == "gpu-"


def test_racks_are_sorted_as_people_count():
    assert sorted(["r10", "r2", "r1"], key=natural) == ["r1", "r2", "r10"]
