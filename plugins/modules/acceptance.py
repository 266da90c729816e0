#!/usr/bin/python
# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Documentation of the acceptance action, which runs on the controller."""

from __future__ import annotations

DOCUMENTATION = r"""
module: acceptance
short_description: See whether a host is what its settings say
version_added: 0.1.0
description:
  - Joins the checks of the roles' plans, decided on fresh evidence, with those of the GPUs, their
    links and firmware, the host's memory, the kernel's log and the replicas. Judges on the
    controller and changes nothing on the host.
  - Where replicas run, or O(tests) or O(nfs_throughput) ask for it, it has the host measured once
    more by M(apiary.instinct.acceptance_probe). What would disturb those who use the host is
    refused (C(ACCEPT-BUSY)); a program that is not installed is skipped with that reason.
  - Does not fail by itself; RV(accepted) says whether the host is right.
author:
  - The Apiary authors (@apiary)
extends_documentation_fragment:
  - apiary.instinct.attributes.decides
options:
  evidence:
    description:
      - The host's evidence of the scopes V(gpu) and V(acceptance), as
        M(apiary.instinct.evidence_info) returns it; without it, the host is asked.
    type: dict
  concerns:
    description:
      - Roles whose work is checked, too, each by the options that the host's variables give it,
        as the role itself decides. What M(apiary.instinct.converge) would change of its resources
        is a check that fails (C(ACCEPT-DRIFT)).
    type: list
    elements: str
    choices: [rocm, host_tuning, weight_cache, container_runtime, device_plugin]
    default: []
  gpus:
    description: How many GPUs the host is to have; without it, as many as its board carries.
    type: int
  strict:
    description: Whether a warning, too, means that the host is not accepted.
    type: bool
    default: false
  memory_gib:
    description: The memory the host is to have; without it, what AMD asks for beside its GPUs.
    type: float
  versions:
    description:
      - Versions the host is to have, by C(driver), C(rocm), C(kernel) and C(bios); a pattern such
        as V(6.16.*) stands for several.
    type: dict
    default: {}
  tests:
    description:
      - Programs to run that load the GPUs. They are judged by AMD's thresholds, and refused while
        anything serves on the host.
    type: list
    elements: str
    choices: [rccl, transferbench, rvs]
    default: []
  tests_seconds:
    description: After which time each run of a program is ended.
    type: int
    default: 900
  nfs_throughput:
    description: Whether to measure how fast the host reads its weights past the page cache.
    type: bool
    default: false
  nfs_minimum: {description: "How many MB/s that is to be; without it, V(2000).", type: float}
  nfs_while_serving:
    description: Whether to read while replicas serve, who share the network.
    type: bool
    default: false
  dest:
    description: A directory on the controller where the document is saved, except in check mode.
    type: path
"""

EXAMPLES = r"""
- name: See whether the host is right
  apiary.instinct.acceptance:
    concerns: [rocm, host_tuning]
    dest: "artifacts/{{ inventory_hostname }}"
  register: acceptance
"""

RETURN = r"""
acceptance: {description: The document V(apiary.acceptance/v1)., type: dict, returned: success}
accepted: {description: Whether no check of severity error fails., type: bool, returned: success}
findings:
  description: What a person should know, errors first.
  type: list
  elements: dict
  returned: success
summary:
  description: The same in lines for a person.
  type: list
  elements: str
  returned: success
"""
