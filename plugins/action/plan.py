# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Decide a host's replicas on the controller: the adapter from Ansible to plugin_utils."""

from __future__ import annotations

from pathlib import Path

from ansible.plugins.action import ActionBase

from ..plugin_utils.adapters import refused
from ..plugin_utils.documents import to_document
from ..plugin_utils.findings import ApiaryError
from ..plugin_utils.fleet.given import fleet_of, given_evidence, known_architecture, save_documents
from ..plugin_utils.fleet.serving import Wish, decide_serving, running_documents, topology_of


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
                "deployment": {"type": "dict"},
                "deployments": {"type": "list", "elements": "dict"},
                "evidence": {"type": "raw", "required": True},
                "dest": {"type": "path"},
                "keep": {"type": "dict"},
                "running": {"type": "list", "elements": "dict"},
                "keep_running": {"type": "bool", "default": False},
                "remove_others": {"type": "bool", "default": False},
                "hosts": {"type": "list", "elements": "str"},
            },
            required_one_of=[("deployment", "deployments")],
            mutually_exclusive=[("deployment", "deployments")],
        )
        host = task_vars["inventory_hostname"]
        try:
            return self._decide(host, arguments, task_vars)
        except ApiaryError as refusal:
            raise refused(refusal) from None

    def _decide(self, host: str, arguments: dict, variables: dict) -> dict:
        evidence, text = given_evidence(arguments["evidence"])
        running = arguments["running"]
        wish = Wish(
            arguments["deployments"] or [arguments["deployment"]],
            arguments["keep"],
            arguments["keep_running"],
            arguments["remove_others"],
        )
        serving = decide_serving(
            host,
            wish,
            topology_of(evidence, host),
            running_documents(evidence) if running is None else running,
            fleet_of(variables["hostvars"], arguments["hosts"] or [host]),
            known_architecture,
        )
        saved = {"evidence.json": text, **serving.documents()}
        return {
            "changed": False,
            "plan": to_document(serving.plans[0]),
            "plans": to_document(serving.plans),
            "others": to_document(serving.others),
            "findings": to_document(serving.findings),
            "topology": to_document(serving.topology),
            "summary": serving.summary,
            **self._save(arguments["dest"], saved),
        }

    def _save(self, dest: str | None, documents: dict[str, str]) -> dict[str, str]:
        """Write the documents below a directory; what an earlier plan had rendered goes."""
        if dest is None or self._task.check_mode:
            return {}
        directory = Path(dest).absolute()
        save_documents(directory, documents)
        return {"dest": str(directory)}
