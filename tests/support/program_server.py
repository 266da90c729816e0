# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A program, imported once and forked for each run (support/programs.py).

Reads requests from standard input, a line of JSON each: argv, cwd, environment, and the files that
are standard input, output and error; answers each with a line, the exit status. All that a run
changes ends with it.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import sys
import traceback
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).parents[2]
COLLECTION = "apiary.instinct"
DOCUMENTS = f"ansible_collections.{COLLECTION}.plugins.plugin_utils.documents"


def playbook() -> Callable[[], object]:
    """Import ansible-playbook with what most runs import, and read what they read."""
    import ansible.cli
    from ansible.cli.playbook import PlaybookCLI
    from ansible.plugins import loader

    loader.init_plugin_loader()
    # It may be called once.
    ansible.cli.init_plugin_loader = lambda *_paths: None
    loader.strategy_loader.get("linear", class_only=True)
    loader.callback_loader.get("default", class_only=True)
    loader.connection_loader.get("local", class_only=True)
    for name in ("copy", "set_fact", "assert", "include_role"):
        loader.action_loader.get(name, class_only=True)
    for path in sorted((ROOT / "plugins/action").glob("[a-z]*.py")):
        loader.action_loader.get(f"{COLLECTION}.{path.stem}", class_only=True)
    documents = importlib.import_module(DOCUMENTS)
    for path in documents.KNOWLEDGE.rglob("*.yml"):
        documents.knowledge(str(path.relative_to(documents.KNOWLEDGE)))
    return lambda: PlaybookCLI.cli_executor(["ansible-playbook", *sys.argv[1:]])


def inventory() -> Callable[[], object]:
    """Import ansible-inventory and the plugins that it reads by."""
    import ansible.cli
    from ansible.cli.inventory import InventoryCLI
    from ansible.plugins import loader

    loader.init_plugin_loader()
    ansible.cli.init_plugin_loader = lambda *_paths: None
    for name in ("host_list", "script", "auto", "yaml", "ini", "toml", f"{COLLECTION}.fleet"):
        loader.inventory_loader.get(name, class_only=True)
    return lambda: InventoryCLI.cli_executor(["ansible-inventory", *sys.argv[1:]])


def reader() -> Callable[[], object]:
    """Import the reader of inventories, and the plugins that it reads them by."""
    from ansible.plugins import loader

    for name in ("inventory.manager", "parsing.dataloader", "vars.manager"):
        importlib.import_module(f"ansible.{name}")
    loader.init_plugin_loader()
    loader.init_plugin_loader = lambda *_paths: None
    loader.connection_loader.get("ssh", class_only=True)
    # What plugins of variables read is remembered by paths relative to this directory.
    plugins = ("ini", "yaml", "script", "auto", "host_list", "advanced_host_list", "toml")
    for name in plugins:
        loader.inventory_loader.get(name, class_only=True)
    return importlib.import_module("apiary.app.ansible_reader.__main__").main


def apiary() -> Callable[[], object]:
    """Import the command and its subcommands."""
    command = importlib.import_module("apiary.app.cli")
    for name in command.cli.list_commands(None):
        command.cli.get_command(None, name)
    return lambda: sys.exit(command.main())


def be(program: Callable[[], object], request: dict) -> int:
    """Run the program as the request says; this process ends with it. Return its exit status."""
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["environment"])
    sys.argv = request["argv"]
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC if number else os.O_RDONLY
        os.dup2(os.open(request[name], flags | os.O_NOCTTY, 0o600), number)
    # The stream that requests come by has read ahead.
    sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115
    status = 0
    try:
        program()
    except SystemExit as ended:
        status = ended.code if isinstance(ended.code, int) else int(bool(ended.code))
    except BaseException:
        traceback.print_exc()
        status = 1
    try:
        sys.stdout.flush()
    except OSError:
        status = status or 120  # as Python has it
    sys.stderr.flush()
    return status


def main() -> None:
    programs = {
        "playbook": playbook,
        "inventory": inventory,
        "reader": reader,
        "apiary": apiary,
    }
    program = programs[sys.argv[1]]()
    gc.freeze()
    # The pipe to the tests is not that of a run.
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    for line in sys.stdin:
        child = os.fork()
        if not child:
            status = 250
            try:
                status = be(program, json.loads(line))
            finally:
                os._exit(status)
        answers.write(f"{os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])}\n")


if __name__ == "__main__":
    main()
