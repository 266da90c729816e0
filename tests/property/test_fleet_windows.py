# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whatever the clocks do: a window is open only while a clock on its wall shows a time in it."""

import itertools
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from ansible_collections.apiary.instinct.plugins.plugin_utils.fleet.windows import (
    HORIZON_DAYS,
    Window,
    may_begin,
    spans,
)
from hypothesis import example, given
from hypothesis import strategies as st

# One that goes forward in March and back in October, one by half an hour, one never.
ZONES = ("Europe/Berlin", "Australia/Lord_Howe", "America/New_York", "Asia/Kolkata", "UTC")
# The nights around changes of the clocks come up often.
NEAR_CHANGES = [
    datetime(2026, 3, 29, 0, 30, tzinfo=UTC),
    datetime(2026, 10, 25, 0, 30, tzinfo=UTC),
    datetime(2026, 11, 1, 5, 30, tzinfo=UTC),
    datetime(2026, 4, 4, 15, 0, tzinfo=UTC),
]
MOMENTS = st.one_of(
    st.builds(
        lambda base, minutes: base + timedelta(minutes=minutes),
        st.sampled_from(NEAR_CHANGES),
        st.integers(-600, 600),
    ),
    st.datetimes(
        min_value=datetime(2026, 1, 1),
        max_value=datetime(2027, 12, 31),
        timezones=st.just(UTC),
    ),
)
WINDOWS = st.builds(
    Window,
    st.lists(st.integers(0, 6), min_size=1, unique=True).map(lambda days: tuple(sorted(days))),
    st.integers(0, 24 * 60 - 1),
    st.integers(0, 24 * 60),
    st.sampled_from(ZONES),
    st.just("a window"),
)


def on_the_wall(window, moment):
    """Say whether the window's own clock shows a time of it."""
    local = moment.astimezone(ZoneInfo(window.zone))
    minutes = local.hour * 60 + local.minute + local.second / 60
    today = local.weekday() in window.days
    yesterday = (local.weekday() - 1) % 7 in window.days
    if window.end > window.start:
        return today and window.start <= minutes < window.end
    return (today and minutes >= window.start) or (yesterday and minutes < window.end)


def open_until(windows, now):
    """When the windows close that are open now, None where none is."""
    return next((end for start, end in spans(windows, now) if start <= now < end), None)


@given(WINDOWS, MOMENTS)
@example(Window((6,), 135, 165, "Europe/Berlin", ""), datetime(2026, 3, 29, 1, 20, tzinfo=UTC))
@example(Window((6,), 135, 165, "Europe/Berlin", ""), datetime(2026, 10, 25, 0, 20, tzinfo=UTC))
def test_open_only_while_its_clock_says_so(window, now):
    until = open_until([window], now)
    if until is None:
        return
    assert on_the_wall(window, now)
    assert until > now
    middle = now + (until - now) / 2
    assert on_the_wall(window, middle)


@given(WINDOWS, MOMENTS)
def test_open_whenever_its_clock_says_so_but_for_the_hours_of_a_change(window, now):
    zone = ZoneInfo(window.zone)
    around = {
        (now + timedelta(hours=hours)).astimezone(zone).utcoffset() for hours in range(-30, 31)
    }
    if len(around) == 1:
        assert (open_until([window], now) is not None) == on_the_wall(window, now)


@given(st.lists(WINDOWS, min_size=1, max_size=3), MOMENTS, st.integers(0, 300))
def test_the_next_opening_is_open_for_as_long_as_is_needed(windows, now, minutes):
    need = timedelta(minutes=minutes)
    _good, begin = may_begin([windows], now, need)
    if begin is None:
        return
    assert begin >= now
    until = open_until(windows, begin)
    assert until is not None
    assert until - begin >= need


@given(st.lists(st.lists(WINDOWS, max_size=2), max_size=3), MOMENTS, st.integers(0, 120))
def test_work_begins_only_where_every_host_is_open_to_its_end(hosts, now, minutes):
    need = timedelta(minutes=minutes)
    good, when = may_begin(hosts, now, need)
    moment = now if good else when
    if moment is None:
        return
    for windows in hosts:
        if windows:
            until = open_until(windows, moment)
            assert until is not None
            assert until - moment >= need


@given(st.lists(WINDOWS, min_size=1, max_size=4), MOMENTS)
def test_spans_are_in_order_and_apart(windows, now):
    found = spans(windows, now)
    assert all(start < end for start, end in found)
    assert all(before[1] < after[0] for before, after in itertools.pairwise(found))
    assert all(end < now + timedelta(days=HORIZON_DAYS + 3) for _start, end in found)
