#!/usr/bin/python
# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Verify models on a host against their manifests."""

from __future__ import annotations

DOCUMENTATION = r"""
module: weights_info
short_description: Verify models on a host against their manifests
version_added: 0.1.0
description:
  - Looks at every file of a model directory and says which are missing, of another size, or of
    another hash than the manifest has. What is wrong is returned, and is no failure.
  - Sizes cost next to nothing. Hashes read everything, several files at once; 700 GB take minutes.
    C(/usr/libexec/apiary/weights-check) does the same by hand, and tells how far it is.
author:
  - The Apiary authors (@apiary)
extends_documentation_fragment:
  - apiary.instinct.attributes.reads
options:
  directories:
    description: Model directories; without any, those of this host by C(/etc/apiary/weights.json).
    type: list
    elements: path
    default: []
  level:
    description:
      - How closely to look. V(touched) hashes those files whose time is not the manifest's.
    type: str
    choices: [sizes, touched, hashes]
    default: sizes
  parallel:
    description: How many files are hashed at once.
    type: int
    default: 4
  manifest_required:
    description: Whether a directory without a manifest is an error rather than a warning.
    type: bool
    default: false
"""

EXAMPLES = r"""
- name: Verify the hashes of what is about to serve
  apiary.instinct.weights_info:
    directories: [/srv/models/Qwen/Qwen3-235B-A22B-Instruct-2507-FP8/current]
    level: hashes
  register: weights
"""

RETURN = r"""
models:
  description:
    - One entry a model, with C(directory), C(repository), C(revision), C(files), C(total_bytes),
      C(level), C(deviations) and C(finding).
    - A deviation has C(path), C(kind) (missing, size, hash, unreadable), C(found) and C(expected).
  returned: success
  type: list
  elements: dict
findings:
  description: What is wrong, one finding a model at most.
  returned: success
  type: list
  elements: dict
"""

from ansible.module_utils.basic import AnsibleModule

from ..module_utils.weights import looks as weights_looks


def main() -> None:
    module = AnsibleModule(argument_spec=weights_looks.ARGUMENTS, supports_check_mode=True)
    module.exit_json(**weights_looks.look(module.params))


if __name__ == "__main__":
    main()
