# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""docs/reference/commands.md: every command with its options, examples and exit codes."""

from __future__ import annotations

import inspect
from collections.abc import Iterator

import click
from text import code, table

from apiary.app.cli import SECTIONS, cli

EXIT_CODES = (
    ("0", "fine; warnings may have been told"),
    ("1", "a finding of severity error, on stderr"),
    ("2", "wrong usage: an unknown option, or options that exclude each other"),
    ("3", "`apiary plan` of a fleet: something would change"),
    ("130", "ended from the keyboard"),
)


def page() -> str:
    """Return the page of the command line."""
    root = click.Context(cli, info_name="apiary")
    lines = ["# The `apiary` command\n", *_about(cli)]
    for section in SECTIONS:
        rows = (
            (f"[`apiary {entry.name}`](#apiary-{entry.name})", entry.about)
            for entry in section.entries
        )
        lines += table((section.title, ""), rows)
    lines.append("## Exit codes\n")
    lines += table(("code", "means"), EXIT_CODES)
    lines += ["Results go to stdout, findings to stderr. `--json` makes documents of both.\n"]
    for context in _all(root):
        lines += _command(context)
    return "\n".join(lines)


def _all(parent: click.Context) -> Iterator[click.Context]:
    """Yield a context for each command and subcommand, in the order of their help."""
    group = parent.command
    if not isinstance(group, click.Group):
        return
    for name in sorted(group.list_commands(parent)):
        command = group.get_command(parent, name)
        if command is not None and not command.hidden:
            context = click.Context(command, info_name=name, parent=parent)
            yield context
            yield from _all(context)


def _command(context: click.Context) -> Iterator[str]:
    command = context.command
    yield f"## `{context.command_path}`\n"
    pieces = " ".join(command.collect_usage_pieces(context))
    yield f"```text\n{context.command_path} {pieces}\n```\n"
    yield from _about(command)
    options = [one for one in command.get_params(context) if isinstance(one, click.Option)]
    rows = [_option(context, one) for one in options if not one.hidden]
    yield from table(("option", "value", "default", "what it is"), rows)


def _option(context: click.Context, option: click.Option) -> tuple[str, str, str, str]:
    names = ", ".join(code(name) for name in (*option.opts, *option.secondary_opts))
    told = (option.get_help_extra(context) or {}) if hasattr(option, "get_help_extra") else {}
    value = "" if option.is_flag or option.count else option.make_metavar(context)
    if option.multiple:
        value += ", repeatable"
    default = "(required)" if option.required else code(told.get("default", ""))
    bounds = f" {told['range']}." if "range" in told else ""
    return names, value.strip(", "), default, f"{_sentence(option.help or '')}{bounds}".strip()


def _about(command: click.Command) -> Iterator[str]:
    r"""Yield a command's own words: paragraphs, and as a block what `\b` keeps in lines."""
    text = inspect.cleandoc(command.help or "").split("\f")[0]
    for part in text.split("\n\n"):
        lines = part.strip("\n").split("\n")
        if lines[0] == "\b":
            language = "sh" if any(line.strip().startswith("apiary") for line in lines) else "text"
            yield "```" + language + "\n" + "\n".join(lines[1:]) + "\n```\n"
        else:
            yield _sentence(" ".join(lines)) + "\n"


def _sentence(text: str) -> str:
    """Return words that Markdown leaves as they are."""
    return text.replace("<", "&lt;").replace("*", "\\*")
