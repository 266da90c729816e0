# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The systemd files of a plan, for the replica_units module."""

from __future__ import annotations

DOCUMENTATION = r"""
name: systemd_files
short_description: The systemd files of a plan
version_added: 0.1.0
author: The Apiary authors (@apiary)
description:
  - Renders a plan to the files of a systemd host, with path, mode and content.
positional: _input
options:
  _input:
    description: A plan, as P(apiary.instinct.plan#module) returns it.
    type: dict
    required: true
"""

EXAMPLES = r"""
files: "{{ replicas_plan | apiary.instinct.systemd_files }}"
"""

RETURN = r"""
_value:
  description: Files, each with RV(ignore:path), RV(ignore:mode) and RV(ignore:content).
  type: list
  elements: dict
"""

from ansible.errors import AnsibleFilterError

from ..plugin_utils.documents import to_document
from ..plugin_utils.findings import ApiaryError
from ..plugin_utils.plan.check import plan_of
from ..plugin_utils.render.systemd import render_systemd


def systemd_files(plan):
    """Return the rendered files of a plan document."""
    try:
        return to_document(render_systemd(plan_of(plan, "replicas_plan")))
    except ApiaryError as refusal:
        raise AnsibleFilterError(str(refusal)) from refusal


class FilterModule:
    """Render filters."""

    def filters(self):
        return {"systemd_files": systemd_files}
