# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A router's traces: what is refused, and which headers of clients are sound."""

import re

import pytest
from ansible_collections.apiary.instinct.plugins.plugin_utils.documents import knowledge
from ansible_collections.apiary.instinct.plugins.plugin_utils.router.check import check_settings
from ansible_collections.apiary.instinct.plugins.plugin_utils.router.types import (
    RouterSettings,
    RouterTracing,
)
from hypothesis import given
from hypothesis import strategies as st


def test_a_share_beyond_all_requests_is_refused():
    [finding] = check_settings(RouterSettings(tracing=RouterTracing(ratio=2.0)))
    assert (finding.code, finding.subject) == ("ROUTER-SETTING", "tracing.ratio")
    assert check_settings(RouterSettings(tracing=RouterTracing(0.0, False))) == ()


@pytest.mark.parametrize(
    "text",
    [
        f"00-{'a' * 32}-{'b' * 16}-01",
        f"00-{'0' * 31}1-{'0' * 15}1-ff",
        f"01-{'a' * 32}-{'b' * 16}-00-more",
        f"fe-{'a' * 32}-{'b' * 16}-01",
    ],
)
def test_a_sound_traceparent(text):
    facts = knowledge("tracing.yml")["traceparent"]
    assert re.search(facts["current"], text) or re.search(facts["later"], text)
    assert not re.search(facts["zero"], text)
    assert bool(re.search(facts["sampled"], text)) == text.split("-")[3].endswith(("1", "f"))


@given(st.text(alphabet="0f-aZ", max_size=60))
def test_whatever_is_taken_has_ids_of_the_right_length(text):
    facts = knowledge("tracing.yml")["traceparent"]
    if re.search(facts["current"], text) or re.search(facts["later"], text):
        _version, trace, parent, flags = text.split("-")[:4]
        assert (len(trace), len(parent), len(flags)) == (32, 16, 2)
