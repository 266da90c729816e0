#!/usr/bin/python
# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Run one level of a benchmark on the load host, or look whether one can be run."""

from __future__ import annotations

from ansible.module_utils.basic import AnsibleModule

from ..module_utils.load.run import BenchError, packed, run


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "request": {"type": "dict", "required": True},
            "api_key": {"type": "str", "no_log": True},
            "key_file": {"type": "path", "no_log": False},
        },
        mutually_exclusive=[("api_key", "key_file")],
        supports_check_mode=True,
    )
    if module.check_mode:
        module.exit_json(changed=False)
    key = module.params["api_key"] or ""
    path = module.params["key_file"]
    if path:
        try:
            with open(path, encoding="utf-8", newline="\n") as stream:
                key = stream.readline().strip()
        except (OSError, ValueError) as failure:
            module.fail_json(msg=f"the key in {path} cannot be read: {type(failure).__name__}")
    request = {**module.params["request"], "secrets": {"OPENAI_API_KEY": key} if key else {}}
    try:
        outcome = run(request)
    except BenchError as failure:
        module.fail_json(msg=str(failure))
    module.exit_json(changed=False, packed=packed(outcome))


if __name__ == "__main__":
    main()
