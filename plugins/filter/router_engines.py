# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The file with the engines' keys, put among a router's secret files."""

from __future__ import annotations

DOCUMENTATION = r"""
name: router_engines
short_description: A router's secret files, with the engines' keys in theirs
version_added: 0.1.0
author: The Apiary authors (@apiary)
description:
  - The file is decided on without its contents, so that no result has them.
positional: _input, keys
options:
  _input:
    description: A router's secret files.
    type: list
    elements: dict
    required: true
  keys:
    description: The engines' keys by deployment.
    type: dict
    required: true
"""

EXAMPLES = r"""
secrets: "{{ decided.secrets | apiary.instinct.router_engines(router_engine_keys) }}"
"""

RETURN = r"""
_value:
  description: The files.
  type: list
  elements: dict
"""

from ansible.errors import AnsibleFilterError

from ..plugin_utils.findings import ApiaryError
from ..plugin_utils.render.router_host import engines_map


def router_engines(files, keys):
    """Return the files with the keys in the one that they belong to."""
    try:
        own = engines_map({str(name): str(key) for name, key in keys.items()})
    except ApiaryError as refusal:
        raise AnsibleFilterError(str(refusal)) from None
    return [{**one, "content": own.content} if one["path"] == own.path else one for one in files]


class FilterModule:
    """Filters of a router."""

    def filters(self):
        return {"router_engines": router_engines}
