# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Decide a host's replicas on the controller: the adapter from Ansible to plugin_utils."""

from __future__ import annotations

from pathlib import Path

from ..plugin_utils.adapters import Deciding
from ..plugin_utils.documents import to_document
from ..plugin_utils.files import read_text
from ..plugin_utils.fleet.given import fleet_of, given_evidence, known_architecture
from ..plugin_utils.fleet.saved import save_documents
from ..plugin_utils.fleet.serving import Wish, decide_serving, running_documents, topology_of
from ..plugin_utils.plan.types import parse_plan


class ActionModule(Deciding):
    """The plan action."""

    _requires_connection = False
    rules = {  # noqa: RUF012 - as Ansible has them
        "required_one_of": [("deployment", "deployments", "serves")],
        "mutually_exclusive": [("deployment", "deployments", "serves")],
        "required_by": {"deployment": "evidence", "deployments": "evidence", "serves": "dest"},
    }

    def decide(self, arguments, task_vars):
        """Return the plan; write the documents to ``dest`` unless in check mode."""
        host = task_vars["inventory_hostname"]
        if arguments["serves"] is not None:
            return self._record(host, arguments)
        return self._decide(host, arguments, task_vars)

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
        return {"dest": str(directory)}

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
