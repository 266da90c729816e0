#!/usr/bin/python
# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Collect what a host's tools and kernel say about its GPUs and its system."""

from __future__ import annotations

from ansible.module_utils.basic import AnsibleModule

from ..module_utils.evidence.gpu import run_command
from ..module_utils.evidence.host import collect_host

SCOPES = (
    *("gpu", "rocm", "tuning", "weights", "container", "kubernetes", "acceptance", "router"),
    *("telemetry", "exports", "engine", "reboot", "plans", "preflight"),
)
TRIALS = ("url", "registry", "tcp", "path", "nfs", "apt")
PATTERNS = {"type": "list", "elements": "str", "default": []}


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "scopes": {
                "type": "list",
                "elements": "str",
                "choices": list(SCOPES),
                "default": ["gpu"],
            },
            "sources": {
                "type": "dict",
                "options": {
                    "gpu": {"type": "dict"},
                    "commands": {"type": "dict", "default": {}},
                    "files": PATTERNS,
                    "links": PATTERNS,
                },
            },
            "programs": {"type": "list", "elements": "path", "default": []},
            "trials": {
                "type": "list",
                "elements": "dict",
                "default": [],
                "options": {
                    "kind": {"type": "str", "required": True, "choices": list(TRIALS)},
                    "target": {"type": "str", "default": ""},
                },
            },
        },
        supports_check_mode=True,
    )
    sources, programs = module.params["sources"] or {}, tuple(module.params["programs"])
    if "gpu" in module.params["scopes"] and not sources.get("gpu"):
        module.fail_json(msg="what is collected is the controller's to say: run it as a task")
    evidence = collect_host(sources, programs=programs)
    if module.params["trials"]:
        from ..module_utils.evidence.reach import reach

        evidence["commands"].update(reach(run_command, module.params["trials"]))
    module.exit_json(changed=False, evidence=evidence)


if __name__ == "__main__":
    main()
