# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""ansible-playbook, imported once and forked for each run (support/playbooks.py).

Reads requests from standard input, a line of JSON each: argv, cwd, environment, and where standard
output and error go; answers each with a line, the exit status. All that a run changes ends with it.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import sys
from pathlib import Path

import ansible.cli
from ansible.cli.playbook import PlaybookCLI
from ansible.plugins.loader import (
    action_loader,
    callback_loader,
    connection_loader,
    init_plugin_loader,
    strategy_loader,
)

ROOT = Path(__file__).parents[2]
COLLECTION = "apiary.instinct"
DOCUMENTS = "plugins.plugin_utils.documents"


def warm() -> None:
    """Import what most runs import, and read what they read."""
    init_plugin_loader()
    # It may be called once.
    ansible.cli.init_plugin_loader = lambda *_paths: None
    strategy_loader.get("linear", class_only=True)
    callback_loader.get("default", class_only=True)
    connection_loader.get("local", class_only=True)
    for name in ("copy", "set_fact", "assert", "include_role"):
        action_loader.get(name, class_only=True)
    for path in sorted((ROOT / "plugins/action").glob("[a-z]*.py")):
        action_loader.get(f"{COLLECTION}.{path.stem}", class_only=True)
    documents = importlib.import_module(f"ansible_collections.{COLLECTION}.{DOCUMENTS}")
    for path in documents.KNOWLEDGE.rglob("*.yml"):
        documents.knowledge(str(path.relative_to(documents.KNOWLEDGE)))
    gc.freeze()


def run(request: dict) -> None:
    """Be ansible-playbook; this process ends with it."""
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["environment"])
    for number, name in ((0, os.devnull), (1, request["stdout"]), (2, request["stderr"])):
        flags = os.O_RDONLY if number == 0 else os.O_WRONLY | os.O_CREAT | os.O_TRUNC
        os.dup2(os.open(name, flags, 0o600), number)
    try:
        PlaybookCLI.cli_executor(["ansible-playbook", *request["argv"]])
    finally:
        sys.stdout.flush()
        sys.stderr.flush()


def main() -> None:
    warm()
    # The pipe to the tests is not that of a run.
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    for line in sys.stdin:
        child = os.fork()
        if not child:
            status = 250
            try:
                run(json.loads(line))
            except SystemExit as ended:
                status = ended.code if isinstance(ended.code, int) else int(bool(ended.code))
            finally:
                os._exit(status)
        answers.write(f"{os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])}\n")


if __name__ == "__main__":
    main()
