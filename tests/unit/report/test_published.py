# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Published rows: each with its whole key, its source, and what is to be known of it."""

import pytest
from ansible_collections.apiary.instinct.plugins.plugin_utils.bench.comparison.published import (
    references,
    sources,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.documents import knowledge
from ansible_collections.apiary.instinct.plugins.plugin_utils.report.tables import (
    REFERENCE_HEADS,
    reference_cells,
)

ROWS = knowledge("bench/published.yml")["rows"]
METRICS = {
    "output_token_rate", "total_token_rate", "token_rate", "ttft_p99", "tpot_p99", "e2el_p99",
    "e2el_mean",
}  # fmt: skip


def every():
    return references(*(row["models"][0] for row in ROWS))


def test_every_row_has_a_source_and_a_figure():
    assert len(every()) == len(ROWS)
    known = sources()
    for row in every():
        assert known[row.source].url.startswith("https://")
        assert row.metrics
        assert set(row.metrics) <= METRICS
        assert row.gpus > 0
        assert row.caveats
        assert len(reference_cells(row)) == len(REFERENCE_HEADS)


@pytest.mark.parametrize(
    ("name", "count"),
    [
        ("meta-llama/Llama-3.1-405B-Instruct", 29),
        ("/models/amd--Llama-3.1-405B-Instruct-FP8-KV/", 29),
        ("Qwen/Qwen3-VL-235B-A22B-Instruct", 14),
        # The blog's model: it published ratios only, and those are no reference.
        ("Qwen/Qwen3-235B-A22B-Instruct-2507-FP8", 0),
        ("meta-llama/Llama-3.1-8B", 0),
        (None, 0),
    ],
)
def test_rows_are_chosen_by_model(name, count):
    assert len(references(name)) == count


def test_rows_of_the_study_say_that_prompts_were_cached_and_how_many_really_ran():
    rows = [row for row in every() if row.source == "study"]
    assert rows
    for row in rows:
        assert row.cached is True
        assert row.effective <= min(row.concurrency, 450)
        assert row.table
        assert any("prefill was free" in caveat for caveat in row.caveats)
    beyond = [row for row in rows if row.concurrency > 450]
    assert beyond
    assert all(any("fewer requests in flight" in c for c in row.caveats) for row in beyond)


def test_figures_of_the_study_fit_their_effective_concurrency():
    """Little's law: what is in flight is the rate times the latency, here of p99."""
    for row in every():
        rate = row.metrics.get("output_token_rate")
        if row.source == "study" and rate and "deepseek-v3.2" not in row.models:
            in_flight = rate / row.output_tokens * row.metrics["e2el_p99"]
            assert row.effective * 0.9 <= in_flight <= row.effective * 1.12, row
