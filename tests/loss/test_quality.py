# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A change after which answers are wrong is taken back, and costs no request."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from pathlib import Path

from ansible_collections.apiary.instinct.plugins.plugin_utils.quality.battery import battery

from loss.load import under

APIARY = str(Path(sys.executable).with_name("apiary"))
WRONG = "/srv/none.json"


def known():
    """The right answers, by what the double takes a question for."""
    items = [item for item in battery() if item.group == "questions"]
    return {
        item.body["prompt"].removesuffix("\nA:").rpartition("Q: ")[2]: item.right[0]
        for item in items
    }


def test_a_rollout_whose_answers_are_worse_is_taken_back(whole, add_row, tmp_path):
    text = shlex.quote(json.dumps(known()))
    for host in whole.plans:
        whole.run(host, f"printf %s {text} >/srv/answers.json")
    first, reference = whole.replicas[0], tmp_path / "quality.json"
    url = f"http://{whole.hosts[first.host]['address_in_lab']}:{first.port}"
    asked = [APIARY, "quality", "--url", url, "--write-reference", str(reference)]
    done = subprocess.run(asked, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads(reference.read_text())["share"] > 0.7

    before = {replica.name: whole.show(replica, "MainPID") for replica in whole.replicas}
    change = ("-e", f"loss_answers={WRONG}", "-e", f"quality_reference={reference}")
    with under(whole.load(seconds=900, timeout_seconds=60)) as running:
        done = subprocess.run(
            **whole.command("rollout", *change), capture_output=True, text=True, check=False
        )
        took = running.now()
        whole.await_whole()
    assert done.returncode != 0, done.stdout
    assert "QUALITY-WORSE" in done.stdout, done.stdout + done.stderr
    assert "ROLLOUT-SMOKE" not in done.stdout
    report = add_row(f"a rollout that answers worse, taken back ({took:.0f} s)", running.report())
    assert report.failed == [], report.failed[:3]

    # The host that had it serves what it served; the other one never got it.
    changed = {one.host for one in whole.replicas if whole.show(one, "MainPID") != before[one.name]}
    assert len(changed) == 1
    for replica in whole.replicas:
        plan = f"cat /etc/apiary/{whole.deployment}/plan.json"
        assert WRONG not in whole.run(replica.host, plan)
