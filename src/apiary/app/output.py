# SPDX-License-Identifier: GPL-3.0-or-later

"""What the command prints: results on stdout, findings on stderr, the exit code between them."""

from __future__ import annotations

import errno
import json
import os
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal, TextIO

import click
from ansible_collections.apiary.instinct.plugins.plugin_utils.documents import dumps, to_document
from ansible_collections.apiary.instinct.plugins.plugin_utils.files import findings_here
from ansible_collections.apiary.instinct.plugins.plugin_utils.findings import (
    ApiaryError,
    Finding,
    has_errors,
    visible,
)
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.table import Table

if TYPE_CHECKING:
    from rich.progress import Progress

EXIT_FINDINGS = 1
# In a file or a pipe nobody has 80 columns to fit.
PIPED_WIDTH = 160
_COLOURS = {"error": "red", "warning": "yellow", "info": "cyan"}


def coloured(stream: TextIO) -> bool:
    """Return whether a stream gets colour: a terminal that can, unless the environment decides.

    NO_COLOR goes before FORCE_COLOR and CLICOLOR_FORCE, these before CLICOLOR=0 and TERM
    (https://no-color.org, https://bixense.com/clicolors).
    """
    variable = os.environ.get
    if variable("NO_COLOR"):
        return False
    if any(variable(name, "") not in ("", "0") for name in ("FORCE_COLOR", "CLICOLOR_FORCE")):
        return True
    if variable("CLICOLOR") == "0" or variable("FORCE_COLOR") == "0":
        return False
    return variable("TERM", "dumb") not in ("", "dumb", "unknown") and stream.isatty()


class _Shown(Console):
    """A console of whose texts a terminal obeys none."""

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterator[Segment]:
        for segment in super().render(renderable, options):
            yield segment if segment.control else segment._replace(text=visible(segment.text))


def echo(text: str = "", *, err: bool = False, nl: bool = True, **style: Any) -> None:
    """Print for a person or a program; ``style`` is click's, where there is colour."""
    shown = visible(text)
    if style and coloured(sys.stderr if err else sys.stdout):
        shown = click.style(shown, **style)
    click.echo(shown, err=err, nl=nl, color=True if style else None)


def console(stderr: bool = False) -> Console:
    """Return what prints for a person: no escape code where there is to be no colour."""
    stream = sys.stderr if stderr else sys.stdout
    system: Literal["auto", "standard"] | None = None
    if coloured(stream):
        system = "auto" if stream.isatty() else "standard"
    return _Shown(
        stderr=stderr,
        highlight=False,
        markup=False,
        emoji=False,
        color_system=system,
        no_color=system is None,
        force_terminal=stream.isatty(),
    )


def alive(on: Console) -> bool:
    """Return whether a console can show what moves: a terminal that goes back in a line."""
    return on.is_terminal and not on.is_dumb_terminal


def progress(quiet: bool) -> Progress:
    """Return lines on stderr that count hosts; nothing is shown where no line could move."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn  # slow to import

    stderr = console(stderr=True)
    return Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        console=stderr,
        disable=quiet or not alive(stderr),
        transient=True,
    )


def show(renderable: RenderableType) -> None:
    """Print for a person; colour only on a terminal."""
    terminal = console()
    if not terminal.is_terminal and "COLUMNS" not in os.environ:
        terminal.width = PIPED_WIDTH
    terminal.print(renderable)


def print_document(document: Any) -> None:
    """Print a document as JSON on stdout."""
    echo(dumps(document), nl=False)


def report(findings: Iterable[Finding], as_json: bool) -> None:
    """Print findings on stderr, one block each, or as one JSON document."""
    result = findings_here(findings)
    if not result:
        return
    if as_json:
        echo(json.dumps({"findings": to_document(result)}, indent=2), err=True)
        return
    for finding in result:
        head = f"{finding.severity}: {finding.code}"
        echo(head, err=True, nl=False, fg=_COLOURS[finding.severity])
        echo(f": {finding.subject}: {finding.message}", err=True)
        echo(f"  remedy: {finding.remedy}", err=True)
    wrong = [item.code for item in result if item.severity == "error"]
    if wrong and sys.stderr.isatty():  # a log has no use for it
        echo(f"`apiary finding {wrong[0]}` says what shows it and what it means", err=True)


def exit_code(findings: Iterable[Finding]) -> int:
    """Return 1 where a finding is an error, else 0."""
    return EXIT_FINDINGS if has_errors(findings) else 0


def grid(title: str, columns: Iterable[str], rows: Iterable[Iterable[str]]) -> Table:
    """Return a table whose first column never wraps."""
    table = Table(title=title, title_justify="left")
    for number, column in enumerate(columns):
        table.add_column(column, no_wrap=number == 0, overflow="fold")
    for row in rows:
        table.add_row(*map(visible, row))
    return table


def plain_table(*columns: str, title: str | None = None, right: Sequence[int] = ()) -> Table:
    """Return a table without lines; its first column and those of numbers never wrap."""
    table = Table(
        title=title,
        title_justify="left",
        box=None,
        padding=(0, 2, 0, 0),
        header_style="bold",
        show_header=any(columns),
    )
    for position, name in enumerate(columns):
        table.add_column(
            name,
            justify="right" if position in right else "left",
            no_wrap=position == 0 or position in right,
            overflow="fold",
        )
    return table


def file_name(name: str, suffix: str, taken: set[str]) -> str:
    """Return a name for a file that is no path and nobody else's, and keep it."""
    plain = re.sub(r"[^A-Za-z0-9._@:-]", "_", name)
    number, candidate = 1, f"{plain}{suffix}"
    while candidate in taken:
        number += 1
        candidate = f"{plain}-{number}{suffix}"
    taken.add(candidate)
    return candidate


class Findings(click.Group):
    """A group whose commands end in findings, never in a traceback."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except ApiaryError as refusal:
            report(refusal.findings, self._as_json(ctx))
            ctx.exit(EXIT_FINDINGS)
        except BrokenPipeError:
            sys.stderr.close()
            ctx.exit(0)
        except RecursionError:
            self._refuse(ctx, "FILE-SYNTAX", "a file", "nests deeper than anything that is real")
        except OSError as failure:
            if failure.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO):
                raise  # of a file that is read or written is told where that is
            # What is still to be written goes nowhere, so that leaving does not fail once more.
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            why = f"cannot be written to: {failure.strerror}"
            self._refuse(ctx, "FILE-UNWRITABLE", "the output", why)

    def _refuse(self, ctx: click.Context, code: str, subject: str, message: str) -> None:
        report([Finding(code, subject, message)], self._as_json(ctx))
        ctx.exit(EXIT_FINDINGS)

    @staticmethod
    def _as_json(ctx: click.Context) -> bool:
        return bool(ctx.find_root().meta.get("apiary.json"))
