# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A store of weights and the hub's double for tests, and how a tree looks."""

import importlib.util
import os
import stat
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
REPOSITORY = "apiary-lab/tiny"


def load_double():
    """Return the module of the hub's double, which stands alone as it runs on hosts, too."""
    path = ROOT / "tests/lab/hub/hub_double.py"
    spec = importlib.util.spec_from_file_location("hub_double", path)
    module = importlib.util.module_from_spec(spec)
    # dataclasses look up their module.
    sys.modules["hub_double"] = module
    spec.loader.exec_module(module)
    return module


hub_double = load_double()


def snapshot(root):
    """Return all that a second run must leave alone."""
    seen = {}
    for parent, directories, files in os.walk(root):
        for name in [*directories, *files]:
            path = os.path.join(parent, name)
            status = os.lstat(path)
            target = os.readlink(path) if stat.S_ISLNK(status.st_mode) else None
            seen[path] = (
                status.st_ino,
                status.st_mode,
                status.st_mtime_ns,
                status.st_size,
                target,
            )
    return seen


def published(root, commit, repository=REPOSITORY):
    """Return the contents of a published revision, without its manifest."""
    directory = Path(root) / repository / commit
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in directory.rglob("*")
        if path.is_file() and path.name != ".apiary-manifest.json"
    }
