# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Help that teaches: sections in the order of a first day, an example for each command."""

import re
import shlex
import subprocess
import sys

import click
import pytest

from apiary.app.cli import SECTIONS, cli, main

ROOT = click.Context(cli, info_name="apiary")


def commands(group=cli, parent=ROOT):
    """Every command with the words that lead to it."""
    for name in group.list_commands(parent):
        command = group.get_command(parent, name)
        context = click.Context(command, info_name=name, parent=parent)
        yield context
        if isinstance(command, click.Group):
            yield from commands(command, context)


ALL = {context.command_path: context for context in commands()}


@pytest.mark.parametrize("path", ALL)
def test_every_command_has_an_example_that_could_be_run(path):
    shown = ALL[path].get_help()
    examples = [line.strip() for line in shown.splitlines() if line.startswith(f"  {path} ")]
    assert examples, shown
    for line in examples:
        words = re.split(r"\s{2,}", line)[0].replace("…", "x").partition(" [")[0]
        words = words.partition(" | ")[0].partition(" > ")[0].partition(" < ")[0]
        _parses(shlex.split(words)[1:])


def _parses(words):
    """A command line means something: no option is unknown. Files need not be there."""
    context, command = ROOT, cli
    while isinstance(command, click.Group) and words:
        name, *words = words
        if name == "COMMAND":
            return
        command = command.get_command(context, name)
        assert command is not None, name
        context = click.Context(command, info_name=name, parent=context)
    command.make_parser(context).parse_args(list(words))


@pytest.mark.parametrize("path", ALL)
def test_every_option_says_what_it_does(path):
    told = [one for one in ALL[path].command.params if isinstance(one, click.Option)]
    known = {"--tags", "--skip-tags", "--replicas", "--most", "--repeats", "--hosts"}
    known |= {"--kv-cache-dtype", "--vault-password-file", "--limit"}
    silent = [one.opts[-1] for one in told if not one.help and one.opts[-1] not in known]
    assert silent == []


def test_the_order_is_that_of_a_first_day(capsys):
    assert main(["--help"]) == 0
    shown = capsys.readouterr().out
    first = ["doctor", "probe", "topology", "plan", "explain", "rollout"]
    places = [shown.index(f"\n  {name} ") for name in first]
    assert places == sorted(places)
    assert [one.name for one in SECTIONS[0].entries] == first
    assert "…" not in shown.partition("First day")[2]
    assert max(map(len, shown.splitlines())) <= 80


def test_every_command_is_in_a_section_and_means_what_it_says():
    told = [entry.name for one in SECTIONS for entry in one.entries]
    assert told == cli.list_commands(ROOT)
    assert len(set(told)) == len(told)
    for section in SECTIONS:
        for entry in section.entries:
            assert cli.get_command(ROOT, entry.name).name == entry.name
            assert entry.about.endswith(".")


def test_help_imports_no_command_and_a_plan_nothing_that_measures():
    code = (
        "import sys; from apiary.app.cli import main; main(['--version']); main(['--help']);"
        "assert not any(name.endswith('_command') for name in sys.modules);"
        "import apiary.fleet.plan, apiary.fleet.command, apiary.fleet.report.page;"
        "wing = ('apiary.bench', 'scipy', 'plotly', 'instinct.plugins.plugin_utils.bench');"
        "sys.exit(any(word in name for name in sys.modules for word in wing))"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["plna"], "Did you mean plan"),
        (["support"], "support-bundle"),
        (["probe", "--inventry", "x"], "--inventory"),
        (["schema", "plane"], "'plan'"),
        (["fleet", "reprot"], "apiary fleet --help"),
    ],
)
def test_wrong_usage_names_what_was_meant(words, said, capsys):
    assert main(words) == 2
    err = capsys.readouterr().err
    assert said in err
    assert "--help" in err


@pytest.mark.parametrize(
    ("words", "command"),
    [
        (["topology", "missing.json"], "apiary probe"),
        (["place", "missing.json", "--tp", "4"], "apiary probe"),
        (["explain", "missing.json"], "apiary plan"),
        (["diff", "missing.json", "missing.json"], "apiary plan"),
        (["render", "missing.json", "--out", "x"], "apiary plan"),
        (["model", "missing.json"], "config.json"),
        (["report", "missing.json"], "apiary bench"),
        (["compare", "missing.json", "--with", "missing.json"], "apiary bench"),
        (["capacity", "missing.json", "--rate", "1"], "apiary bench"),
        (["plan", "missing.yml", "missing.json"], "inventory/example"),
        (["fleet", "report", "--artifacts", "missing"], "ansible-playbook"),
        (["support-bundle", "--artifacts", "missing"], "apiary support-bundle --inventory"),
        (["plan", "--inventory", "missing"], "inventory/example"),
        (["doctor", "--inventory", "missing"], "inventory/example"),
        (["probe", "--inventory", "missing"], "inventory/example"),
    ],
)
def test_a_missing_file_names_the_command_that_makes_it(
    words, command, capsys, monkeypatch, tmp_path
):
    monkeypatch.chdir(tmp_path)
    assert main(words) == 1
    err = capsys.readouterr().err
    remedies = [line for line in err.splitlines() if line.startswith("  remedy: ")]
    assert any(command in line for line in remedies), err
