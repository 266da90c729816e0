#!/usr/bin/python
# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Documentation of the survey action, which asks the host twice and decides on the controller."""

from __future__ import annotations

DOCUMENTATION = r"""
module: survey
short_description: Look at a host once, and say what a run of the site playbook would change there
version_added: 0.1.0
description:
  - Gathers the host's evidence in one module call, decides every concern on the controller by the
    variables of its role, and compares all of that with the host in a second call, by what the
    roles' own modules do in check mode. Changes nothing on the host.
  - A concern is settled where a run of its role would change nothing; C(playbooks/site.yml) does
    not run such a role.
  - The roles' variables are those of the host, with the defaults of the role below them, checked
    against its argument specification.
  - What is served is decided from C(apiary_deployment) or C(apiary_deployments), C(apiary_keep) and
    C(apiary_remove_other_deployments), as P(apiary.instinct.plan#module) does.
  - In check mode nothing is written to O(dest). What would change is in survey.json.
author:
  - The Apiary authors (@apiary)
extends_documentation_fragment:
  - apiary.instinct.attributes.decides
options:
  concerns:
    description:
      - What is looked at; else all of C(apiary_concerns), and only then C(survey.json) is written.
      - Empty, only the evidence of GPUs and of the plans that the host has is gathered.
    type: list
    elements: str
    choices: [rocm, host_tuning, weight_cache, container_runtime, device_plugin, reboot, replicas]
  evidence:
    description:
      - The path of evidence that an earlier call has gathered, where that could not be judged alone
        (RV(waiting)).
    type: path
  dest:
    description:
      - A directory on the controller for C(survey.json), C(evidence.json), C(topology.json), and,
        where O(save_plans) is set and the host serves them already, the plans and rendered files.
    type: path
  save_plans:
    description: Whether plans are kept, which routers then follow.
    type: bool
    default: true
  tolerant:
    description:
      - Whether a host that can't be reached, or whose variables are wrong, has that in its survey
        rather than ending its run.
    type: bool
    default: false
"""

EXAMPLES = r"""
- name: See what would change
  apiary.instinct.survey:
    dest: "artifacts/{{ inventory_hostname }}"
  become: true
  register: seen

- name: Tune the host, if that would change anything
  ansible.builtin.include_role:
    name: apiary.instinct.host_tuning
  when: "'host_tuning' in seen.due"
"""

RETURN = r"""
due:
  description:
    - The concerns whose roles have to run, in the order in which they run - those that are not
      settled and, but in check mode, what comes after one of these without another look.
  type: list
  elements: str
  returned: success
  sample: [host_tuning, replicas]
settled:
  description: Each concern with whether it is settled; C(replicas:NAME) is one of a deployment.
  type: dict
  returned: unless waiting
  sample: {rocm: true, "replicas:qwen3-235b": false}
reached:
  description: Whether the host answered.
  type: bool
  returned: unless waiting
  sample: true
evidence:
  description:
    - The path of the host's evidence on the controller. In check mode, or without O(dest), it is
      there as long as the run.
  type: str
  returned: success
  sample: /srv/fleet/artifacts/gpu-001/evidence.json
waiting:
  description:
    - Whether replicas span hosts, so that the hosts' evidence is judged together. Call again with
      O(evidence) once all of them have told theirs.
  type: bool
  returned: success
  sample: false
summary:
  description: What is served, a line each, as people are shown it.
  type: list
  elements: str
  returned: unless waiting
objects:
  description: A sha256 of what a Kubernetes node asks of its cluster, or V(null).
  type: str
  returned: unless waiting
findings:
  description: What is wrong with the variables.
  type: list
  elements: dict
  returned: failure
"""
