# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The file with what lets a router's spans into their collector."""

from __future__ import annotations

DOCUMENTATION = r"""
name: router_trace_headers
short_description: The secret file of a router's spans
version_added: 0.1.0
author: The Apiary authors (@apiary)
description:
  - Refuses headers that HTTP does not take, without telling their values.
options:
  _input:
    description: Values of headers by name.
    type: dict
    required: true
"""

EXAMPLES = r"""
secrets: "{{ router_tracing_headers | apiary.instinct.router_trace_headers }}"
"""

RETURN = r"""
_value:
  description: The file.
  type: list
  elements: dict
"""

from ansible.errors import AnsibleFilterError

from ..plugin_utils.findings import ApiaryError
from ..plugin_utils.render.router_traces import headers_file


def router_trace_headers(headers):
    """Return the file, in a list as secrets are."""
    try:
        one = headers_file({str(name): str(value) for name, value in headers.items()})
    except ApiaryError as refusal:
        raise AnsibleFilterError(str(refusal)) from None
    return [{"path": one.path, "mode": one.mode, "content": one.content}]


class FilterModule:
    """Filters of a router."""

    def filters(self):
        return {"router_trace_headers": router_trace_headers}
