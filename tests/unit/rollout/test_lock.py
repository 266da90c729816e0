# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Only the lock that was seen may be taken over, not that of a run that was faster."""

import json

from ansible_collections.apiary.instinct.plugins.modules import rollout_lock

from support.modules import run_module


def test_a_lock_is_taken_over_from_the_one_that_was_seen(tmp_path, capsys):
    def lock(owner, **more):
        told = {"deployment": "x", "owner": owner, "directory": str(tmp_path), **more}
        return run_module(rollout_lock, capsys, False, **told)

    lock("dead")
    lock("fast", take_over_from="dead")
    refused = lock("slow", take_over_from="dead")
    assert "ROLLOUT-IN-PROGRESS: x: fast" in refused["msg"]
    assert "ROLLOUT-IN-PROGRESS: x: fast" in lock("slow", state="absent")["msg"]
    assert json.loads((tmp_path / "x.lock").read_text())["owner"] == "fast"
