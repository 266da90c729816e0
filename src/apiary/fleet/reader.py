# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Read where an inventory's hosts stand: a program of its own, a request on stdin, JSON on stdout.

As inventory_reader.py, which reads how they are reached. Needs ansible-core, nothing of Apiary.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from typing import Any

# Groups whose members learn of what changes on others.
BESIDE = ("routers", "monitoring")


def answer(request: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``hosts`` of ``pattern`` that ``limit`` leaves, in order, with groups and variables.

    Each also says whether it ``spans``: a replica of its own may be on other hosts, too.
    ``request`` has ``sources``, ``limit``, ``pattern``, the names of ``variables`` and, as values
    of -e, ``extra``. The answer also has ``total``, how many the pattern has without the limit,
    ``beside``, the members of routers and monitoring, ``localhost``, whether the inventory itself
    has it, and ``error``.
    """
    from ansible.errors import AnsibleError

    try:
        return _read(request)
    except AnsibleError as failure:
        where = _place(failure)
        return {"error": f"{failure} ({where})" if where else str(failure)}


def _place(failure: BaseException | None) -> str:
    """Return FILE:LINE:COLUMN of a failure, which its text leaves out; the one for a file of
    variables is behind another that does not know it."""
    while failure is not None:
        context = str(getattr(failure, "_formatted_source_context", None) or "")
        if context.startswith("Origin: "):
            return context.partition("\n")[0].removeprefix("Origin: ")
        failure = failure.__cause__ or failure.__context__
    return ""


def _read(request: Mapping[str, Any]) -> dict[str, Any]:
    from ansible import context
    from ansible.inventory.manager import InventoryManager
    from ansible.module_utils.common.collections import ImmutableDict
    from ansible.parsing.dataloader import DataLoader
    from ansible.plugins.loader import init_plugin_loader
    from ansible.template import Templar
    from ansible.vars.manager import VariableManager

    init_plugin_loader()
    loader = DataLoader()
    _unlock(loader)
    # Where the command line of an Ansible program would have them.
    context.CLIARGS = ImmutableDict(extra_vars=tuple(request["extra"]))
    inventory = InventoryManager(loader, sources=list(request["sources"]) or None)
    variables = VariableManager(loader, inventory)
    everybody = {host.name for host in inventory.get_hosts("all")}
    pattern = request["pattern"]
    total = sum(host.name in everybody for host in inventory.get_hosts(pattern))
    groups = [inventory.groups[name] for name in BESIDE if name in inventory.groups]
    inventory.subset(request["limit"])
    hosts: dict[str, Any] = {}
    for host in inventory.get_hosts(pattern):
        if host.name not in everybody:  # localhost is in no inventory, and yet Ansible finds it
            continue
        own = variables.get_vars(host=host, include_hostvars=False)
        templar = Templar(loader=loader, variables=own)
        hosts[host.name] = {
            "groups": [name for name in own.get("group_names", ()) if name != pattern],
            "spans": _spans(templar, own),
            **{name: _texts(templar, own.get(name)) for name in request["variables"]},
        }
    return {
        "hosts": hosts,
        "total": total,
        "beside": list(dict.fromkeys(host.name for one in groups for host in one.get_hosts())),
        "localhost": "localhost" in everybody,
        "error": None,
    }


def _texts(templar: Any, value: Any) -> list[str]:
    """Return a variable, text or a list of it, as a list without what is empty."""
    found = None if value is None else templar.template(value)
    listed = found if isinstance(found, (list, tuple)) else [found]
    return [str(one) for one in listed if one not in (None, "")]


def _spans(templar: Any, own: Mapping[str, Any]) -> bool:
    """Say whether a deployment's layout has nodes; also where only a run could tell.

    No more is templated than the way to that number: the rest may look up secrets.
    """
    from ansible.errors import AnsibleError

    def settled(value: Any) -> Any:
        return templar.template(value) if isinstance(value, str) else value

    try:
        several = settled(own.get("apiary_deployments")) or [own.get("apiary_deployment")]
        layouts = [settled((settled(one) or {}).get("layout")) for one in several]
        return any(
            str(settled(one.get("nodes", 1))) != "1" for one in layouts if isinstance(one, Mapping)
        )
    except (AnsibleError, AttributeError, TypeError):
        return True


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


def main() -> None:
    """Answer the one request; whatever Ansible prints goes to stderr."""
    request = json.load(sys.stdin)
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as out:
        os.dup2(2, 1)
        json.dump(answer(request), out)


if __name__ == "__main__":
    main()
