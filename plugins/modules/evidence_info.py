#!/usr/bin/python
# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Collect what a host's tools and kernel say about its GPUs and its system."""

from __future__ import annotations

DOCUMENTATION = r"""
module: evidence_info
short_description: Collect what a host's tools and kernel say about its GPUs and its system
version_added: 0.1.0
description:
  - Runs C(rocm-smi), C(amd-smi) and C(lscpu), where they are installed, and reads the kernel's
    view of AMD GPUs, NUMA nodes and PCIe from sysfs and procfs.
  - Everything is returned as it was printed, with standard error, exit code and time; nothing is
    interpreted. The document has the schema V(apiary.evidence/v1); C(apiary topology) reads it.
  - None of the tools is required. Without them sysfs is enough.
  - Works without root; files that may not be read are listed under RV(evidence.unreadable).
author:
  - The Apiary authors (@apiary)
extends_documentation_fragment:
  - apiary.instinct.attributes.reads
options:
  scopes:
    description:
      - What to collect. V(gpu) is what the description says.
      - The others are what the roles of these names need, the host's release, kernel and command
        line among them; each is small. Passwords in addresses of repositories are left out.
    type: list
    elements: str
    choices:
      - gpu
      - rocm
      - tuning
      - weights
      - container
      - kubernetes
      - acceptance
      - router
      - telemetry
      - exports
      - engine
      - reboot
      - plans
    default: [gpu]
  sources:
    description:
      - What the scopes but V(gpu) stand for. The controller fills it in by O(scopes), so a task
        leaves it out.
    type: dict
    suboptions:
      commands:
        description: Forms of each command by its name; they are tried until one answers.
        type: dict
        default: {}
      files: {description: Patterns of files., type: list, elements: str, default: []}
      links: {description: Patterns of symbolic links., type: list, elements: str, default: []}
  programs:
    description: Paths of programs; each is run with C(--version), a command by its path.
    type: list
    elements: path
    default: []
"""

EXAMPLES = r"""
- name: Collect the host's evidence
  apiary.instinct.evidence_info:
  register: probe

- name: Collect what a whole host's plan needs
  apiary.instinct.evidence_info:
    scopes: [gpu, rocm, tuning, weights]
  become: true
  register: host

- name: Save it on the controller
  ansible.builtin.copy:
    content: "{{ probe.evidence | ansible.builtin.to_nice_json }}"
    dest: "evidence/{{ inventory_hostname }}.json"
    mode: "0644"
  delegate_to: localhost
"""

RETURN = r"""
evidence:
  description: The document V(apiary.evidence/v1).
  type: dict
  returned: success
  contains:
    schema:
      description: Always V(apiary.evidence/v1).
      type: str
      returned: success
      sample: apiary.evidence/v1
    host:
      description: The host's own name, without its domain.
      type: str
      returned: success
      sample: gpu-001
    collected_at:
      description: When the collection began, in UTC.
      type: str
      returned: success
      sample: "2026-11-21T10:39:00Z"
    collector: {description: Version of the collector., type: str, returned: success, sample: "3"}
    commands:
      description:
        - Each command by name, with C(argv), C(exit), C(stdout), C(stderr) and C(seconds).
        - Where it could not run, C(exit) is V(null) and C(error) says why.
      type: dict
      returned: success
    files: {description: Contents of files by absolute path., type: dict, returned: success}
    links: {description: Targets of symbolic links by absolute path., type: dict, returned: success}
    unreadable:
      description: Files that exist and could not be read, with the name of the error.
      type: dict
      returned: success
"""

from ansible.module_utils.basic import AnsibleModule

from ..module_utils.evidence.host import collect_host

SCOPES = (
    *("gpu", "rocm", "tuning", "weights", "container", "kubernetes", "acceptance", "router"),
    *("telemetry", "exports", "engine", "reboot", "plans"),
)
PATTERNS = {"type": "list", "elements": "str", "default": []}


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "scopes": {
                "type": "list",
                "elements": "str",
                "choices": list(SCOPES),
                "default": ["gpu"],
            },
            "sources": {
                "type": "dict",
                "options": {
                    "commands": {"type": "dict", "default": {}},
                    "files": PATTERNS,
                    "links": PATTERNS,
                },
            },
            "programs": {"type": "list", "elements": "path", "default": []},
        },
        supports_check_mode=True,
    )
    gpu, sources = "gpu" in module.params["scopes"], module.params["sources"] or {}
    programs = tuple(module.params["programs"])
    module.exit_json(changed=False, evidence=collect_host(gpu, sources, programs=programs))


if __name__ == "__main__":
    main()
