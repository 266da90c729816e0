# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The report in a real browser: it draws, it asks nobody for anything, it reads everywhere."""

import json
import re
from dataclasses import replace

import pytest
from ansible_collections.apiary.instinct.plugins.plugin_utils.report.headline import make_report

from apiary.bench.report.page import page
from support.bench.documents import TP8, bench, level, loads

STEPS = (1, 8, 32, 64, 128)
HOSTILE = (
    "</script><script>document.title='owned'</script>"
    "<img src=//evil.test/x onerror=\"document.title='owned'\">"
)
POINT = "document.querySelector('#w0-throughput .points path')"
FIGURES = 12


@pytest.fixture(scope="session")
def file(tmp_path_factory):
    made = [
        bench("DP2/TP4/EP4", steps=STEPS),
        bench("DP1/TP8/EP8", TP8, steps=STEPS, broken=(128,)),
    ]
    path = tmp_path_factory.mktemp("report") / "report.html"
    path.write_text(page(make_report(made)), encoding="utf-8")
    return path


@pytest.fixture
def shown(chromium, file):
    """The report in a wide, light window, as it was opened; opened once for all that only look."""
    chromium.view(1280)
    at = chromium.evaluate("[location.href, document.documentElement.dataset.drawn]")
    if at != [file.as_uri(), "yes"]:
        chromium.open(file)
    return chromium


def drawn(chromium):
    """How many figures hold curves that really have a size."""
    return chromium.evaluate(
        "[...document.querySelectorAll('[data-figure]')].filter(box => {"
        " const line = box.querySelector('.scatterlayer .trace .js-line');"
        " return line && line.getBBox().width > 50; }).length"
    )


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 400])
def test_the_report_renders_and_asks_for_nothing(chromium, file, width, scheme):
    chromium.view(width, scheme=scheme)
    chromium.open(file)
    chromium.settle()
    assert chromium.evaluate("document.documentElement.dataset.drawn") == "yes"
    assert drawn(chromium) == FIGURES
    assert chromium.complaints() == []
    assert chromium.requests() == [file.as_uri()]
    # Nothing wider than the window but the tables, which scroll by themselves.
    assert chromium.evaluate("document.documentElement.scrollWidth") == width


def test_the_colours_follow_the_system_and_the_button(shown):
    style = "document.querySelector('.scatterlayer .js-line').style.stroke"
    page_colour = "getComputedStyle(document.body).backgroundColor"
    seen = {}
    for scheme in ("light", "dark"):
        shown.view(1280, scheme=scheme)
        shown.settle()
        seen[scheme] = (shown.evaluate(style), shown.evaluate(page_colour))
    assert seen["light"][0] != seen["dark"][0]
    assert seen["light"][1] != seen["dark"][1]
    shown.evaluate("document.getElementById('theme').click()")
    assert (shown.evaluate(style), shown.evaluate(page_colour)) == seen["light"]
    shown.evaluate("delete document.documentElement.dataset.theme")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_has_contrast(shown, scheme):
    """Every colour that text has is at least 4.5 to 1 on what it stands on (WCAG AA)."""
    shown.view(1280, scheme=scheme)
    names = ["--ink", "--ink-soft", "--accent", "--limit", "--good", "--even"]
    grounds = ["--page", "--card", "--accent-soft", "--good-soft", "--bad-soft", "--even-soft"]
    values = shown.evaluate(
        f"{json.dumps([*names, *grounds])}.map(name => getComputedStyle(document.documentElement)"
        ".getPropertyValue(name).trim())"
    )
    tone = dict(zip([*names, *grounds], map(luminance, values), strict=True))
    pairs = [(name, ground) for name in names for ground in ("--page", "--card")]
    pairs += [("--accent", "--accent-soft"), ("--good", "--good-soft")]
    pairs += [("--limit", "--bad-soft"), ("--even", "--even-soft")]
    assert [pair for pair in pairs if contrast(tone[pair[0]], tone[pair[1]]) < 4.5] == []


