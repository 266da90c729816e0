#!/usr/bin/python
# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Say in one call what runs of several modules would change on a host."""

from __future__ import annotations

DOCUMENTATION = r"""
module: host_check
short_description: Say in one call what runs of several modules would change on a host
version_added: 0.1.0
description:
  - Asks the looking half of each named module what it would do with these arguments, as that module
    says it itself in check mode, and changes nothing.
  - M(apiary.instinct.survey) makes the steps from the plans of a host's concerns, so that a host
    that is as it should be costs one call rather than one for each task of each role.
  - A step that is refused, because a value can't be read or a repository does not answer, does not
    end the others; its RV(steps[].failure) tells why.
author:
  - The Apiary authors (@apiary)
attributes:
  check_mode:
    description: Can run in check mode and predict the changed status without modifying the target.
    support: full
    details: The module only looks.
  diff_mode:
    description: Will return details on what has changed, when in diff mode.
    support: none
    details: The diffs are in RV(steps), for nothing is changed here.
options:
  steps:
    description: What is asked, answered in this order.
    type: list
    elements: dict
    required: true
    suboptions:
      concern:
        description: The concern that the step belongs to.
        type: str
        required: true
      module:
        description:
          - The module of this collection; V(services) and V(user) go by the rules of
            M(ansible.builtin.systemd_service) and M(ansible.builtin.user).
        type: str
        required: true
        choices:
          - converge
          - host_files
          - live_settings
          - rocm_packages
          - rocm_repositories
          - services
          - user
      arguments:
        description: The arguments of that module.
        type: dict
        default: {}
  secrets:
    description: The values of secrets, by concern; they are not logged.
    type: dict
    default: {}
"""

EXAMPLES = r"""
- name: See what tuning would change
  apiary.instinct.host_check:
    steps:
      - concern: host_tuning
        module: live_settings
        arguments:
          settings:
            - path: /proc/sys/kernel/numa_balancing
              value: "0"
          remember: /var/lib/apiary/host_tuning.json
  become: true
  register: looked
"""

RETURN = r"""
steps:
  description: One answer for each step, in the same order.
  type: list
  elements: dict
  returned: success
  contains:
    concern:
      description: The concern, as given.
      type: str
      returned: success
      sample: host_tuning
    module:
      description: The module, as given.
      type: str
      returned: success
      sample: live_settings
    changed:
      description: Whether the module would change something.
      type: bool
      returned: success
      sample: true
    diff:
      description: The diffs of the module.
      type: list
      elements: dict
      returned: success
    steps:
      description: What would be done, where the module tells it in words.
      type: list
      elements: str
      returned: success
      sample: ["enable apiary-host-tuning.service"]
    warnings:
      description: What the module would warn of.
      type: list
      elements: str
      returned: success
      sample: []
    failure:
      description: Why the module would end with an error, or V(null).
      type: str
      returned: success
      sample: null
    findings:
      description: The same as findings, where the module has them.
      type: list
      elements: dict
      returned: success
      sample: []
"""

from ansible.module_utils.basic import AnsibleModule

from ..module_utils.host_check import LOOKS, check


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "steps": {
                "type": "list",
                "elements": "dict",
                "required": True,
                "options": {
                    "concern": {"type": "str", "required": True},
                    "module": {"type": "str", "required": True, "choices": sorted(LOOKS)},
                    "arguments": {"type": "dict", "default": {}},
                },
            },
            "secrets": {"type": "dict", "default": {}, "no_log": True},
        },
        supports_check_mode=True,
    )
    secrets = module.params["secrets"]
    steps = [check(module, step, secrets) for step in module.params["steps"]]
    # The arguments are all files of all roles: they are not sent back.
    module.exit_json(changed=False, steps=steps, invocation={})


if __name__ == "__main__":
    main()
