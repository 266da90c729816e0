# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Since when an engine serves a series, against the names in each release's sources."""

from ansible_collections.apiary.instinct.plugins.plugin_utils.documents import knowledge

from support.each import each

RELEASES = knowledge("vllm/metrics.yml")
SERIES = [
    series
    for series in knowledge("telemetry/vllm.yml")["series"]
    if series["name"].startswith("vllm:") and series.get("since") in RELEASES["versions"]
]


@each(SERIES, name=lambda series: series["name"])
def test_a_series_is_served_from_the_release_that_first_has_its_name(series):
    named = RELEASES["metrics"]
    history = named.get(series["name"].removesuffix("_total")) or named[series["name"]]
    first = history[0]["from"]
    # What the oldest of them has may be older.
    assert first in (series["since"], RELEASES["versions"][0])
