# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The fleet's page in a real browser: its map, its panels, its filters; it asks for nothing."""

import json
from dataclasses import replace

import pytest
from ansible_collections.apiary.instinct.plugins.plugin_utils.findings import Finding
from ansible_collections.apiary.instinct.plugins.plugin_utils.fleet.report.build import fleet_report
from ansible_collections.apiary.instinct.plugins.plugin_utils.fleet.report.types import (
    HostInput,
    Place,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.fleet.types import Quarantine
from browser.test_report import contrast, luminance

from apiary.fleet.report.page import fleet_page
from support.acceptances import acceptance_of, inputs, ledger_of, rollout_of
from support.surveys import settled

NOW = "2026-11-22T09:15:00Z"
COUNT = 96
FAILING, ASIDE, UNKNOWN, RIGHT = "gpu-0089", "gpu-0061", "gpu-0071", "gpu-0030"
HOSTILE = (
    "</script><script>document.title='owned'</script>"
    "<img src=//evil.test/x onerror=\"document.title='owned'\">"
)
SHOWN = "[...document.querySelectorAll('button.host:not(.out)')].map(one => one.dataset.host)"
PANEL = "document.getElementById('panel-body').innerText"


def page_of(count):
    given = list(inputs(count))
    bad = frozenset(one.host for one in given if one.quarantine)
    run = rollout_of([one.host for one in given], bad)
    return fleet_page(fleet_report(given, NOW, run))


@pytest.fixture(scope="session")
def fleet_file(tmp_path_factory):
    path = tmp_path_factory.mktemp("fleet") / "fleet.html"
    path.write_text(page_of(COUNT), encoding="utf-8")
    return path


@pytest.fixture
def shown(chromium, fleet_file):
    chromium.view(1280)
    chromium.open(fleet_file)
    return chromium


def cell(name):
    return f"document.querySelector('button.host[data-host=\"{name}\"]')"


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 400])
def test_the_fleet_is_drawn_and_asks_for_nothing(chromium, fleet_file, width, scheme):
    chromium.view(width, scheme=scheme)
    chromium.open(fleet_file)
    chromium.evaluate(f"{cell(FAILING)}.click()")
    chromium.settle()
    assert chromium.evaluate("document.documentElement.dataset.drawn") == "yes"
    assert len(chromium.evaluate(SHOWN)) == COUNT
    # Nothing is wider than the window but tables, which scroll by themselves.
    assert chromium.evaluate("document.documentElement.scrollWidth") == width
    assert chromium.evaluate("document.getElementById('panel').scrollWidth") <= width
    assert chromium.complaints() == []
    asked = [one for one in chromium.requests() if not one.startswith("data:image/svg+xml")]
    assert asked == [fleet_file.as_uri()]


def test_states_are_told_apart_without_colour(shown):
    signs = shown.evaluate(
        "Object.fromEntries([...document.querySelectorAll('button.host')].map(one =>"
        " [one.classList[1], one.querySelector('.sign').textContent]))"
    )
    assert len(set(signs.values())) == len(signs) == 5


def test_a_host_opens_and_closes_by_mouse_keyboard_and_address(shown, fleet_file):
    shown.evaluate(f"{cell(FAILING)}.focus()")
    shown.evaluate(f"{cell(FAILING)}.click()")
    assert not shown.evaluate("document.getElementById('panel').hidden")
    assert shown.evaluate("document.getElementById('panel-name').textContent") == FAILING
    assert shown.evaluate("location.hash") == f"#host={FAILING}"
    shown.call("Input.dispatchKeyEvent", type="keyDown", key="Escape", code="Escape")
    assert shown.evaluate("document.getElementById('panel').hidden")
    assert shown.evaluate("document.activeElement.dataset.host") == FAILING
    shown.evaluate("location.hash = '#host=gpu-0001'")
    shown.settle()
    assert shown.evaluate("document.getElementById('panel-name').textContent") == "gpu-0001"
    shown.evaluate("location.hash = '#host=__proto__'")
    shown.settle()
    assert shown.evaluate("document.getElementById('panel-name').textContent") == "gpu-0001"


def test_a_failing_hosts_panel_goes_down_to_the_evidence(shown):
    shown.evaluate(f"{cell(FAILING)}.click()")
    text = shown.evaluate(PANEL)
    for words in (
        "ACCEPT-UNCORRECTABLE",
        "drain the host and reset the GPUs",
        "umc_err_count: ue: 3 ce: 41",
        "TOPO-GPU-MISSING",
        "Not as its peers",
        "2 of 2",
        "artifacts/gpu-0089/acceptance.json",
        "10 min old",
        "6.8.0-31-generic",
    ):
        assert words in text, words
    # Failing checks come before everything else that is known.
    assert text.index("Checks that do not pass") < text.index("Facts")


def test_quarantine_says_why(shown):
    shown.evaluate(f"{cell(ASIDE)}.click()")
    text = shown.evaluate(PANEL)
    assert "Could not get lock" in text
    assert "Rocm | Install packages" in text
    assert "Last rollout" in text


