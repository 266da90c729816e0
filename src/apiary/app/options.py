# SPDX-License-Identifier: GPL-3.0-or-later

"""The options that several commands have: inventories, hosts of them, variables, vaults."""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Sequence
from contextlib import redirect_stderr
from typing import Any, TypeVar

import click
from click.shell_completion import CompletionItem

F = TypeVar("F", bound=Callable[..., Any])


def inventory_option(help_text: str) -> Callable[[F], F]:
    """Return the option --inventory, whose values are in the parameter ``sources``."""
    return click.option(
        "-i", "--inventory", "sources", multiple=True, type=click.Path(), help=help_text
    )


def limit_option(help_text: str = "Only these hosts of the inventory.") -> Callable[[F], F]:
    """Return the option --limit."""
    return click.option(
        "-l", "--limit", metavar="PATTERN", shell_complete=complete_hosts, help=help_text
    )


def extra_option(help_text: str = "As Ansible's.") -> Callable[[F], F]:
    """Return the option -e, whose values are in the parameter ``extra``."""
    return click.option(
        "-e", "--extra-vars", "extra", multiple=True, metavar="VARS", help=help_text
    )


def vault_option(help_text: str | None = None) -> Callable[[F], F]:
    """Return the option --vault-password-file, whose values are in the parameter ``vault``."""
    return click.option(
        "--vault-password-file",
        "vault",
        multiple=True,
        type=click.Path(exists=True, dir_okay=False),
        help=help_text,
    )


def complete_hosts(
    context: click.Context, _option: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Return groups and hosts; of a pattern such as `rack1:!gpu-` the last name is completed."""
    cut = max(incomplete.rfind(sign) for sign in ",:!&") + 1
    before, begun = incomplete[:cut], incomplete[cut:]
    names = names_of(context.params.get("sources") or ())
    return [CompletionItem(before + name) for name in names if name.startswith(begun)]


def names_of(sources: Sequence[str]) -> list[str]:
    """Return the groups and hosts of YAML and INI inventories; no script is run."""
    if not sources:
        return []
    os.environ["ANSIBLE_INVENTORY_ENABLED"] = "yaml,ini"
    from ansible.errors import AnsibleError  # slow to import, and mostly not needed
    from ansible.inventory.manager import InventoryManager
    from ansible.parsing.dataloader import DataLoader

    with redirect_stderr(io.StringIO()):
        try:
            manager = InventoryManager(DataLoader(), list(sources))
        except AnsibleError:
            return []
    return [*manager.groups, *manager.hosts]
