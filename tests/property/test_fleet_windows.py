# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whatever the clocks do: a window is open only while a clock on its wall shows a time in it."""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from ansible_collections.apiary.instinct.plugins.plugin_utils.fleet.windows import (
    Window,
    may_begin,
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


def all_open(hosts, moment):
    return all(
        any(on_the_wall(window, moment) for window in windows) for windows in hosts if windows
    )


@given(st.lists(st.lists(WINDOWS, max_size=2), max_size=3), MOMENTS, st.integers(0, 120))
@example([[Window((6,), 135, 165, "Europe/Berlin")]], datetime(2026, 3, 29, 1, 20, tzinfo=UTC), 10)
@example([[Window((6,), 135, 165, "Europe/Berlin")]], datetime(2026, 10, 25, 0, 20, tzinfo=UTC), 10)
def test_work_begins_only_where_every_host_is_open_to_its_end(hosts, now, minutes):
    good, when = may_begin(hosts, now, timedelta(minutes=minutes))
    begin = now if good else when
    if begin is None:
        return
    assert begin >= now
    for minute in range(minutes):
        assert all_open(hosts, begin + timedelta(minutes=minute))


@given(st.lists(st.lists(WINDOWS, max_size=2), max_size=3), MOMENTS)
def test_it_begins_as_soon_as_every_host_is_open(hosts, now):
    good, _when = may_begin(hosts, now, timedelta())
    assert good == all_open(hosts, now)