def test_a_host_of_which_nothing_is_known_says_so(shown):
    shown.evaluate(f"{cell(UNKNOWN)}.click()")
    assert "no playbook has left anything" in shown.evaluate(PANEL)


def test_filters_leave_what_fits(shown):
    def search(words):
        shown.evaluate(
            f"(box => {{ box.value = {json.dumps(words)};"
            " box.dispatchEvent(new Event('input')); })"
            "(document.getElementById('search'))"
        )
        return shown.evaluate(SHOWN)

    assert search("uncorrectable") == [FAILING]
    assert search("6.14.14 r001") == [f"gpu-000{n}" for n in range(1, 9)]
    assert search("nobody") == []
    assert "0 of 96" in shown.evaluate("document.getElementById('matches').textContent")
    assert len(search("")) == COUNT
    shown.evaluate("document.querySelector('.chip[data-state=ok]').click()")
    assert len(shown.evaluate(SHOWN)) == 4
    rows = "[...document.querySelectorAll('[data-row]')].filter(one => !one.hidden).length"
    assert shown.evaluate(rows) == 4
    shown.evaluate("document.querySelector('.chip[data-state=ok]').click()")
    shown.evaluate("document.querySelector('[data-only=\"ROCM-INSTALL\"]').click()")
    assert shown.evaluate(SHOWN) == [ASIDE]
    shown.evaluate(
        "(box => { box.value = ''; box.dispatchEvent(new Event('change')); })"
        "(document.getElementById('finding'))"
    )
    shown.evaluate(
        "(box => { box.value = box.options[1].value; box.dispatchEvent(new Event('change')); })"
        "(document.getElementById('rack'))"
    )
    assert len(shown.evaluate(SHOWN)) == 8


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_of_the_map_has_contrast(shown, scheme):
    """At least 4.5 to 1 on what it stands on (WCAG AA), in each state."""
    shown.view(1280, scheme=scheme)
    shown.settle()
    pairs = shown.evaluate(
        "[...document.querySelectorAll('button.host')].map(one => [getComputedStyle("
        "one.querySelector('.sign')).color, getComputedStyle(one).color,"
        " getComputedStyle(one).backgroundColor, one.className])"
    )
    low = {
        kind
        for sign, ink, ground, kind in pairs
        if min(ratio(sign, ground), ratio(ink, ground)) < 4.5
    }
    assert low == set()


def ratio(one, other):
    return contrast(luminance(hexed(one)), luminance(hexed(other)))


def hexed(colour):
    parts = colour[colour.index("(") + 1 : -1].split(",")
    return "#" + "".join(f"{int(part):02x}" for part in parts[:3])


def test_hostile_names_change_nothing(chromium, tmp_path):
    finding = Finding.from_fields(
        code=HOSTILE,
        severity="error",
        subject=HOSTILE,
        message=HOSTILE,
        remedy=HOSTILE,
        source=HOSTILE,
    )
    survey = replace(settled(HOSTILE), findings=(finding,))
    survey = replace(survey, facts=replace(survey.facts, driver=HOSTILE))
    good = acceptance_of(survey)
    quarantine = Quarantine(HOSTILE, HOSTILE, HOSTILE)
    place = Place(HOSTILE, HOSTILE, HOSTILE)
    ledger = ledger_of(HOSTILE, False)
    given = [
        HostInput(HOSTILE, place, survey, good, quarantine, ledger),
        HostInput(f"2{HOSTILE}", place, None, replace(good, accepted=False, complaints=(finding,))),
    ]
    path = tmp_path / "hostile.html"
    path.write_text(fleet_page(fleet_report(given, NOW)), encoding="utf-8")
    chromium.view(1280)
    chromium.open(path)
    for number in range(2):
        chromium.evaluate(f"document.querySelectorAll('button.host')[{number}].click()")
        chromium.settle()
        assert "onerror" in chromium.evaluate(PANEL)
    assert chromium.evaluate("document.title") == "Fleet: 2 hosts"
    assert chromium.evaluate("document.images.length") == 0
    assert chromium.evaluate("document.querySelectorAll('script').length") == 2
    assert chromium.complaints() == []
    assert chromium.requests() == [path.as_uri()]


def test_a_thousand_hosts_stay_usable(chromium, tmp_path):
    path = tmp_path / "large.html"
    path.write_text(page_of(1000), encoding="utf-8")
    chromium.view(1280)
    chromium.open(path)
    assert len(chromium.evaluate(SHOWN)) == 1000
    chromium.evaluate(f"{cell('gpu-1000')}.click()")
    assert "driver" in chromium.evaluate(PANEL)
    assert chromium.evaluate("document.documentElement.scrollWidth") == 1280


def test_without_scripts_map_and_tables_remain(chromium, fleet_file):
    chromium.view(1280)
    chromium.call("Emulation.setScriptExecutionDisabled", value=True)
    try:
        chromium.open(fleet_file)
        text = chromium.evaluate("document.body.innerText")
        hidden = chromium.evaluate("document.getElementById('filters').hidden")
    finally:
        chromium.call("Emulation.setScriptExecutionDisabled", value=False)
    assert "1 failing" in text
    assert "ACCEPT-UNCORRECTABLE" in text
    assert hidden
