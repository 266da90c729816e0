# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A run that was interrupted anywhere ends with the document that it would have had."""

from __future__ import annotations

from dataclasses import replace

import pytest
from ansible_collections.apiary.instinct.plugins.plugin_utils.bench.types import Requested, Workload
from ansible_collections.apiary.instinct.plugins.plugin_utils.documents import dumps
from ansible_collections.apiary.instinct.plugins.plugin_utils.slo import Limit

from engine_simulator import benches, parameters

ASKED = Requested(
    Workload("100/8", 100, 8),
    slo=(Limit("tpot", "p90", 0.014),),
    phases=("baseline", "scaling", "slo", "saturation"),
    most=16,
    engine_runs=2,
    search_by="concurrency",  # a search by arrivals costs ten times as much, and is replayed alike
)


@pytest.fixture(scope="module")
def whole():
    return benches.bench(parameters("small"), ASKED)


@pytest.mark.parametrize("after", [0, 7, 14])
def test_resuming_gives_the_same_document(whole, after):
    store = benches.Memory(most=after)
    with pytest.raises(KeyboardInterrupt):
        benches.bench(parameters("small"), ASKED, store=store)
    assert len(store.kept) == after
    store.most = None
    measured = []
    resumed = benches.bench(
        parameters("small"),
        ASKED,
        store=store,
        progress=lambda step: measured.append(step) if step.level and not step.replayed else None,
    )
    assert dumps(resumed) == dumps(whole)
    assert len(measured) == len(whole.levels) - after


def test_another_run_of_the_same_load_gives_other_numbers(whole):
    """Else the test above would pass without any replay."""
    again = benches.bench(parameters("small"), ASKED, seed=1)
    assert dumps(again) != dumps(whole)
    assert again.requested == replace(whole.requested)
