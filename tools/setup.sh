#!/usr/bin/env bash
# Make .venv from the pinned, hashed requirements; install what a fresh Debian or Ubuntu lacks for that.
set -euo pipefail
cd "$(dirname "$0")/.."

python=${PYTHON:-python3}
if ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
  echo "error: SETUP-PYTHON: $python is not Python 3.11 or newer; install one and run: make PYTHON=python3.12 …" >&2
  exit 1
fi
# Debian packages venv and pip apart from python3.
if ! "$python" -c 'import ensurepip, venv' 2>/dev/null; then
  package=$("$python" -c 'import sys; print("python%d.%d-venv" % sys.version_info[:2])')
  if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
    echo "error: SETUP-VENV: $python has no venv module; get it with: sudo apt-get install $package" >&2
    exit 1
  fi
  echo "setup: installing $package from the distribution (apt-get)"
  apt-get update -qq
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$package" >/dev/null
fi

echo "setup: making .venv from requirements/dev.txt (pinned, with hashes)"
rm -f .venv/ready
[ -x .venv/bin/python ] || "$python" -m venv .venv
.venv/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes --requirement requirements/dev.txt
# The build tool is pinned above, so nothing unpinned is fetched for it.
.venv/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
touch .venv/ready
