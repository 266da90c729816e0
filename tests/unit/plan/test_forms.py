# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""docs/explanation/forms.md is true: its files are there, and its functions in them."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs/explanation/forms.md").read_text(encoding="utf-8")
PATHS = sorted(set(re.findall(r"`((?:module_utils|plugin_utils)/[\w./]+)`", PAGE)))
FUNCTIONS = re.findall(r"`((?:module_utils|plugin_utils)/[\w./]+\.py)` \(`(\w+)`\)", PAGE)


def test_every_path_of_the_page_is_there():
    assert len(PATHS) > 25
    missing = [path for path in PATHS if not (ROOT / "plugins" / path).exists()]
    assert not missing


def test_every_function_of_the_page_is_in_its_file():
    assert len(FUNCTIONS) >= 4
    for path, name in FUNCTIONS:
        assert f"def {name}(" in (ROOT / "plugins" / path).read_text(encoding="utf-8"), name


def test_a_bdf_has_at_most_five_forms():
    part = PAGE.split("## A flag")[0]
    forms = [int(number) for number in re.findall(r"^\| (\d)\. ", part, re.MULTILINE)]
    assert forms == list(range(1, len(forms) + 1))
    assert len(forms) <= 5
