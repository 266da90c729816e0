#!/usr/bin/python
# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Install the units of a deployment and have them serve."""

from __future__ import annotations

DOCUMENTATION = r"""
module: replica_units
short_description: Install the units of a deployment and have them serve
version_added: 0.1.0
description:
  - Writes the files that a plan was rendered to, removes units that the plan no longer has,
    enables the others and starts what does not run.
  - A running replica is restarted only when a file of its own changes, one after the other;
    replicas that do not run start together. Where replicas exchange devices or change their
    runtime, all that change are stopped first.
  - Returns when every replica answers, because its unit's start job ends only then.
author:
  - The Apiary authors (@apiary)
extends_documentation_fragment:
  - apiary.instinct.attributes.applies
options:
  files:
    description: Files to be there, as P(apiary.instinct.systemd_files#filter) gives them.
    type: list
    elements: dict
    required: true
    suboptions:
      path:
        description: Absolute path.
        type: path
        required: true
      mode:
        description: Octal mode, four digits.
        type: str
        required: true
      content:
        description: The whole text.
        type: str
        required: true
      unit:
        description: The replica that must start anew when the file changes.
        type: str
  services:
    description: The replicas' services, in start order; each is among O(files).
    type: list
    elements: str
    required: true
  target:
    description: The target that holds the services.
    type: str
    required: true
  stale_pattern:
    description:
      - A regular expression for the whole name of units of this deployment.
      - Units that match and are not wanted are stopped and removed.
    type: str
    required: true
  only:
    description:
      - Services among O(services) to touch, for updates that roll over the replicas of a host.
      - Files of other replicas, O(target) and the plan's copy are left to a later run without it,
        and nothing is removed.
    type: list
    elements: str
  outdated:
    description:
      - Services that have to start anew for another reason than their files, as
        RV(apiary.instinct.replica_secrets#module:outdated) names them.
    type: list
    elements: str
    default: []
  restart:
    description:
      - Whether replicas that serve may be interrupted for a change of theirs.
      - Without it a run that would restart, stop or remove one that is up fails before it writes
        anything, and check mode warns.
    type: bool
    default: true
  start:
    description:
      - Whether replicas that do not run are started. Without it a deployment that was stopped on
        purpose stays so, and its files are as they should be when somebody starts it.
    type: bool
    default: true
  unit_directory:
    description: Where administrators' units live.
    type: path
    default: /etc/systemd/system
  quadlet_directory:
    description: Where Podman's generator reads units of containers from.
    type: path
    default: /etc/containers/systemd
"""

EXAMPLES = r"""
- name: Serve what the plan says
  apiary.instinct.replica_units:
    files: "{{ replicas_plan | apiary.instinct.systemd_files }}"
    services: "{{ replicas_plan.replicas | map(attribute='unit') }}"
    target: "{{ replicas_plan.target }}"
    stale_pattern: "apiary-qwen3-235b-[0-9]+\\.service"
"""

RETURN = r"""
written:
  description: Files that were, or in check mode would be, written.
  type: list
  elements: str
  returned: success
  sample: [/etc/systemd/system/apiary-qwen3-235b-0.service]
started:
  description: Units that were, or would be, started.
  type: list
  elements: str
  returned: success
  sample: [apiary-qwen3-235b-0.service]
restarted:
  description: Serving replicas that were, or would be, restarted for what changed of theirs.
  type: list
  elements: str
  returned: success
  sample: []
removed:
  description: Units of earlier plans that were, or would be, stopped and removed.
  type: list
  elements: str
  returned: success
  sample: []
enabled:
  description: Units that were, or would be, enabled.
  type: list
  elements: str
  returned: success
  sample: []
"""

from ansible.module_utils.basic import AnsibleModule

from ..module_utils.replicas.looks import UNITS, look_at_units


def main() -> None:
    module = AnsibleModule(argument_spec=UNITS, supports_check_mode=True)
    seen = look_at_units(module)
    if not module.check_mode:
        seen.applier.apply(seen.directories, seen.files, seen.changes, seen.states)
    module.exit_json(**seen.outcome)


if __name__ == "__main__":
    main()
