#!/usr/bin/python
# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Put the secrets of a deployment on a host, for systemd to hand to its replicas."""

from __future__ import annotations

DOCUMENTATION = r"""
module: replica_secrets
short_description: Put the secrets of a deployment on a host
version_added: 0.1.0
description:
  - Writes a file for each secret, readable by root alone, from where C(LoadCredential=) of a
    replica's unit takes it. Files of secrets that the deployment no longer names go.
  - No value shows in a diff, a log, a process list or a result.
  - Nothing is changed where a secret has no value and no file, or a value has no secret.
author:
  - The Apiary authors (@apiary)
extends_documentation_fragment:
  - apiary.instinct.attributes.applies
options:
  directory:
    description: Where the files lie; only root may look into it.
    type: path
    required: true
  names:
    description: The secrets that the deployment names.
    type: list
    elements: str
    required: true
  values:
    description: A value for each secret; one without keeps the file that the host has.
    type: dict
    default: {}
  services:
    description: The services that get the secrets.
    type: list
    elements: str
    default: []
  restart:
    description:
      - Whether services that are up may be interrupted for another value.
      - Without it a run with one fails before it writes anything, and check mode warns.
    type: bool
    default: true
"""

EXAMPLES = r"""
- name: Give the replicas their keys
  apiary.instinct.replica_secrets:
    directory: /etc/apiary/qwen3-235b/credentials
    names: [VLLM_API_KEY]
    values: "{{ replicas_secrets }}"
    services: "{{ replicas_plan.replicas | map(attribute='unit') }}"
"""

RETURN = r"""
written:
  description: Files that were, or in check mode would be, written.
  type: list
  elements: str
  returned: success
  sample: [/etc/apiary/qwen3-235b/credentials/VLLM_API_KEY]
removed:
  description: Files that were, or would be, removed.
  type: list
  elements: str
  returned: success
  sample: []
outdated:
  description: Services that run with what was there before, for M(apiary.instinct.replica_units).
  type: list
  elements: str
  returned: success
  sample: [apiary-qwen3-235b-0.service]
"""

import os

from ansible.module_utils.basic import AnsibleModule

from ..module_utils.replicas.looks import SECRETS, look_at_secrets
from ..module_utils.replicas.unit_apply import mark_due


def main() -> None:
    module = AnsibleModule(argument_spec=SECRETS, supports_check_mode=True)
    seen = look_at_secrets(module)
    if not module.check_mode:
        os.umask(0o022)
        for directory in seen.directories:
            os.makedirs(directory.path, mode=int(directory.mode_after, 8), exist_ok=True)
            module.set_mode_if_different(directory.path, directory.mode_after, False)
        for name in seen.outcome["outdated"]:
            mark_due(name, seen.states[name])
        for item in seen.changed:
            if item.after is None:
                os.unlink(item.path)
            seen.applier.write(item)
    module.exit_json(**seen.outcome)


if __name__ == "__main__":
    main()
