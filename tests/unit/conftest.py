# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What unit tests share: the reader of inventories, which is started once."""

from __future__ import annotations

from pathlib import Path

import pytest

from apiary.app import ask_ansible
from support.programs import run_program

PROJECT = str(Path(__file__).parents[2] / "ansible.cfg")
# What the command itself sets.
SETTINGS = {"ANSIBLE_NOCOLOR", "ANSIBLE_INVENTORY_ANY_UNPARSED_IS_FAILED"}


@pytest.fixture(autouse=True)
def _forked_reader(monkeypatch):
    """Fork the reader, but start it anew where Ansible has settings of its own."""
    start = ask_ansible.run_reader

    def run(text, environment, timeout):
        own = {name for name in environment if name.startswith("ANSIBLE_")} - SETTINGS
        if environment.get("ANSIBLE_CONFIG") == PROJECT:
            own.remove("ANSIBLE_CONFIG")
        if own or Path("ansible.cfg").exists():
            return start(text, environment, timeout)
        return run_program("reader", cwd=Path.cwd(), environment=environment, text=text)

    monkeypatch.setattr(ask_ansible, "run_reader", run)
