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
from ansible_collections.apiary.instinct.plugins.plugin_utils.findings import (
    ApiaryError,
    has_errors,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.model.config import read_config
from ansible_collections.apiary.instinct.plugins.plugin_utils.model.types import Architecture
from ansible_collections.apiary.instinct.plugins.plugin_utils.plan.build import (
    Asked,
    architecture_of,
    build_plans,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.plan.check import check_plan
from ansible_collections.apiary.instinct.plugins.plugin_utils.plan.explain import summary
from ansible_collections.apiary.instinct.plugins.plugin_utils.plan.nodes import (
    Member,
    Place,
    check_nodes,
    node_of,
    nodes_of,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.plan.together import (
    others_of,
    running_plans,
    tell_others,
)
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
                "deployment": {"type": "dict"},
                "deployments": {"type": "list", "elements": "dict"},
                "evidence": {"type": "dict", "required": True},
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
            raise AnsibleActionFail(
                str(refusal), result={"findings": to_document(refusal.findings)}
            ) from None  # ansible-core would print the whole chain of causes

    def _decide(self, host: str, arguments: dict, variables: dict) -> dict:
        documents = arguments["deployments"] or [arguments["deployment"]]
        deployments = [from_document(Deployment, document, host) for document in documents]
        # The inventory's name for the host is the one its operator knows.
        topology = dataclasses.replace(from_evidence(arguments["evidence"]), host=host)
        running, unread = running_plans(arguments["running"] or [], host)
        others = others_of(running, deployments)
        removed = arguments["remove_others"]
        kept = {plan.deployment.name: plan for plan in running if arguments["keep_running"]}
        if arguments["keep"]:
            kept[deployments[0].name] = _checked(arguments["keep"], f"{host}: the plan to keep")
        fleet = _Fleet(variables["hostvars"], arguments["hosts"] or [host])
        places = {one.name: fleet.place(host, one) for one in deployments if nodes_of(one) > 1}
        asked = [
            Asked(one, self._architecture(one, host), kept.get(one.name), places.get(one.name))
            for one in deployments
        ]
        alike = [
            finding
            for one in asked
            if one.place is not None
            for finding in check_nodes(
                one.place.node,
                [fleet.member(name, one.deployment) for name in one.place.node.hosts],
                topology,
            )
        ]
        if has_errors(alike):
            raise ApiaryError(*alike)
        findings = (*tell_others(others, removed), *unread, *alike)
        try:
            plans = build_plans(asked, topology, () if removed else others)
        except ApiaryError as refusal:
            # Who has the GPUs that are missing is told with the refusal.
            known = [one for one in findings if one.severity != "info"]
            raise ApiaryError(*refusal.findings, *known) from None
        files = {
            f"files{item.path}": item.content for plan in plans for item in render_systemd(plan)
        }
        saved = {
            "evidence.json": dumps(arguments["evidence"]),
            "topology.json": dumps(topology),
            "plan.json": dumps(plans[0]),
            **{f"{plan.deployment.name}/plan.json": dumps(plan) for plan in plans},
            **files,
        }
        return {
            "changed": False,
            "plan": to_document(plans[0]),
            "plans": to_document(plans),
            "others": to_document(others),
            "findings": to_document(findings),
            "topology": to_document(topology),
            "summary": [
                *(line for plan in plans for line in summary(plan)),
                *(f"  {finding}" for finding in findings if finding.severity != "info"),
            ],
            **self._save(arguments["dest"], saved),
        }

    def _architecture(self, deployment: Deployment, host: str) -> Architecture:
        config = deployment.model.config
        if config:
            return read_config(read_text(config), config)
        return architecture_of(deployment, host)

    def _save(self, dest: str | None, documents: dict[str, str]) -> dict[str, str]:
        """Write the documents below a directory; what an earlier plan had rendered goes."""
        if dest is None or self._task.check_mode:
            return {}
        directory = Path(dest).absolute()
        for path in [*(directory / "files").rglob("*"), *directory.glob("*/plan.json")]:
            if path.is_file() and str(path.relative_to(directory)) not in documents:
                path.unlink()
        for name, content in documents.items():
            write_text(directory / name, content)
        return {"dest": str(directory)}


class _Fleet:
    """The hosts that the inventory has for these deployments, in its order."""

    def __init__(self, variables: dict, hosts: list[str]) -> None:
        self.variables, self.hosts = variables, hosts

    def place(self, host: str, deployment: Deployment) -> Place:
        """Return a host's place among those that its replicas span."""
        own = self.variables[host]
        # Of all hosts of a fleet only the names count; those of the group are looked at closely.
        members = [
            Member(
                name,
                self._address(name),
                self.variables[name].get("apiary_node_group"),
                deployment if self._asked(name, deployment.name) else None,
            )
            for name in self.hosts
        ]
        node = node_of(host, members, deployment)
        return Place(node, self._address(host), own.get("apiary_interface"))

    def member(self, host: str, deployment: Deployment) -> Member:
        """Return a host with what it is asked to serve under this name, and what it has."""
        asked = self._asked(host, deployment.name)
        evidence = (self.variables[host].get("__probed") or {}).get("evidence")
        return Member(
            host=host,
            address=self._address(host),
            deployment=from_document(Deployment, asked, host) if asked else None,
            topology=dataclasses.replace(from_evidence(evidence), host=host) if evidence else None,
        )

    def _asked(self, host: str, name: str) -> dict | None:
        own = self.variables[host]
        asked = own.get("apiary_deployments") or [own.get("apiary_deployment") or {}]
        return next((one for one in asked if one.get("name") == name), None)

    def _address(self, host: str) -> str:
        own = self.variables[host]
        return str(own.get("apiary_address") or own.get("ansible_host") or host)


def _checked(document: dict, subject: str) -> Plan:
    plan = from_document(Plan, document, subject)
    check_plan(plan, subject)
    return plan
