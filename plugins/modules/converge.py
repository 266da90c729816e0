#!/usr/bin/python
# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Bring a host to a list of resources."""

from __future__ import annotations

import os
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ..module_utils.finding import ApiaryError, fail
from ..module_utils.resources.converge import Aborted, apply_all, inspect_all, items
from ..module_utils.resources.types import Host


class _Quiet(AnsibleModule):
    """A module whose arguments, all files of a role, are not written to the host's journal."""

    def _log_invocation(self) -> None:
        pass


def main() -> None:
    module = _Quiet(
        argument_spec={
            "resources": {"type": "list", "elements": "dict", "required": True},
            "secrets": {"type": "dict", "default": {}, "no_log": True},
        },
        supports_check_mode=True,
    )
    secrets = module.params["secrets"]
    # Directories of the services' files are for their users, whatever the login's umask is.
    os.umask(0o022)
    try:
        checked = items(module.params["resources"])
        host = Host(module, secrets)
        reports, refusals = inspect_all(host, checked)
        if refusals:
            outcome = _outcome(reports)
            outcome["changed"] = outcome["changed"] and module.check_mode
            fail(module, *refusals, **outcome)
        if not module.check_mode and any(report["changed"] for report in reports):
            reports = apply_all(Host(module, secrets, memo=host.memo), checked)
    except Aborted as failure:
        changed = [report["resource"] for report in failure.done if report["changed"]]
        fail(
            module,
            failure,
            note=f"  changed before: {', '.join(changed) or 'nothing'}\n"
            f"  not tried: {', '.join(failure.not_tried) or 'nothing'}",
            failed_resource=failure.resource,
            not_tried=failure.not_tried,
            # A change that failed may have been made in part.
            **{**_outcome(failure.done), "changed": True},
        )
    except ApiaryError as refusal:
        fail(module, refusal, invocation={})
    warnings = [finding for report in reports for finding in report["findings"]]
    module.exit_json(**_outcome(reports), findings=warnings)


def _outcome(reports: list[dict[str, Any]]) -> dict[str, Any]:
    steps = "".join(f"{step}\n" for report in reports for step in report["steps"])
    diff = [entry for report in reports for entry in report["diff"]]
    return {
        "changed": any(report["changed"] for report in reports),
        "diff": diff + ([{"prepared": steps}] if steps else []),
        "resources": [report for report in reports if report["changed"] or report["findings"]],
        "invocation": {},
    }


if __name__ == "__main__":
    main()
