# SPDX-License-Identifier: GPL-3.0-or-later

"""The options that several commands have: inventories, hosts of them, variables, vaults."""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stderr
from pathlib import Path
from typing import Any, TypeVar

import click
import yaml
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


def price_option(command: F) -> F:
    """Add the option --gpu-hour-price."""
    help_text = "What one GPU costs an hour, as 2.10 (USD) or '2.10 EUR'; else as results say."
    return click.option("--gpu-hour-price", metavar="PRICE", help=help_text)(command)


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


def split_extra(
    values: Sequence[str], refused: Mapping[str, str] | None = None
) -> tuple[list[str], dict[str, Any]]:
    """Return the files among values of -e as "@/PATH", and the variables of the others.

    ``refused`` says of names that may not be given what to do instead. Raises UsageError for
    them, and for what ansible-playbook would not take.
    """
    files: list[str] = []
    inline: dict[str, Any] = {}
    for item in values:
        if item.startswith("@"):
            path = Path(item[1:]).expanduser().absolute()
            if not path.is_file():
                raise click.UsageError(f"-e {item}: there is no such file")
            files.append(f"@{path}")
        else:
            inline |= _inline(item)
    for name, instead in (refused or {}).items():
        if name in inline:
            raise click.UsageError(f"-e {name}: {instead}")
    return files, inline


def _inline(text: str) -> dict[str, Any]:
    """Return the variables of a mapping or of NAME=VALUE; a refusal does not repeat the values."""
    if text[:1] in "[{":
        try:
            read = yaml.safe_load(text)
        except yaml.YAMLError:
            read = None
        if not isinstance(read, dict):
            raise click.UsageError("-e: what begins with { or [ is no mapping of variables")
        return read
    from ansible.errors import AnsibleError  # slow to import, and mostly not needed
    from ansible.parsing.splitter import parse_kv

    try:
        read = {str(name): str(value) for name, value in parse_kv(text).items()}
    except AnsibleError:
        read = {}
    if not read or "_raw_params" in read:
        raise click.UsageError("-e: expected NAME=VALUE, a mapping, or @FILE")
    return read
