# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

import pytest
from ansible_collections.apiary.instinct.plugins.plugin_utils.numbers import (
    format_cpulist,
    parse_cpulist,
)
from hypothesis import given
from hypothesis import strategies as st


@given(st.sets(st.integers(0, 1023)))
def test_written_and_read_back(cpus):
    assert set(parse_cpulist(format_cpulist(cpus))) == cpus


@given(st.sets(st.integers(0, 1023), min_size=1))
def test_written_as_short_as_possible(cpus):
    runs = sum(cpu - 1 not in cpus for cpu in cpus)
    assert len(format_cpulist(cpus).split(",")) == runs


@pytest.mark.parametrize("text", ["a", "3-1", "-1", "0-", "1;2"])
def test_what_is_no_cpulist_is_refused(text):
    with pytest.raises(ValueError, match=r"invalid literal|not a cpulist"):
        parse_cpulist(text)