def luminance(colour):
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
    return sum(weight * c for weight, c in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def contrast(one, other):
    high, low = max(one, other), min(one, other)
    return (high + 0.05) / (low + 0.05)


def test_a_configuration_can_be_hidden_in_every_figure(shown):
    count = "document.querySelectorAll('.scatterlayer .trace').length"
    before = shown.evaluate(count)
    shown.evaluate("document.querySelector('[data-configuration=\"0\"]').click()")
    hidden = shown.evaluate(count)
    assert FIGURES <= hidden < before
    shown.evaluate("document.querySelector('[data-configuration=\"0\"]').click()")
    assert shown.evaluate(count) == before


def test_the_keyboard_reaches_button_legend_and_tables(shown):
    for kind in ("button", "input", "summary", "div"):
        assert shown.evaluate(
            f"[...document.querySelectorAll('{kind}')].some(box => box.tabIndex === 0)"
        ), kind


def test_an_invalid_level_is_drawn_beside_the_curve(shown):
    paths = shown.evaluate(
        "[...document.querySelectorAll('#w0-throughput .points path')].map(p => p.style.fill)"
    )
    assert "none" in paths
    # The line of the other configuration is one piece, this one's ends before the level.
    lines = shown.evaluate(
        "[...document.querySelectorAll('#w0-throughput .js-line')]"
        ".map(line => line.getBBox().width)"
    )
    assert len(lines) == 2
    assert lines[1] < lines[0]


def test_a_hostile_name_changes_nothing(chromium, tmp_path):
    work = replace(bench(steps=(1,)).requested.workload, name=HOSTILE)
    made = bench(HOSTILE, model=HOSTILE, steps=STEPS, engine_runs=1)
    made = replace(
        made,
        requested=replace(made.requested, workload=work),
        levels=tuple(level(load) for load in loads("scaling", STEPS, work=work)),
        environment=made.environment | {"layout": HOSTILE, HOSTILE: [HOSTILE]},
    )
    path = tmp_path / "hostile.html"
    path.write_text(page(make_report([made])), encoding="utf-8")
    chromium.view(1280)
    chromium.open(path)
    chromium.settle()
    # The name that plotly shows under the pointer is text too.
    chromium.evaluate(f"{POINT}.scrollIntoView({{block: 'center', behavior: 'instant'}})")
    chromium.settle()
    x, y = chromium.evaluate(
        f"(() => {{ const box = {POINT}.getBoundingClientRect();"
        " return [box.x + box.width / 2, box.y + box.height / 2]; })()"
    )
    for step in range(200):
        chromium.call("Input.dispatchMouseEvent", type="mouseMoved", x=x + step % 2, y=y)
        chromium.settle()
        if chromium.evaluate("document.querySelectorAll('.hoverlayer .hovertext').length"):
            break
    assert "script" in chromium.evaluate("document.querySelector('.hoverlayer').textContent")
    assert chromium.evaluate("document.title").startswith("Benchmark of </script>")
    assert chromium.evaluate("document.images.length") == 0
    assert chromium.evaluate("document.querySelectorAll('script').length") == 3
    assert drawn(chromium) > 3
    assert chromium.complaints() == []
    assert chromium.requests() == [path.as_uri()]


def test_without_scripts_the_tables_remain(chromium, file):
    chromium.view(1280)
    chromium.call("Emulation.setScriptExecutionDisabled", value=True)
    try:
        chromium.open(file)
        text = chromium.evaluate("document.body.innerText")
    finally:
        chromium.call("Emulation.setScriptExecutionDisabled", value=False)
    assert "is better than" in text
    assert "TTFT p90 ms" in text
    assert chromium.evaluate("document.getElementById('theme').hidden")


def test_it_prints(shown, tmp_path):
    shown.view(1280, scheme="dark")
    shown.pdf(tmp_path / "report.pdf")
    pages = len(re.findall(rb"/Type\s*/Page\b", (tmp_path / "report.pdf").read_bytes()))
    assert 3 <= pages <= 30
    # What printing changed is changed back.
    assert shown.evaluate("document.documentElement.dataset.theme") is None
    assert drawn(shown) == FIGURES


def test_chromium_itself_saw_no_address_but_files(shown):
    """By its own log it requested nothing but files, and, in vain, for its maker's services."""
    log = (shown.profile / "net-log.json").read_text(errors="replace")
    hosts = set(re.findall(r'"host":"(?:https?://)?([^"/:]+)', log))
    own = re.compile(r"(^|\.)(google\.com|googleapis\.com|gvt1\.com|~notfound)$")
    assert {host for host in hosts if not own.search(host)} == set()
    assert '"events"' in log
