# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whatever is known of hosts, none is lost, and nothing but a full acceptance is accepted."""

import re

from ansible_collections.apiary.instinct.plugins.plugin_utils.documents import (
    from_document,
    to_document,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.fleet.report.build import fleet_report
from ansible_collections.apiary.instinct.plugins.plugin_utils.fleet.report.types import (
    FleetReport,
    HostInput,
    Place,
)
from hypothesis import given
from hypothesis import strategies as st

from apiary.fleet.report.page import fleet_page, short_names
from support.acceptances import acceptance_of, failed, ledger_of, quarantine_of
from support.examples import examples
from support.surveys import fleet

SURVEYS = list(fleet(100))
NAMES = st.text(min_size=1, max_size=12)
PLACES = st.builds(Place, *[st.none() | st.text(max_size=4)] * 3)


@st.composite
def host(draw):
    survey = draw(st.none() | st.sampled_from(SURVEYS))
    acceptance = draw(st.none() | st.just(acceptance_of(SURVEYS[20])))
    if acceptance and draw(st.booleans()):
        acceptance = failed(acceptance, "ACCEPT-UNCORRECTABLE", "3", "reset")
    name = draw(NAMES)
    return HostInput(
        name,
        draw(PLACES),
        survey,
        acceptance,
        draw(st.none() | st.just(quarantine_of(name))),
        draw(st.none() | st.just(ledger_of(name, False))),
        draw(st.sampled_from([(), ("gpu_hosts",)])),
    )


FLEETS = st.lists(host(), max_size=12, unique_by=lambda one: one.host)


@given(FLEETS, st.booleans())
@examples(0.4)
def test_no_host_is_lost_and_none_is_better_than_it_is(given_hosts, allowed):
    report = fleet_report(given_hosts, "2026-11-22T09:15:00Z", allow_unreached=allowed)
    assert sorted(one.host for one in report.hosts) == sorted(one.host for one in given_hosts)
    assert sum(count for _state, count in report.counts) == len(given_hosts)
    bad = {one.host for one in given_hosts if one.quarantine}
    bad |= {one.host for one in given_hosts if one.acceptance and not one.acceptance.accepted}
    right = {one.host for one in report.hosts if one.state in ("ok", "warning")}
    assert not bad & right
    assert right <= {one.host for one in given_hosts if one.acceptance}
    if report.accepted:
        assert not bad
    assert from_document(FleetReport, to_document(report), "x") == report


@given(FLEETS)
@examples(0.25)
def test_every_host_is_one_cell_of_the_map(given_hosts):
    text = fleet_page(fleet_report(given_hosts, "2026-11-22T09:15:00Z"))
    assert len(re.findall(r'<button type="button" class="host ', text)) == len(given_hosts)
    assert text.count("<script") == 2


@given(st.lists(NAMES, unique=True, max_size=8))
def test_short_names_tell_hosts_apart(names):
    short = short_names(names)
    assert set(short) == set(names)
    assert all(name.endswith(short[name]) and short[name] for name in names)
    assert len(set(short.values())) == len(names)
