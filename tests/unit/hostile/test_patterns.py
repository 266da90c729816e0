# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Expressions take work in proportion to a text, whatever it is: many read what a host says."""

import pytest

from support.each import each
from support.patterns import MOST, applied, expressions, grows, worst_texts


@pytest.mark.night
@pytest.mark.parametrize("pattern", ["(?:a|a|a)*b", "(?:a+)+b"])
def test_an_exponential_one_is_told_and_holds_nobody(pattern):
    [maker, *_others] = worst_texts(pattern, 0)
    assert grows(applied(pattern, 0, "match"), maker) >= MOST


@pytest.mark.night
@each(sorted(expressions(), key=str))
def test_an_expression_is_linear(pattern, flags):
    methods, path = expressions()[pattern, flags]
    for maker in worst_texts(pattern, flags):
        for method in sorted(methods):
            growth = grows(applied(pattern, flags, method), maker)
            text = maker(40)
            assert growth is None or growth < MOST, f"{path}: {method} of {text!r}: {growth:.0f}"
