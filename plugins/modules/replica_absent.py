#!/usr/bin/python
# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Stop the replicas of a deployment and take away what Apiary wrote for them."""

from __future__ import annotations

DOCUMENTATION = r"""
module: replica_absent
short_description: Take a deployment away from a host
version_added: 0.1.0
description:
  - Stops and disables the replicas of a deployment, whatever plan they are from, and removes
    their units, documents, secrets and releases.
  - The supervisor and the slice go with the last deployment. Drop-ins of an administrator, the
    service user and, unless asked for, caches stay.
author:
  - The Apiary authors (@apiary)
extends_documentation_fragment:
  - apiary.instinct.attributes.applies
options:
  deployment:
    description: The name of the deployment.
    type: str
    required: true
  caches:
    description: Whether the caches of its replicas are removed, too.
    type: bool
    default: false
  root:
    description: The directory that holds the host's files.
    type: path
    default: /
"""

EXAMPLES = r"""
- name: Serve this model no longer
  apiary.instinct.replica_absent:
    deployment: qwen3-235b
"""

RETURN = r"""
stopped:
  description: Units that were, or in check mode would be, stopped and disabled.
  type: list
  elements: str
  returned: success
  sample: [apiary-qwen3-235b-0.service, apiary-qwen3-235b.target]
removed:
  description: Files and directories that were, or would be, removed.
  type: list
  elements: str
  returned: success
  sample: [/etc/systemd/system/apiary-qwen3-235b-0.service, /etc/apiary/qwen3-235b]
"""

import os
import shutil

from ansible.module_utils.basic import AnsibleModule

from ..module_utils.replicas import unit_absent
from ..module_utils.replicas.unit_apply import Applier


def main() -> None:
    module = AnsibleModule(argument_spec=unit_absent.ARGUMENTS, supports_check_mode=True)
    found = unit_absent.found_for(module)
    outcome = unit_absent.result(found)
    if outcome["changed"] and not module.check_mode:
        applier = Applier(module, outcome)
        if found.units:
            # A generated unit can be stopped only; its file, which goes, is what enables it.
            applier.must("stop", "--", *found.units)
            applier.systemctl(["disable", "--", *found.units])
        for path in found.paths:
            if os.path.isdir(path) and not os.path.islink(path):
                shutil.rmtree(path)
            else:
                os.unlink(path)
        applier.must("daemon-reload")
        if found.units:
            applier.systemctl(["reset-failed", "--", *found.units])
    module.exit_json(**outcome)


if __name__ == "__main__":
    main()
