# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The playbook finds in the inventory which revisions are in use."""

import json
import sys

from support.playbooks import run_playbook
from support.weights import REPOSITORY, ROOT


def test_a2_a_revision_that_a_deployment_names_is_not_pruned(run, store, tmp_path):
    source = tmp_path / "source"
    source.mkdir()
    (source / "config.json").write_text("{}")
    old, used, second, current = (digit * 40 for digit in "1234")
    for commit in (old, used, second, current):
        run(commit, source=str(source))
    writer = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}
    deployment = {"model": {"path": f"/srv/models/{REPOSITORY}/{{{{ commit }}}}"}}
    hosts = {
        "writer": writer,
        "gpu-001": {"apiary_deployment": deployment, "commit": used},
        "gpu-002": {"apiary_deployment": deployment, "commit": "current"},
        "gpu-003": {
            "apiary_deployments": [
                {"model": {"path": "/srv/models/other/model/current"}},
                {"model": {"path": f"/srv/models/{REPOSITORY}/{second}"}},
            ]
        },
    }
    inventory = tmp_path / "hosts.json"
    inventory.write_text(json.dumps({"all": {"hosts": hosts}}))
    asked = {
        "target": "writer",
        "ansible_become": False,
        "weights_action": "prune",
        "weights_keep": 1,
        "weights_store": str(store),
        "weights_repository": REPOSITORY,
    }
    done = run_playbook(
        f"--inventory={inventory}",
        f"--extra-vars={json.dumps(asked)}",
        ROOT / "playbooks/weights.yml",
        cwd=ROOT,
    )
    assert done.returncode == 0, done.stdout
    assert sorted(path.name for path in (store / REPOSITORY).iterdir()) == [
        used,
        second,
        current,
        "current",
    ]
