# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A host that is gone: a warning while another one is left, else the end of the run."""

import pytest
from ansible_collections.apiary.instinct.plugins.plugin_utils.findings import ApiaryError
from ansible_collections.apiary.instinct.plugins.plugin_utils.tune import steps

from support.bench.tuned import begun


def test_a_lost_host_is_a_warning_while_another_is_left():
    (finding,) = steps.gone(["a"])
    assert (finding.code, finding.severity) == ("TRIAL-HOST-GONE", "warning")
    with pytest.raises(ApiaryError) as refusal:
        steps.without(begun(hosts=("a",)), ["a"])
    assert refusal.value.findings[0].severity == "error"
