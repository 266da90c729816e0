# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the Tab key offers: click's answers, and files, hosts and playbooks where it has none."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click
from click.shell_completion import (
    BashComplete,
    CompletionItem,
    FishComplete,
    ShellComplete,
    ZshComplete,
    add_completion_class,
)

from apiary.app.completion_hosts import names_of

SHELLS = ("bash", "zsh", "fish")
VARIABLE = "_APIARY_COMPLETE"
# Parameters that take hosts of the inventory, and those that say which inventory.
_HOSTS = {"limit", "--host", "hosts", "canary"}
_INVENTORIES = ("sources", "inventory")


def source(shell: str) -> str:
    """Return the script that a shell reads to complete `apiary`."""
    return CLASSES[shell](click.Command("apiary"), {}, "apiary", VARIABLE).source()


class _Completing(ShellComplete):
    """Click completes choices and options only; a plain text may be a file or a host here."""

    def get_completions(self, args: list[str], incomplete: str) -> list[CompletionItem]:
        from click.shell_completion import _resolve_context, _resolve_incomplete

        try:
            context = _resolve_context(self.cli, self.ctx_args, self.prog_name, args)
            if isinstance(context.command, click.Group) and context._protected_args:
                return []  # there is no such command
            parameter, incomplete = _resolve_incomplete(context, args, incomplete)
            result = parameter.shell_complete(context, incomplete)
        except (click.ClickException, ImportError):
            return []  # a wrong line has nothing to add to it
        if result or not isinstance(parameter, click.Parameter):
            return result
        return _more(context, parameter, incomplete)


def _more(
    context: click.Context, parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Return what a parameter of plain text takes: hosts, playbooks, else files."""
    if _HOSTS & {parameter.name, *parameter.opts}:
        chosen = next(
            (context.params[name] for name in _INVENTORIES if context.params.get(name)), ()
        )
        return _hosts([chosen] if isinstance(chosen, str) else list(chosen), incomplete)
    if not isinstance(parameter.type, (click.types.StringParamType, click.types.FuncParamType)):
        return []
    files = CompletionItem(incomplete, type="file")
    if parameter.name == "playbook":
        from apiary.app.runner import PLAYBOOKS

        playbooks = sorted(path.stem for path in PLAYBOOKS.glob("*.yml"))
        matches = [CompletionItem(name) for name in playbooks if name.startswith(incomplete)]
        return matches or [files]  # bash shows one kind of them
    return [files]


def _hosts(sources: Sequence[str], incomplete: str) -> list[CompletionItem]:
    """Return hosts and groups; of a pattern such as `rack1:!gpu-` the last name is completed."""
    cut = max(incomplete.rfind(sign) for sign in ",:!&") + 1
    before, begun = incomplete[:cut], incomplete[cut:]
    groups, hosts = names_of([Path(source) for source in sources])
    result = [(name, "a group") for name in groups] + [(name, "a host") for name in hosts]
    return [
        CompletionItem(before + name, help=what) for name, what in result if name.startswith(begun)
    ]


class _Bash(_Completing, BashComplete):
    """Bash cuts words at `=`, which belongs to the option before it."""

    def get_completion_args(self) -> tuple[list[str], str]:
        args, incomplete = super().get_completion_args()
        joined: list[str] = []
        rest = iter(args)
        for word in rest:
            if word == "=" and joined:
                joined[-1] += "=" + next(rest, "")
            else:
                joined.append(word)
        return joined, incomplete


class _Zsh(_Completing, ZshComplete):
    """Zsh."""


class _Fish(_Completing, FishComplete):
    """Fish."""


CLASSES: dict[str, type[ShellComplete]] = {"bash": _Bash, "zsh": _Zsh, "fish": _Fish}


def register() -> None:
    """Have click answer the three shells by these classes."""
    for name, kind in CLASSES.items():
        add_completion_class(kind, name)
