# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Why an engine died, from its log through the real supervisor to everybody who says so."""

import shutil

from ansible_collections.apiary.instinct.plugins.module_utils import host_metrics
from ansible_collections.apiary.instinct.plugins.module_utils.engine_causes import cause_ids
from ansible_collections.apiary.instinct.plugins.plugin_utils.acceptance.replicas import checks
from ansible_collections.apiary.instinct.plugins.plugin_utils.documents import dumps, knowledge
from ansible_collections.apiary.instinct.plugins.plugin_utils.evidence.types import (
    CommandOutput,
    Evidence,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.tune import trial

from support.demo import demo_plan

LOG = [
    "(Worker_TP1 pid=7) ERROR 11-22 05:00:01 [x.py:9] torch.OutOfMemoryError: HIP out of memory."
    " Tried to allocate 2.00 GiB. GPU 1 has a total capacity of 255.98 GiB of which 1 GiB is free.",
    "RuntimeError: Engine core initialization failed. See root cause above.",
]


def test_the_cause_is_the_same_words_everywhere(supervise, tmp_path):
    plan = demo_plan()
    name, unit = plan.deployment.name, plan.replicas[0].unit
    run = supervise(lines=LOG, exit=1, failed_starts=1, spec={"unit": unit, "deployment": name})
    told = run.message("STATUS=REPLICA-ENGINE-DIED")
    assert run.ended() == 1
    cause = "cause gpu_memory: "
    # systemctl status, and by it verify.
    (status,) = (line[7:] for line in told.splitlines() if line.startswith("STATUS="))
    assert cause in status
    shown = f"Id={unit}\nStatusText={status}\n"
    commands = {"replica_status": CommandOutput(("systemctl",), 0, shown, "", 0.0)}
    files = {f"/etc/apiary/{name}/plan.json": dumps(plan)}
    evidence = Evidence("gpu-001", "2026-11-27T00:00:00Z", "3", commands, files)
    found = [one for one in checks(evidence) if one.code == "ACCEPT-REPLICA"]
    assert found[0].found == f"not running: {status}"
    assert cause not in found[1].found
    # The journal, which a support bundle has, and by it the tuner.
    assert f"error: REPLICA-ENGINE-DIED: {unit}: " in run.error
    assert cause in trial.cause(run.error)
    # The metric that alerts ask for its cause.
    for path, text in files.items():
        (tmp_path / path[1:]).parent.mkdir(parents=True)
        (tmp_path / path[1:]).write_text(text)
    shutil.copytree(run.runtime, tmp_path / "run/apiary" / unit)
    causes = {"causes": cause_ids(knowledge("serving/causes.yml"))}
    metrics = host_metrics.serving(causes, str(tmp_path), lambda units: {})
    died = [labels for metric, labels, _at in metrics if "died" in metric]
    assert died == [{"deployment": name, "replica": "0", "cause": "gpu_memory"}]
    asking = [
        one for one in dumps(knowledge("telemetry/alerts.yml")).splitlines() if "died_" in one
    ]
    assert len(asking) == 3
