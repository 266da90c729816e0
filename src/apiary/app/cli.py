# SPDX-License-Identifier: GPL-3.0-or-later

"""The `apiary` command: thin, each subcommand one call into the deciding half."""

from __future__ import annotations

import difflib
import importlib
from typing import Any, NamedTuple

import click
from ansible_collections.apiary.instinct.plugins.plugin_utils.documents import knowledge
from click.shell_completion import CompletionItem

from apiary.app.ansible_config import print_path
from apiary.app.output import Findings


class Entry(NamedTuple):
    """A command: its name, MODULE:ATTRIBUTE of the package, and a few words of help."""

    name: str
    where: str
    about: str


class Section(NamedTuple):
    """Commands of one task, in the order in which they are needed."""

    title: str
    entries: tuple[Entry, ...]


class LazyGroup(Findings):
    """The top of the command: sections of commands, none imported before it is needed."""

    def __init__(self, *args: Any, sections: tuple[Section, ...] = (), **more: Any) -> None:
        super().__init__(*args, **more)
        self.sections = sections
        self.entries = {entry.name: entry for section in sections for entry in section.entries}

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names in the order of the sections."""
        return list(self.entries)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the command of this name; None where it is none."""
        if cmd_name not in self.entries:
            return None
        module, attribute = self.entries[cmd_name].where.split(":")
        command: click.Command = getattr(importlib.import_module(f"apiary.{module}"), attribute)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write a list for each section."""
        widest = max(map(len, self.entries))
        for section in self.sections:
            with formatter.section(section.title):
                rows = [(entry.name.ljust(widest), entry.about) for entry in section.entries]
                formatter.write_dl(rows)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command that is asked for; a name that is none gets those it is like."""
        valid = ctx.resilient_parsing or not args or args[0] in self.entries
        if not valid and not args[0].startswith("-"):
            near = difflib.get_close_matches(args[0], self.entries, 3, 0.5)
            hint = f" Did you mean {' or '.join(near)}?" if near else ""
            raise click.UsageError(f"No such command '{args[0]}'.{hint}", ctx)
        return super().resolve_command(ctx, args)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Complete a command's name with the table's words, or an option."""
        matches = [
            CompletionItem(entry.name, help=entry.about)
            for entry in self.entries.values()
            if entry.name.startswith(incomplete)
        ]
        return [*matches, *click.Command.shell_complete(self, ctx, incomplete)]


SECTIONS = tuple(
    Section(title, tuple(Entry(name, **facts) for name, facts in commands.items()))
    for title, commands in knowledge("commands.yml").items()
)


@click.group(
    cls=LazyGroup, sections=SECTIONS, context_settings={"help_option_names": ["-h", "--help"]}
)
@click.version_option(package_name="apiary")
@click.option(
    "--ansible-config",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=print_path,
    help="Print where Apiary's own ansible.cfg is: ANSIBLE_CONFIG=$(apiary --ansible-config).",
)
def cli() -> None:
    """From bare AMD Instinct hosts to serving vLLM replicas.

    \b
    apiary doctor --inventory inventory/mine    is all there for a first run?
    apiary plan --inventory inventory/mine      what would change, and why
    apiary COMMAND --help                       what it does, with examples

    The Tab key: `eval "$(_APIARY_COMPLETE=bash_source apiary)"`, or zsh_source, or fish_source.

    Exit code 0: fine; 1: a finding of severity error; 2: wrong usage. No colour where NO_COLOR is
    set or no terminal is.
    """


def main(arguments: list[str] | None = None) -> int:
    """Run the command; return its exit code."""
    try:
        code = cli.main(arguments, prog_name="apiary", standalone_mode=False)
    except click.exceptions.Exit as leaving:
        return leaving.exit_code
    except click.Abort:
        click.echo("aborted", err=True)
        return 130
    except click.ClickException as failure:
        failure.show()
        return failure.exit_code
    return code if isinstance(code, int) else 0
