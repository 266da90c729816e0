# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The files of a telemetry plan, for the modules that put them in place."""

from __future__ import annotations

DOCUMENTATION = r"""
name: monitoring_files
short_description: The files of a telemetry plan
version_added: 0.1.0
author: The Apiary authors (@apiary)
description:
  - Gives texts by relative path as files below a directory, and those that were found there and
    are none of them as files that are to be gone.
positional: _input, directory, found
options:
  _input:
    description: Texts by relative path, as M(apiary.instinct.telemetry_plan) returns them.
    type: dict
    required: true
  directory:
    description: The directory on the host.
    type: path
    required: true
  found:
    description: Paths of files that the host has.
    type: list
    elements: path
    default: []
"""

EXAMPLES = r"""
files: "{{ decided.files | apiary.instinct.monitoring_files('/etc/prometheus/apiary', found) }}"
"""

RETURN = r"""
_value:
  description: >-
    Files, each with RV(ignore:path) and RV(ignore:content); what others name comes before them.
  type: list
  elements: dict
"""


def monitoring_files(files, directory, found=()):
    """Return what is to be there, the deepest first, and after it what is to be gone."""
    wanted = {f"{directory}/{path}": text for path, text in files.items()}
    order = sorted(wanted, key=lambda path: (-path.count("/"), path))
    return [
        *({"path": path, "content": wanted[path]} for path in order),
        *({"path": path} for path in sorted(found) if path not in wanted),
    ]


class FilterModule:
    """Filters of monitoring."""

    def filters(self):
        return {"monitoring_files": monitoring_files}
