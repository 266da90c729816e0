# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Findings as Ansible shows them: what every action plugin of ours does with them."""

from __future__ import annotations

from collections.abc import Iterable

from ansible.errors import AnsibleActionFail
from ansible.utils.display import Display

from .documents import to_document
from .files import findings_here
from .findings import ApiaryError, Finding

DISPLAY = Display()


def refused(refusal: ApiaryError) -> AnsibleActionFail:
    """Return what ends a task, to be raised from None: ansible-core prints a chain of causes."""
    found = findings_here(refusal.findings)
    text = "\n".join(str(finding) for finding in found)
    return AnsibleActionFail(text, result={"findings": to_document(found)})


def warn(findings: Iterable[Finding]) -> None:
    """Show the warnings among findings."""
    for finding in findings_here(findings):
        if finding.severity == "warning":
            DISPLAY.warning(str(finding))
