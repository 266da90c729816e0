# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What an alert tells somebody to do can be done: its commands, their options and pages exist."""

from __future__ import annotations

import re
from pathlib import Path

import click
from ansible_collections.apiary.instinct.plugins.plugin_utils.documents import knowledge

from apiary.app.cli import cli
from support.each import each

ROOT = Path(__file__).parents[3]
REMEDIES = {one["alert"]: one["remedy"] for one in knowledge("telemetry/alerts.yml")["alerts"]}
# Words of a command, then its options, and arguments that are capitals, labels or paths.
COMMAND = re.compile(
    r"\bapiary ([a-z]+(?: [a-z]+(?![\w/]))?)((?: (?:-\S+|\S*[A-Z{/]\S*(?: \$\S+ }}\S*)?))*)"
)
each_remedy = each(REMEDIES.values())


@each_remedy
def test_a_playbook_takes_what_it_is_given(remedy):
    for command in re.findall(r"ansible-playbook [^;]*", remedy):
        assert " -i INVENTORY " in command
        (name,) = re.findall(r"playbooks/(\w+)\.yml", command)
        text = (ROOT / f"playbooks/{name}.yml").read_text(encoding="utf-8")
        for variable in re.findall(r"-e (\w+)=", command):
            assert re.search(rf"\b{variable}\b", text), variable
        for tag in re.findall(r"--tags (\w+)", command):
            assert tag in text
        # What was drained stays so until somebody undoes it.
        assert "reboot" not in command or name == "maintain"


@each_remedy
def test_a_command_of_apiary_takes_what_it_is_given(remedy):
    for names, rest in COMMAND.findall(remedy):
        command, name = _command(names)
        given = set(re.findall(r"(?<= )--?[a-z]+", rest))
        options = [one for one in command.params if isinstance(one, click.Option)]
        assert given <= {text for one in options for text in (*one.opts, *one.secondary_opts)}, name
        arguments = [one for one in command.params if isinstance(one, click.Argument)]
        needed = [one for one in (*options, *arguments) if one.required]
        assert len(needed) <= len(re.findall(r" [^\s-]\S*", rest)), f"{name} needs {needed}"


def _command(names):
    """Return the command that words name; prose may follow it."""
    first, *more = names.split()
    command = cli.get_command(click.Context(cli), first)
    if isinstance(command, click.Group):
        return command.commands[more[0]], names
    return command, first


@each_remedy
def test_its_pages_are_there(remedy):
    for page in re.findall(r"docs/\S+\.md", remedy):
        assert (ROOT / page).is_file(), page


@each_remedy
def test_nothing_is_asked_of_the_loopback_address(remedy):
    # Exporters and Prometheus listen on apiary_address.
    assert "localhost" not in remedy
    assert "127.0.0.1" not in remedy
