#!/usr/bin/env python3
# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""`vllm bench serve` of a test's image: our own client behind vLLM's options and result file.

Not real: vLLM, which would make the image 3 GB. Real: everything around it, and the load.
"""

import itertools
import json
import os
import sys

sys.path.insert(0, "/opt/apiary")
PACKAGE = "ansible_collections.apiary.instinct.plugins.module_utils.load.client"
VERSION = "0.32.0"


def main(words):
    """Say the version, or send the load that the options of `bench serve` ask for."""
    if "--version" in words:
        print(VERSION)
        return 0
    if not os.environ.get("OPENAI_API_KEY"):
        sys.stderr.write("no key came\n")
        return 3
    given = {flag: value for flag, value in itertools.pairwise(words) if flag.startswith("--")}
    os.stat(given["--tokenizer"])
    prefix = int(given["--random-prefix-len"])
    workload = {
        "name": "image",
        "input_tokens": int(given["--random-input-len"]) + prefix,
        "output_tokens": int(given["--random-output-len"]),
        "kind": "random",
    }
    load = {
        "phase": "fixed",
        "workload": workload,
        "requests": int(given["--num-prompts"]),
        "concurrency": int(given["--max-concurrency"]),
        "warmups": int(given["--num-warmups"]),
        "seed": int(given["--seed"]),
    }
    asked = {"url": given["--base-url"], "model": given["--model"], "load": load}
    result = os.path.join(given["--result-dir"], given["--result-filename"])
    return __import__(PACKAGE, fromlist=["main"]).main([json.dumps(asked), result])


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
