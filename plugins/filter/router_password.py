# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The file with the password of routers that share an address."""

from __future__ import annotations

DOCUMENTATION = r"""
name: router_password
short_description: The file with the password of routers that share an address
version_added: 0.1.0
author: The Apiary authors (@apiary)
description:
  - Checks the password and returns keepalived's file with it.
positional: _input
options:
  _input:
    description: The password; nothing for none.
    type: str
    required: true
"""

EXAMPLES = r"""
secrets: "{{ router_virtual_password | apiary.instinct.router_password }}"
"""

RETURN = r"""
_value:
  description: At most one file, with RV(ignore:path), RV(ignore:mode) and RV(ignore:content).
  type: list
  elements: dict
"""

from ansible.errors import AnsibleFilterError

from ..plugin_utils.findings import ApiaryError
from ..plugin_utils.render.keepalived import password_file


def router_password(password):
    """Return the file as a list, which is empty without a password."""
    try:
        files = [password_file(str(password))] if password else []
    except ApiaryError as refusal:
        raise AnsibleFilterError(str(refusal)) from None
    return [{"path": one.path, "mode": one.mode, "content": one.content} for one in files]


class FilterModule:
    """Filters of a router."""

    def filters(self):
        return {"router_password": router_password}
