# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Expressions take work in proportion to a text, whatever it is: many read what a host says."""

import pytest

from support.patterns import MOST, applied, expressions, grows, worst_texts


@pytest.mark.night
@pytest.mark.parametrize("pattern", ["(?:a|a|a)*b", "(?:a+)+b"])
def test_an_exponential_one_is_told_and_holds_nobody(pattern):
    [maker, *_others] = worst_texts(pattern, 0)
    assert grows(applied(pattern, 0, "match"), maker) >= MOST


@pytest.mark.night
def test_an_expression_is_linear():
    wrong = []
    for (pattern, flags), (methods, path) in sorted(expressions().items(), key=str):
        for maker in worst_texts(pattern, flags):
            for method in sorted(methods):
                growth = grows(applied(pattern, flags, method), maker)
                if growth is not None and growth >= MOST:
                    wrong.append(f"{path}: {method} of {maker(40)!r}: {growth:.0f}")
    assert not wrong
