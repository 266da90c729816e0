# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whatever the limits and the fleet, nothing is counted as kept that was not asked for."""

from dataclasses import replace

from ansible_collections.apiary.instinct.plugins.plugin_utils.telemetry.plan import telemetry_plan
from ansible_collections.apiary.instinct.plugins.plugin_utils.telemetry.promql import (
    bound,
    number,
    quoted,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.telemetry.slo import objectives
from ansible_collections.apiary.instinct.plugins.plugin_utils.telemetry.types import (
    MonitoredHost,
    TelemetrySettings,
)
from hypothesis import given
from hypothesis import strategies as st

from support.demo import demo_plan
from support.examples import examples

METRICS = st.sampled_from(["ttft", "tpot", "itl", "e2el"])
PERCENTILES = st.sampled_from(["p50", "p90", "p95", "p99"])
TIMES = st.integers(min_value=1, max_value=10**7)


@given(METRICS, PERCENTILES, TIMES)
def test_the_bound_that_is_counted_is_never_above_the_limit(metric, percentile, milliseconds):
    asked = TelemetrySettings(slos={"qwen3-235b": f"{metric}:{percentile}:{milliseconds}ms"})
    found, notes = objectives({"qwen3-235b": [demo_plan()]}, asked)
    limits = [one for one in found if one.limit is not None]
    assert all(one.bucket <= one.limit for one in limits)
    # Where it is not exactly what was asked, or nothing is, that is told.
    assert bool(notes) == (not limits or limits[0].bucket != limits[0].limit)


@given(st.floats(min_value=1e-9, max_value=1e15, allow_nan=False))
def test_a_number_in_promql_is_the_number(value):
    text = number(value)
    assert "e" not in text
    assert abs(float(text) - value) <= max(1e-12, value * 1e-9)
    assert float(bound(value)) == value


@given(st.text())
def test_a_quoted_text_never_ends_early(text):
    inside = quoted(text)[1:-1]
    assert "\n" not in inside
    assert '"' not in inside.replace("\\\\", "").replace('\\"', "")


@examples(0.15)
@given(st.permutations([f"gpu-{index:03}" for index in range(1, 5)]))
def test_the_order_of_hosts_changes_nothing(names):
    hosts = [
        MonitoredHost(name, f"10.0.0.{name[-1]}", plans=(replace(demo_plan(), host=name),))
        for name in names
    ]
    told = telemetry_plan(hosts)
    assert told.files == telemetry_plan(sorted(hosts, key=lambda one: one.name)).files
    addresses = [(one.job, one.address) for one in told.targets]
    assert len(addresses) == len(set(addresses))
