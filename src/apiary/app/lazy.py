# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Commands that are imported when they are run: `apiary --help` and the Tab key wait for none."""

from __future__ import annotations

import difflib
import importlib
import re
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import click
from click.shell_completion import CompletionItem

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


def sections(table: str) -> tuple[Section, ...]:
    """Read a table: a line for a section's title, then indented lines for its commands."""
    parts = re.split(r"^(?=\S)", table.strip(), flags=re.MULTILINE)
    return tuple(
        Section(title, tuple(Entry(*line.split(maxsplit=2)) for line in lines))
        for title, *lines in (part.splitlines() for part in parts if part)
    )


class _Commands(dict[str, click.Command]):
    """Commands by name; the value of an entry is imported when somebody asks for it."""

    def __init__(self, entries: Iterable[Entry]) -> None:
        super().__init__()
        self.entries = {entry.name: entry for entry in entries}

    def __missing__(self, name: str) -> click.Command:
        module, attribute = self.entries[name].where.split(":")
        result: click.Command = getattr(importlib.import_module(f"apiary.{module}"), attribute)
        self[name] = result
        return result

    def get(self, name: str, default: Any = None) -> Any:
        return self[name] if name in self else default  # noqa: SIM401 - it is what this says

    def __contains__(self, name: object) -> bool:
        return name in self.entries or super().__contains__(name)

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys((*self.entries, *super().keys())))

    def __len__(self) -> int:
        return len(list(iter(self)))

    def keys(self) -> Any:
        return list(self)

    def values(self) -> Any:
        return [self[name] for name in self]

    def items(self) -> Any:
        return [(name, self[name]) for name in self]


class LazyGroup(Findings):
    """The top of the command: sections of commands, none imported before it is needed."""

    def __init__(self, *args: Any, sections: tuple[Section, ...] = (), **more: Any) -> None:
        super().__init__(*args, **more)
        self.sections = sections
        self.commands = _Commands(entry for section in sections for entry in section.entries)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names in the order of the sections."""
        return list(self.commands)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write a list for each section."""
        listed = {entry.name for section in self.sections for entry in section.entries}
        widest = max(
            (len(entry.name) for section in self.sections for entry in section.entries), default=0
        )
        for section in self.sections:
            with formatter.section(section.title):
                rows = [(entry.name.ljust(widest), entry.about) for entry in section.entries]
                formatter.write_dl(rows)
        others = [name for name in self.commands if name not in listed]
        if others:
            with formatter.section("Others"):
                formatter.write_dl(
                    [(name, self.commands[name].get_short_help_str()) for name in others]
                )

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command that is asked for; a name that is none gets those it is like."""
        valid = ctx.resilient_parsing or not args or args[0] in self.commands
        if not valid and not args[0].startswith("-"):
            near = difflib.get_close_matches(args[0], list(self.commands), 3, 0.5)
            hint = f" Did you mean {' or '.join(near)}?" if near else ""
            raise click.UsageError(f"No such command '{args[0]}'.{hint}", ctx)
        return super().resolve_command(ctx, args)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Complete a command's name with the table's words, or an option."""
        matches = [
            CompletionItem(entry.name, help=entry.about)
            for section in self.sections
            for entry in section.entries
            if entry.name.startswith(incomplete)
        ]
        return [*matches, *click.Command.shell_complete(self, ctx, incomplete)]
