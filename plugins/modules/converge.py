#!/usr/bin/python
# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Bring a host to a list of resources."""

from __future__ import annotations

DOCUMENTATION = r"""
module: converge
short_description: Bring a host to a list of resources
version_added: 0.1.0
description:
  - Inspects every resource of the list, then unless in check mode applies those that differ, in the
    order of the list. Check mode is the survey of a host.
  - Where a resource is refused, a real run ends before anything is changed; in check mode the other
    resources are inspected all the same, and the result has them.
  - A run that was killed is completed by the next one.
  - On the controller each role decides its resources (C(plugin_utils/host/ROLE)); the plan has them
    as C(resources), mappings with C(kind) and that kind's options, and
    C(plugin_utils/host/resources.py) adds C(ROLE_extra_resources) and leaves out C(ROLE_omit).
    The role passes them here, and a survey passes those of all roles here in check mode.
    C(module_utils/resources/converge.py) says how a kind is added.
  - A resource's name is its kind and what identifies it, as in C(file /etc/x),
    C(service a.service), C(command update-grub), C(user vllm); no name may be there twice.
author:
  - The Apiary authors (@apiary)
attributes:
  check_mode:
    description: Can predict the changed status without modifying the target.
    support: full
  diff_mode:
    description: Will return details on what has changed.
    support: full
    details: Secrets, and passwords in addresses, are left out of the diff.
options:
  resources:
    description:
      - The resources. Each has its C(kind), a module of C(module_utils/resources) such as C(file),
        C(packages), C(service), C(live) or C(command); that kind's options; and optionally the
        C(role) that it belongs to and the C(part) of the role, by which a role may take one first.
      - C(command) and C(service) take names of earlier resources (C(after), C(restart_after),
        C(reload_after)) whose change they follow.
    type: list
    elements: dict
    required: true
  secrets:
    description: Values by name, to which a C(file) refers by C(secret), a file of a
        C(configuration) by C(secrets); they are never logged.
    type: dict
    default: {}
"""

EXAMPLES = r"""
- name: Bring a sysctl to the host, and to the running kernel
  apiary.instinct.converge:
    resources:
      - kind: file
        path: /etc/sysctl.d/90-apiary.conf
        content: "kernel.numa_balancing = 0\n"
      - kind: command
        argv: [sysctl, --system]
        after: [file /etc/sysctl.d/90-apiary.conf]
"""

RETURN = r"""
resources:
  description: The resources that differ, or that have findings, in the order of the list.
  type: list
  elements: dict
  returned: always
  contains:
    resource:
      description: Its name.
      type: str
      returned: always
      sample: file /etc/sysctl.d/90-apiary.conf
    role:
      description: The role that it belongs to.
      type: str
      returned: always
      sample: host_tuning
    changed: {description: Whether the host differed., type: bool, returned: always, sample: true}
    diff:
      description: The difference of texts, as Ansible shows it.
      type: list
      elements: dict
      returned: always
    steps:
      description: What was, or would be, done where no text shows it.
      type: list
      elements: str
      returned: always
      sample: ["enable apiary-host-tuning.service"]
    findings:
      description: Why it is refused, or what to know.
      type: list
      elements: dict
      returned: always
      sample: []
    result:
      description: What a caller may read, as C(restarted) of C(replicas).
      type: dict
      returned: where the kind has it
findings:
  description: Why it failed, else what to know, with what to do about each.
  type: list
  elements: dict
  returned: always
  sample: []
failed_resource:
  description: The resource that could not be applied.
  type: str
  returned: when applying failed
  sample: service haproxy.service
not_tried:
  description: The names of the resources after it.
  type: list
  elements: str
  returned: when applying failed
  sample: []
"""

import os
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ..module_utils.finding import ApiaryError, fail
from ..module_utils.resources.converge import Aborted, apply_all, inspect_all, items
from ..module_utils.resources.types import Host


class _Quiet(AnsibleModule):
    """A module whose arguments, all files of a role, are not written to the host's journal."""

    def _log_invocation(self) -> None:
        pass


def main() -> None:
    module = _Quiet(
        argument_spec={
            "resources": {"type": "list", "elements": "dict", "required": True},
            "secrets": {"type": "dict", "default": {}, "no_log": True},
        },
        supports_check_mode=True,
    )
    secrets = module.params["secrets"]
    # Directories of the services' files are for their users, whatever the login's umask is.
    os.umask(0o022)
    try:
        checked = items(module.params["resources"])
        host = Host(module, secrets)
        reports, refusals = inspect_all(host, checked)
        if refusals:
            outcome = _outcome(reports)
            outcome["changed"] = outcome["changed"] and module.check_mode
            fail(module, *refusals, **outcome)
        if not module.check_mode and any(report["changed"] for report in reports):
            reports = apply_all(Host(module, secrets, memo=host.memo), checked)
    except Aborted as failure:
        changed = [report["resource"] for report in failure.done if report["changed"]]
        fail(
            module,
            failure,
            note=f"  changed before: {', '.join(changed) or 'nothing'}\n"
            f"  not tried: {', '.join(failure.not_tried) or 'nothing'}",
            failed_resource=failure.resource,
            not_tried=failure.not_tried,
            # A change that failed may have been made in part.
            **{**_outcome(failure.done), "changed": True},
        )
    except ApiaryError as refusal:
        fail(module, refusal, invocation={})
    warnings = [finding for report in reports for finding in report["findings"]]
    module.exit_json(**_outcome(reports), findings=warnings)


def _outcome(reports: list[dict[str, Any]]) -> dict[str, Any]:
    steps = "".join(f"{step}\n" for report in reports for step in report["steps"])
    diff = [entry for report in reports for entry in report["diff"]]
    return {
        "changed": any(report["changed"] for report in reports),
        "diff": diff + ([{"prepared": steps}] if steps else []),
        "resources": [report for report in reports if report["changed"] or report["findings"]],
        "invocation": {},
    }


if __name__ == "__main__":
    main()
