# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Decide a host's replicas on the controller: the adapter from Ansible to plugin_utils."""

from __future__ import annotations

from pathlib import Path

from ansible.plugins.action import ActionBase

from ..plugin_utils.adapters import refused
from ..plugin_utils.documents import to_document
from ..plugin_utils.files import read_text
from ..plugin_utils.findings import ApiaryError
from ..plugin_utils.fleet.given import fleet_of, given_evidence, known_architecture
from ..plugin_utils.fleet.saved import save_documents
from ..plugin_utils.fleet.serving import Wish, decide_serving, running_documents, topology_of
from ..plugin_utils.plan.check import parse_plan


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
                "serves": {"type": "str"},
                "evidence": {"type": "raw"},
                "dest": {"type": "path"},
                "keep": {"type": "dict"},
                "running": {"type": "list", "elements": "dict"},
                "keep_running": {"type": "bool", "default": False},
                "remove_others": {"type": "bool", "default": False},
                "hosts": {"type": "list", "elements": "str"},
            },
            required_one_of=[("deployment", "deployments", "serves")],
            mutually_exclusive=[("deployment", "deployments", "serves")],
            required_by={"deployment": "evidence", "deployments": "evidence", "serves": "dest"},
        )
        host = task_vars["inventory_hostname"]
        try:
            if arguments["serves"] is not None:
                return self._record(host, arguments)
            return self._decide(host, arguments, task_vars)
        except ApiaryError as refusal:
            raise refused(refusal) from None

    def _record(self, host: str, arguments: dict) -> dict:
        """Record the plan of a release, which was decided when it was rolled out."""
        text, directory = arguments["serves"], Path(arguments["dest"]).absolute()
        name = parse_plan(text, f"{host}: plan").deployment.name
        first = directory / "plan.json"
        # The first deployment's plan has a second place, where it was before there were several.
        is_first = not first.is_file() or (
            parse_plan(read_text(str(first)), str(first)).deployment.name == name
        )
        if not self._task.check_mode:
            documents = {f"{name}/plan.json": text, **({"plan.json": text} if is_first else {})}
            save_documents(directory, documents, whole=False)
        return {"changed": False, "dest": str(directory)}

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
