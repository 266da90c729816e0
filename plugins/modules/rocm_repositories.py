#!/usr/bin/python
# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Bring package repositories to a host, each proven before its files are written."""

from __future__ import annotations

DOCUMENTATION = r"""
module: rocm_repositories
short_description: Bring package repositories to a host, each proven before its files are written
version_added: 0.1.0
description:
  - Fetches the signing keys and keeps only the one with the fingerprint asked for; a file that
    lacks it, or is no key, ends the module.
  - Then reads every repository in a temporary directory, with those keys, and looks for the
    packages that will be asked of it. Only when all of that went well are keys and files written.
  - Where the package manager then refuses all its sources together, as apt does when another file
    names the same repository with another key, the earlier files are put back.
  - What is as it should be is neither fetched nor proven again.
author:
  - The Apiary authors (@apiary)
attributes:
  check_mode:
    description: Can predict the changed status without modifying the target.
    support: full
    details: Keys and repositories are read in check mode, too, so that what is wrong shows there.
  diff_mode:
    description: Will return details on what has changed.
    support: full
    details: Of a key the fingerprint is shown. Passwords in addresses are left out.
options:
  manager:
    description: The host's package manager.
    type: str
    choices: [apt, dnf]
    required: true
  keys:
    description: Signing keys.
    type: list
    elements: dict
    default: []
    suboptions:
      url:
        description: Where the key is fetched from, an address or an absolute path on the host.
        type: str
        required: true
      path:
        description: The file it goes to.
        type: path
        required: true
      fingerprint:
        description: The primary key's fingerprint, 40 hexadecimal digits.
        type: str
        required: true
      format:
        description: What the file holds, V(binary) for apt.
        type: str
        choices: [armored, binary]
        default: binary
  files:
    description: The files, in the order in which they are written.
    type: list
    elements: dict
    default: []
    suboptions:
      path:
        description: Absolute path.
        type: path
        required: true
      mode:
        description: Octal mode, four digits.
        type: str
        default: "0644"
      content:
        description: The whole text; without it the file is to be gone.
        type: str
  packages:
    description: Packages that the repositories have to offer.
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
        description: What the package manager will be asked for; not used here.
        type: str
"""

EXAMPLES = r"""
- name: Bring AMD's driver repository
  apiary.instinct.rocm_repositories:
    manager: apt
    keys:
      - url: https://repo.radeon.com/rocm/rocm.gpg.key
        path: /etc/apt/keyrings/rocm.gpg
        fingerprint: "{{ rocm_key_fingerprint }}"
    files:
      - path: /etc/apt/sources.list.d/amdgpu.sources
        content: |
          Types: deb
          URIs: https://repo.radeon.com/amdgpu/30.30.4/ubuntu
          Suites: noble
          Components: main
          Signed-By: /etc/apt/keyrings/rocm.gpg
    packages:
      - name: amdgpu-dkms
        version: "1:6.16.13.30300400-*"
"""

RETURN = r"""
written:
  description: Files that were, or in check mode would be, written.
  type: list
  elements: str
  returned: success
  sample: [/etc/apt/keyrings/rocm.gpg, /etc/apt/sources.list.d/amdgpu.sources]
removed:
  description: Files that were, or would be, removed.
  type: list
  elements: str
  returned: success
  sample: []
findings:
  description: What is wrong with a key or repository.
  type: list
  elements: dict
  returned: failure
"""

from ansible.module_utils.basic import AnsibleModule

from ..module_utils.packages.managers import Refusal, fail
from ..module_utils.packages.repositories import ARGUMENTS, look, unwritable


def main() -> None:
    module = AnsibleModule(argument_spec=ARGUMENTS, supports_check_mode=True)
    work = look(module)
    if not module.check_mode:
        try:
            work.write()
        except Refusal as refusal:
            fail(module, [refusal])
        except OSError as failure:
            fail(module, [unwritable(failure)])
    module.exit_json(**work.result())


if __name__ == "__main__":
    main()
