#!/usr/bin/python
# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Repair, remove, install and hold packages, with whatever package manager the host has."""

from __future__ import annotations

DOCUMENTATION = r"""
module: rocm_packages
short_description: Repair, remove, install and hold the packages of a ROCm plan
version_added: 0.1.0
description:
  - Does what the plan of the role P(apiary.instinct.rocm#role) lists, in this order - O(repair),
    O(enable), O(unhold), O(remove), O(install) stage by stage, O(dkms), O(initramfs), O(hold).
    Empty lists do nothing.
  - Before anything is removed or installed, every package asked for is looked up in what the
    repositories offer; one that can't be had ends the module with the versions that can.
  - A repair that does not succeed is tried again after the first stage, because what it lacks may
    be in there, the kernel's headers for one.
  - Where a build of the kernel module fails, the last lines of its C(make.log) are told.
author:
  - The Apiary authors (@apiary)
attributes:
  check_mode:
    description: Can predict the changed status without modifying the target.
    support: full
    details: Says which commands would run; the lists come from a plan made of the host's evidence.
  diff_mode:
    description: Will return details on what has changed.
    support: full
    details: The diff is the list of commands.
options:
  manager:
    description: The host's package manager.
    type: str
    choices: [apt, dnf]
    required: true
  packages:
    description: Name and version of what O(install) asks for; others are installed in any version.
    type: list
    elements: dict
    default: []
    suboptions:
      name:
        description: The package's name.
        type: str
        required: true
      version:
        description: A glob that the version has to match; without it any will do.
        type: str
      spec:
        description: How O(install) names it.
        type: str
        required: true
  repair:
    description: Commands that finish interrupted work.
    type: list
    elements: list
    default: []
  enable:
    description: Commands that make the distribution's own optional repositories known.
    type: list
    elements: list
    default: []
  unhold:
    description: Packages whose hold ends.
    type: list
    elements: str
    default: []
  remove:
    description: Packages to remove.
    type: list
    elements: str
    default: []
  install:
    description: Packages to install, in stages.
    type: list
    elements: list
    default: []
  dkms:
    description: Commands that build the kernel module for further kernels.
    type: list
    elements: list
    default: []
  initramfs:
    description: The command that makes the initial file system anew.
    type: list
    elements: str
    default: []
  hold:
    description: Packages to hold.
    type: list
    elements: str
    default: []
  optional:
    description:
      - What is done for kernels whose packages repositories need not have any more.
      - Packages come with the first stage of O(install); an entry of which one can't be had is
        left out with a warning.
    type: list
    elements: dict
    default: []
    suboptions:
      kernel:
        description: The kernel's release.
        type: str
        required: true
      packages:
        description: Packages to install.
        type: list
        elements: str
        required: true
      dkms:
        description: Commands that build the kernel module for it.
        type: list
        elements: list
        default: []
      initramfs:
        description: The command that makes the initial file system anew.
        type: list
        elements: str
"""

EXAMPLES = r"""
- name: Install the driver's packages
  apiary.instinct.rocm_packages:
    manager: apt
    repair:
      - [dpkg, --configure, -a]
    packages:
      - name: amdgpu-dkms
        version: "1:6.16.13.30300400-*"
        spec: "amdgpu-dkms=1:6.16.13.30300400-*"
    install:
      - [linux-headers-6.8.0-31-generic]
      - ["amdgpu-dkms=1:6.16.13.30300400-*"]
    hold: [amdgpu-dkms]
"""

RETURN = r"""
steps:
  description: The commands that were, or in check mode would be, run.
  type: list
  elements: str
  returned: success
  sample: ["dpkg --configure -a", "apt-mark hold amdgpu-dkms"]
lacking:
  description: Packages of O(optional) that no repository has.
  type: list
  elements: str
  returned: success
  sample: [linux-headers-6.8.0-31-generic]
findings:
  description: What could not be done, and why.
  type: list
  elements: dict
  returned: failure
"""

from ansible.module_utils.basic import AnsibleModule

from ..module_utils.packages.managers import Refusal, fail
from ..module_utils.packages.transaction import ARGUMENTS, look


def main() -> None:
    module = AnsibleModule(argument_spec=ARGUMENTS, supports_check_mode=True)
    work, outcome = look(module)
    if not module.check_mode:
        try:
            work.apply()
        except Refusal as refusal:
            fail(module, [refusal])
    for name in outcome["lacking"]:
        module.warn(f"no repository has {name}: its kernel may boot without the driver")
    module.exit_json(**outcome)


if __name__ == "__main__":
    main()
