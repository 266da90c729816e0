#!/usr/bin/env bash
# Pin requirements/*.txt from pyproject.toml, with hashes and without download addresses.
set -euo pipefail
cd "$(dirname "$0")/.."
export UV_CUSTOM_COMPILE_COMMAND="make requirements"
# Our oldest Python decides, so that one set of pins serves all.
options=(--quiet --universal --fork-strategy fewest --python-version 3.11 --generate-hashes)
uv pip compile "${options[@]}" "$@" pyproject.toml --output-file requirements/runtime.txt
uv pip compile "${options[@]}" "$@" --group dev pyproject.toml --output-file requirements/dev.txt
# Real vLLM for `make e2e` has rules of its own: one CPU wheel of torch.
python tests/lab/real_vllm/pins.py
