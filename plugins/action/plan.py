# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Decide a host's replicas on the controller: the adapter from Ansible to plugin_utils."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase
from ansible_collections.apiary.instinct.plugins.plugin_utils.deployment import Deployment
from ansible_collections.apiary.instinct.plugins.plugin_utils.documents import (
    dumps,
    from_document,
    to_document,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.files import read_text, write_text
from ansible_collections.apiary.instinct.plugins.plugin_utils.findings import ApiaryError
from ansible_collections.apiary.instinct.plugins.plugin_utils.model.config import read_config
from ansible_collections.apiary.instinct.plugins.plugin_utils.plan.build import (
    architecture_of,
    build_plan,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.plan.check import check_plan
from ansible_collections.apiary.instinct.plugins.plugin_utils.plan.explain import summary
from ansible_collections.apiary.instinct.plugins.plugin_utils.plan.types import Plan
from ansible_collections.apiary.instinct.plugins.plugin_utils.render.systemd import render_systemd
from ansible_collections.apiary.instinct.plugins.plugin_utils.topology.host import (
    from_evidence,
)


class ActionModule(ActionBase):
    """The plan action."""

    _requires_connection = False
    _supports_check_mode = True
    _supports_diff = True

    def run(self, tmp=None, task_vars=None):
        """Return the plan; write the documents to ``dest`` unless in check mode."""
        super().run(tmp, task_vars)
        _validation, arguments = self.validate_argument_spec(
            {
                "deployment": {"type": "dict", "required": True},
                "evidence": {"type": "dict", "required": True},
                "dest": {"type": "path"},
                "keep": {"type": "dict"},
            }
        )
        host = task_vars["inventory_hostname"]
        try:
            return self._decide(host, arguments)
        except ApiaryError as refusal:
            raise AnsibleActionFail(
                str(refusal), result={"findings": to_document(refusal.findings)}
            ) from None  # ansible-core would print the whole chain of causes

    def _decide(self, host: str, arguments: dict) -> dict:
        deployment = from_document(Deployment, arguments["deployment"], host)
        # The inventory's name for the host is the one its operator knows.
        topology = dataclasses.replace(from_evidence(arguments["evidence"]), host=host)
        if deployment.model.config:
            config = deployment.model.config
            architecture = read_config(read_text(config), config)
        else:
            architecture = architecture_of(deployment, host)
        before = None
        if arguments["keep"]:
            before = from_document(Plan, arguments["keep"], f"{host}: the plan to keep")
            check_plan(before, f"{host}: the plan to keep")
        plan = build_plan(deployment, topology, architecture, before)
        documents = {
            "evidence.json": dumps(arguments["evidence"]),
            "topology.json": dumps(topology),
            "plan.json": dumps(plan),
            **{f"files{item.path}": item.content for item in render_systemd(plan)},
        }
        return {
            "changed": False,
            "plan": to_document(plan),
            "topology": to_document(topology),
            "summary": summary(plan),
            **self._save(arguments["dest"], documents),
        }

    def _save(self, dest: str | None, documents: dict[str, str]) -> dict[str, str]:
        """Write the documents below a directory; what an earlier plan had rendered goes."""
        if dest is None or self._task.check_mode:
            return {}
        directory = Path(dest).absolute()
        for path in (directory / "files").rglob("*"):
            if path.is_file() and str(path.relative_to(directory)) not in documents:
                path.unlink()
        for name, content in documents.items():
            write_text(directory / name, content)
        return {"dest": str(directory)}
