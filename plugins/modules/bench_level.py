#!/usr/bin/python
# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Run one level of a benchmark on the load host, or look whether one can be run."""

from __future__ import annotations

DOCUMENTATION = r"""
module: bench_level
short_description: Run one level of a benchmark on the load host
version_added: 0.1.0
description:
  - Starts the processes of a load generator, watches the engines' metrics and this host's GPUs
    meanwhile, and returns what all of them said, uninterpreted. The action
    M(apiary.instinct.bench) decides what is asked and judges what comes back.
  - Ends every process that it started and leaves no file. A level that fails is a result, too;
    the module fails only where nothing could be started.
  - In check mode nothing is sent to the engines.
author:
  - The Apiary authors (@apiary)
extends_documentation_fragment:
  - apiary.instinct.attributes.reads
options:
  request:
    description: What to run, as plugin_utils/bench/run/level.py makes it.
    type: dict
    required: true
  api_key:
    description: The engines' key. The load generator gets it by its environment.
    type: str
  key_file:
    description: A file on the load host with that key, instead of O(api_key).
    type: path
"""

EXAMPLES = r"""
- name: Run one level
  apiary.instinct.bench_level:
    request: "{{ request }}"
    key_file: /etc/apiary/qwen3-235b/credentials/VLLM_API_KEY
  register: measured
"""

RETURN = r"""
packed:
  description: The document V(apiary.bench-raw/v1), or what was looked at, as gzip JSON in base64.
  type: str
  returned: success, except in check mode
"""

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
