# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a run of several modules would do on this host, each asked by its own looking half."""

from __future__ import annotations

from typing import Any, Callable, cast

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator

from . import host_files, live_settings, system_looks
from .looking import Looking, Refused
from .packages import repositories as rocm_repositories
from .packages import transaction as rocm_packages
from .resources.converge import inspect_all, items
from .resources.types import Host
from .resources.types import Refused as RefusedResource

Look = Callable[[AnsibleModule], "dict[str, Any]"]


def _repositories(module: AnsibleModule) -> dict[str, Any]:
    return rocm_repositories.look(module).result()


def _packages(module: AnsibleModule) -> dict[str, Any]:
    outcome = rocm_packages.look(module)[1]
    for name in outcome["lacking"]:
        module.warn(f"no repository has {name}: its kernel may boot without the driver")
    return outcome


def _converge(module: AnsibleModule) -> dict[str, Any]:
    """Return what converge would do: the bridge until a survey is one converge in check mode."""
    real = getattr(module, "_module", module)
    real.check_mode = True  # nothing is applied here
    host = Host(real, module.params["secrets"])
    try:
        reports = inspect_all(host, items(module.params["resources"]))
    except RefusedResource as refusal:
        raise Refused(str(refusal), list(refusal.findings)) from None
    findings = [item for report in reports for item in report["findings"]]
    if any(item["severity"] == "error" for item in findings):
        module.fail_json(msg=findings[0]["message"], findings=findings)
    for item in findings:
        module.warn(f"{item['code']}: {item['message']}\n  remedy: {item['remedy']}")
    return {
        "changed": any(report["changed"] for report in reports),
        "diff": [entry for report in reports for entry in report["diff"]],
        "steps": [step for report in reports for step in report["steps"]],
    }


# Each module by its name, with its arguments and its looking half.
LOOKS: dict[str, tuple[dict[str, Any], Look]] = {
    "converge": (
        {
            "resources": {"type": "list", "elements": "dict", "required": True},
            "secrets": {"type": "dict", "default": {}},
        },
        _converge,
    ),
    "host_files": (
        host_files.ARGUMENTS,
        lambda module: host_files.result(host_files.look(module)),
    ),
    "live_settings": (
        live_settings.ARGUMENTS,
        lambda module: live_settings.look(module).outcome,
    ),
    "rocm_packages": (rocm_packages.ARGUMENTS, _packages),
    "rocm_repositories": (rocm_repositories.ARGUMENTS, _repositories),
    "services": (system_looks.SERVICES, system_looks.look_at_services),
    "user": (system_looks.USERS, system_looks.look_at_user),
}


def check(module: AnsibleModule, step: dict[str, Any], secrets: dict[str, Any]) -> dict[str, Any]:
    """Return what one step would change; a refusal is in its ``failure`` and ``findings``.

    ``secrets`` are the values of secrets by concern, which come apart from a step's arguments.
    """
    told: dict[str, Any] = {
        "concern": step["concern"],
        "module": step["module"],
        "changed": False,
        "diff": [],
        "steps": [],
        "warnings": [],
        "failure": None,
        "findings": [],
    }
    spec, look = LOOKS[step["module"]]
    given = dict(step["arguments"])
    if step["module"] == "converge":
        given["secrets"] = secrets.get(step["concern"], {})
    checked = ArgumentSpecValidator(spec).validate(given)
    if checked.error_messages:
        return {**told, "failure": "; ".join(checked.error_messages)}
    looking = Looking(module, checked.validated_parameters)
    try:
        outcome = look(cast(AnsibleModule, looking))
    except (OSError, ValueError) as failure:
        # Where the module itself would end with a traceback.
        told["failure"] = f"{step['module']}: {failure}"
        return told
    except Refused as refusal:
        return {
            **told,
            "failure": refusal.message,
            "findings": refusal.findings,
            "warnings": looking.warnings,
        }
    diff = outcome.get("diff") or []
    return {
        **told,
        "changed": outcome["changed"],
        "diff": diff if isinstance(diff, list) else [diff],
        "steps": outcome.get("steps", []),
        "warnings": looking.warnings,
    }
