# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A test over many cases fails with each that fails."""

import inspect

import pytest

from support.each import each


def test_every_case_is_called_and_every_failure_named():
    called = []

    @each([(1, "a"), (2, "b"), (3, "c")])
    def odd(number, letter, fixture):
        called.append((number, letter, fixture))
        assert number % 2, "even"

    assert list(inspect.signature(odd).parameters) == ["fixture"]
    with pytest.raises(AssertionError, match=r"^2, b: even"):
        odd(fixture="x")
    assert called == [(1, "a", "x"), (2, "b", "x"), (3, "c", "x")]


def test_an_error_names_its_case():
    @each(["good", "bad"])
    def odd(case):
        if case == "bad":
            raise ValueError("no")

    with pytest.raises(ValueError, match="no") as caught:
        odd()
    assert caught.value.__notes__ == ["the case is bad"]


def test_no_cases_are_a_mistake():
    with pytest.raises(AssertionError, match="no cases"):
        each([])
