# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""API keys as far as they leave the controller: their digests."""

from __future__ import annotations

DOCUMENTATION = r"""
name: router_keys
short_description: The digests of API keys
version_added: 0.1.0
author: The Apiary authors (@apiary)
description:
  - Turns API keys into what a router needs of them, which is not the keys.
positional: _input
options:
  _input:
    description:
      - Keys by the name that logs have for them; a text, or a mapping with C(key) and
        C(requests_per_minute).
    type: dict
    required: true
"""

EXAMPLES = r"""
keys: "{{ router_api_keys | apiary.instinct.router_keys }}"
"""

RETURN = r"""
_value:
  description: >-
    A mapping for each key: RV(ignore:name), RV(ignore:sha256), RV(ignore:requests_per_minute).
  type: list
  elements: dict
"""

from ansible.errors import AnsibleFilterError

from ..plugin_utils.documents import to_document
from ..plugin_utils.findings import ApiaryError
from ..plugin_utils.router.fleet import api_keys


def router_keys(keys):
    """Return names, digests and rates of API keys."""
    try:
        return to_document(api_keys(keys))
    except ApiaryError as refusal:
        raise AnsibleFilterError(str(refusal)) from None


class FilterModule:
    """Filters of a router."""

    def filters(self):
        return {"router_keys": router_keys}
