#!/usr/bin/python
# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Keep what a host serves as a release, so that it can go back to it."""

from __future__ import annotations

DOCUMENTATION = r"""
module: replica_release
short_description: Keep what a host serves as a release
version_added: 0.1.0
description:
  - Records all files that a plan was rendered to, with their modes and what they serve, below
    C(/var/lib/apiary/releases). A release is there as a whole or not at all.
  - The links C(current) and C(previous) are switched by rename. Files of the same content are the
    same release, so a second run changes nothing.
  - The values of secrets are not among rendered files, so a release has none; going back to one
    serves with the secrets that the host has now.
author:
  - The Apiary authors (@apiary)
extends_documentation_fragment:
  - apiary.instinct.attributes.applies
options:
  deployment:
    description: The deployment's name.
    type: str
    required: true
  files:
    description:
      - All files of the release, as M(apiary.instinct.replica_units) takes them.
      - Each needs C(path) and C(content); everything else is kept and given back as it is.
    type: list
    elements: dict
  units:
    description: What M(apiary.instinct.replica_units) needs besides the files.
    type: dict
    default: {}
  release:
    description:
      - Make this kept release the current one instead of recording another, by its id or the hash
        in it.
    type: str
  by:
    description: Who applied it, for the record.
    type: str
    default: ""
  keep:
    description: How many releases stay; those that the links name stay in any case.
    type: int
    default: 5
  directory:
    description: Where releases are kept.
    type: path
    default: /var/lib/apiary/releases
"""

EXAMPLES = r"""
- name: Keep the release
  apiary.instinct.replica_release:
    deployment: "{{ replicas_plan.deployment.name }}"
    files: "{{ replicas_plan | apiary.instinct.systemd_files }}"
    units:
      services: "{{ replicas_plan.replicas | map(attribute='unit') }}"
      target: "{{ replicas_plan.target }}"
      stale_pattern: "apiary-qwen3-235b-[0-9]+\\.service"

- name: Say that the host is back on an earlier one
  apiary.instinct.replica_release:
    deployment: qwen3-235b
    release: 20260722T101500Z-0f3a9c21
"""

RETURN = r"""
current:
  description: The id of the release that is, or in check mode would be, current.
  type: str
  returned: success
  sample: 20260722T101500Z-0f3a9c21
previous:
  description: The id of the one before.
  type: str
  returned: success
removed:
  description: Releases that are, or would be, kept no longer.
  type: list
  elements: str
  returned: success
"""

import os

from ansible.module_utils.basic import AnsibleModule

from ..module_utils.replicas import releases
from ..module_utils.replicas.release_looks import ARGUMENTS, look, unwritable


def apply(directory: str, shelf, change, told, files) -> None:
    """Write, link, then clear, so that an interruption leaves a shelf that can be read."""
    os.umask(0o077)
    releases.clear(directory, change.unfinished)
    if change.create:
        releases.write_release(directory, told, files)
    if change.previous != shelf.previous:
        releases.switch(directory, "previous", change.previous)
    if change.current != shelf.current:
        releases.switch(directory, "current", change.current)
    releases.clear(directory, change.removed)


def main() -> None:
    module = AnsibleModule(
        argument_spec=ARGUMENTS,
        required_one_of=[("files", "release")],
        mutually_exclusive=[("files", "release")],
        supports_check_mode=True,
    )
    seen = look(module)
    if not module.check_mode:
        try:
            apply(seen.directory, seen.shelf, seen.change, seen.told, module.params["files"] or [])
        except releases.ReleaseError as refusal:
            module.fail_json(msg=str(refusal))
        except OSError as failure:
            unwritable(module, failure, seen.directory)
    module.exit_json(**seen.outcome)


if __name__ == "__main__":
    main()
