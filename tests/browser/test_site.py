# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The documentation site in a real browser, opened from a disk: it asks no network for anything."""

import subprocess
import time
from pathlib import Path

import pytest
from browser.chromium import PATIENCE

ROOT = Path(__file__).parents[2]
PAGES = (
    "index.html",
    "tutorial/demo.html",
    "how-to/set-up-an-inventory.html",
    "reference/commands.html",
    "reference/findings/index.html",
    "reference/findings/TOPO-XGMI-DOWN.html",
    "reference/schemas/plan.html",
    "explanation/index-spaces.html",
    "roles/router.html",
)


@pytest.fixture(scope="session")
def site():
    done = subprocess.run(
        ["make", "docs-site"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]
    return ROOT / "site"


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("page", PAGES)
def test_a_page_asks_for_files_of_the_site_alone(chromium, site, page, scheme):
    chromium.view(1280, scheme=scheme)
    chromium.open(site / page)
    chromium.settle()
    asked = chromium.requests()
    assert asked
    base = site.as_uri()
    foreign = [one for one in asked if not one.startswith((f"{base}/", "data:", "about:"))]
    assert foreign == []
    # The theme's own search field has no name; all else that the browser complains of is ours.
    unnamed = "FormEmptyIdAndNameAttributesForInputError"
    assert [one for one in chromium.complaints() if unnamed not in one] == []
    broken = (
        "[...document.images].filter(one => one.complete && !one.naturalWidth).map(one => one.src)"
    )
    assert chromium.evaluate(broken) == []


def test_light_and_dark_follow_the_system(chromium, site):
    colours = []
    for scheme in ("light", "dark"):
        chromium.view(1280, scheme=scheme)
        chromium.open(site / "index.html")
        chromium.settle()
        colours.append(chromium.evaluate("getComputedStyle(document.body).backgroundColor"))
    assert colours[0] != colours[1]


SEARCH = (
    "[...document.body.children].map(one => one.shadowRoot)"
    ".find(root => root?.querySelector('input'))"
)


def test_the_search_works_without_a_server(chromium, site):
    chromium.view(1280)
    chromium.open(site / "index.html")
    chromium.evaluate("document.querySelector('.md-search__button').click()")
    end = time.monotonic() + PATIENCE
    found = []
    while not found and time.monotonic() < end:
        # The index may still be on its way: what is typed then is looked for when it is there.
        chromium.evaluate(
            f"(() => {{ const field = {SEARCH}?.querySelector('input'); if (!field) return;"
            " field.value = 'TOPO-XGMI-DOWN';"
            " field.dispatchEvent(new Event('input', {bubbles: true})); })()"
        )
        chromium.settle()
        links = f"[...({SEARCH}?.querySelectorAll('a') ?? [])].map(one => one.href)"
        found = [one for one in chromium.evaluate(links) if "TOPO-XGMI-DOWN.html" in one]
    assert found
    assert [one for one in chromium.requests() if one.startswith("http")] == []


def test_a_narrow_window_scrolls_tables_and_not_the_page(chromium, site):
    chromium.view(400)
    chromium.open(site / "reference/findings/index.html")
    chromium.settle()
    assert chromium.evaluate("document.documentElement.scrollWidth") <= 400
