# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Names in a host's answer are those of the programs that were to run: they become files."""

import pytest
from ansible_collections.apiary.instinct.plugins.action.acceptance import ActionModule
from ansible_collections.apiary.instinct.plugins.plugin_utils.acceptance.types import (
    Requested,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.findings import ApiaryError

from support.each import each

WANTED = Requested((), None, ({"test": "rvs", "name": "gst", "attempts": []},), 1, None, 0, ())
RAN = {"test": "rvs", "name": "gst", "argv": ["rvs"], "exit": 0, "output": "x", "seconds": 1.0}


class Answering(ActionModule):
    """The action, of a host that answers as it likes."""

    def __init__(self, answer):
        self.answer = answer

    def _module(self, _name, _arguments, _variables):
        return {"runs": [self.answer]}


def measured(answer, place):
    return Answering(answer)._measure(WANTED, place, {"inventory_hostname": "gpu-001"})


@each([{"name": "/../../OUT"}, {"test": "transferbench", "name": "zz"}])
def test_an_answer_of_what_was_not_run_is_refused_and_writes_nothing(case, tmp_path):
    with pytest.raises(ApiaryError, match="ACCEPT-PROBE: gpu-001: answers of what was not run"):
        measured({**RAN, **case}, tmp_path / "gpu-001")
    assert list(tmp_path.rglob("*")) == []


def test_the_output_of_what_was_run_is_kept(tmp_path):
    measured(RAN, tmp_path)
    assert (tmp_path / "acceptance/rvs-gst.txt").read_text() == "x"
