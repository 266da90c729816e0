# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Read an inventory with ansible-core: a program of its own, a request on stdin, JSON on stdout.

Ansible puts its collection finder before Python's own and prints warnings where it likes, so it
gets a process of its own. Needs ansible-core and the standard library, nothing of Apiary.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from typing import Any

# What of the ssh connection's options concerns a login and a command; the rest moves files.
OPTIONS = (
    "host",
    "host_key_checking",
    "password",
    "port",
    "private_key",
    "private_key_file",
    "remote_user",
    "ssh_args",
    "ssh_common_args",
    "ssh_executable",
    "ssh_extra_args",
)
VARIABLES = ("ansible_connection", "ansible_python_interpreter", "ansible_become")


def answer(request: Mapping[str, Any]) -> dict[str, Any]:
    """Return the hosts of an inventory with what Ansible would connect them by.

    ``request`` has ``sources``, ``limit`` and ``patterns``. The answer has ``hosts``, those each
    pattern has ``chosen`` (None: the inventory knows no such one), ``total`` and ``error``.
    """
    from ansible.errors import AnsibleError

    try:
        return _read(request)
    except AnsibleError as failure:
        return {"error": str(failure)}


def _read(request: Mapping[str, Any]) -> dict[str, Any]:
    from ansible.inventory.manager import InventoryManager
    from ansible.parsing.dataloader import DataLoader
    from ansible.plugins.loader import connection_loader, init_plugin_loader
    from ansible.utils.path import unfrackpath
    from ansible.vars.manager import VariableManager

    unread: list[str] = []

    class Inventory(InventoryManager):  # type: ignore[misc] # Ansible has no types
        """Remembers the sources that Ansible only warns about."""

        def parse_source(self, source: str, cache: bool = False) -> bool:
            parsed: bool = super().parse_source(source, cache=cache)
            if not parsed:
                unread.append(source)
            return parsed

    init_plugin_loader()
    loader = DataLoader()
    _unlock(loader)
    inventory = Inventory(loader, sources=list(request["sources"]))
    for source in request["sources"]:
        if (source if "," in source else unfrackpath(source, follow=False)) in unread:
            return {"error": f"{source} is no inventory that Ansible can read"}
    connection_loader.get("ssh", class_only=True)  # makes its options known
    variables = VariableManager(loader, inventory)
    every = inventory.get_hosts()
    inventory.subset(request["limit"])

    def named(pattern: str) -> list[Any]:
        # localhost is in no inventory, and yet Ansible finds it.
        return [host for host in inventory.get_hosts(pattern) if not host.implicit]

    chosen: dict[str, list[str] | None] = {}
    hosts: dict[str, Any] = {}
    if not request["patterns"]:
        hosts = {host.name: None for host in named("all")}
    for pattern in request["patterns"]:
        known = pattern in every or any(
            not host.implicit for host in inventory.get_hosts(pattern, ignore_limits=True)
        )
        here = [host.name for host in named(pattern)]
        chosen[pattern] = here if known else None
        hosts |= dict.fromkeys(here)
    for name in hosts:
        own = variables.get_vars(host=inventory.get_host(name))
        hosts[name] = _connection(own, loader)
    return {"hosts": hosts, "chosen": chosen, "total": len(every), "error": None}


def _unlock(loader: Any) -> None:
    """Give the loader the vault passwords that Ansible's configuration names."""
    from ansible import constants
    from ansible.parsing.vault import VaultSecretsContext

    identities = list(constants.DEFAULT_VAULT_IDENTITY_LIST or [])
    if not identities and not constants.DEFAULT_VAULT_PASSWORD_FILE:
        VaultSecretsContext.initialize(VaultSecretsContext([]))
        return
    from ansible.cli import CLI  # only here: it refuses locales that the rest can do with

    CLI.setup_vault_secrets(loader, vault_ids=identities, auto_prompt=False)


def _connection(variables: Mapping[str, Any], loader: Any) -> dict[str, Any]:
    """Return one host's connection options with every template in them resolved."""
    from ansible import constants
    from ansible.errors import AnsibleError
    from ansible.template import Templar

    wanted = {
        entry["name"]
        for option in OPTIONS
        for entry in constants.config.get_configuration_definition(option, "connection", "ssh").get(
            "vars", ()
        )
    }
    templar = Templar(loader=loader, variables=variables)
    values: dict[str, Any] = {}
    problems = []
    for name in sorted({*wanted, *VARIABLES} & variables.keys()):
        try:
            values[name] = templar.template(variables[name])
        except AnsibleError as failure:
            problems.append(f"{name}: {failure}")
    options: dict[str, Any] = {}
    for option in OPTIONS:
        try:
            found = constants.config.get_config_value(
                option, plugin_type="connection", plugin_name="ssh", variables=values
            )
            options[option] = _plain(found)
        except AnsibleError as failure:
            problems.append(f"{option}: {failure}")
    more = {name: _plain(values.get(name)) for name in VARIABLES}
    more["ansible_connection"] = more["ansible_connection"] or str(constants.DEFAULT_TRANSPORT)
    # What a secret is worth is nobody's business; that there is one is.
    for secret in ("password", "private_key"):
        options[secret] = bool(options.get(secret))
    return {"options": options, **more, "problems": problems}


def _plain(value: Any) -> Any:
    """Return a value without Ansible's tags."""
    if value is None or isinstance(value, bool):
        return value
    return int(value) if isinstance(value, int) else str(value)


def main() -> None:
    """Answer the one request; whatever Ansible prints goes to stderr."""
    request = json.load(sys.stdin)
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as out:
        os.dup2(2, 1)
        json.dump(answer(request), out)


if __name__ == "__main__":
    main()
