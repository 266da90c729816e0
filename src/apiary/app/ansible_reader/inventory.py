# SPDX-License-Identifier: GPL-3.0-or-later

"""An inventory as Ansible reads it: hosts, where they stand and how they are connected."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

# Groups whose members learn of what changes on others.
BESIDE = ("routers", "monitoring")
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
CONNECTION = ("ansible_connection", "ansible_python_interpreter", "ansible_become")


def passwords(loader: Any) -> Any:
    """Give the loader the vault passwords that Ansible's configuration names; return them."""
    from ansible import constants
    from ansible.parsing.vault import VaultSecretsContext

    identities = list(constants.DEFAULT_VAULT_IDENTITY_LIST or [])
    if not identities and not constants.DEFAULT_VAULT_PASSWORD_FILE:
        VaultSecretsContext.initialize(VaultSecretsContext([]))
        return []
    from ansible.cli import CLI  # only here: it refuses locales that the rest can do with

    return CLI.setup_vault_secrets(loader, vault_ids=identities, auto_prompt=False)


class Inventory:
    """An inventory as Ansible reads it, with the variables of its hosts."""

    def __init__(self, request: Mapping[str, Any]) -> None:
        from ansible import context
        from ansible.inventory.manager import InventoryManager
        from ansible.module_utils.common.collections import ImmutableDict
        from ansible.parsing.dataloader import DataLoader
        from ansible.plugins.loader import init_plugin_loader
        from ansible.vars.manager import VariableManager

        init_plugin_loader()
        self.loader = DataLoader()
        self.passwords = passwords(self.loader)
        # Where the command line of an Ansible program would have them.
        context.CLIARGS = ImmutableDict(extra_vars=tuple(request.get("extra", ())))
        self.manager = InventoryManager(self.loader, sources=list(request["sources"]) or None)
        self.variables = VariableManager(self.loader, self.manager)

    def of(self, host: Any, others: bool = False) -> Any:
        """Return a host's variables, ``others`` with those of every host."""
        return self.variables.get_vars(host=host, include_hostvars=others)

    def matching(self, pattern: str) -> list[Any]:
        """Return a pattern's hosts; localhost is in no inventory, and yet Ansible finds it."""
        return [host for host in self.manager.get_hosts(pattern) if not host.implicit]

    def hosts(self, request: Mapping[str, Any], limit: str | None) -> dict[str, Any]:
        """Return what the part ``hosts`` of a request is answered."""
        if request["connection"]:
            from ansible.plugins.loader import connection_loader

            connection_loader.get("ssh", class_only=True)  # makes its options known
        every = self.matching("all")
        patterns = request["patterns"]
        matched = {pattern: len(self.matching(pattern)) for pattern in patterns}
        beside = [
            host.name
            for name in BESIDE
            if name in self.manager.groups
            for host in self.manager.groups[name].get_hosts()
        ]
        self.manager.subset(limit)
        selected = {pattern: self.matching(pattern) for pattern in patterns or ["all"]}
        hosts = {host.name: host for listed in selected.values() for host in listed}
        return {
            "hosts": {name: self._host(host, request) for name, host in hosts.items()},
            "selected": {
                pattern: [host.name for host in selected[pattern]] if matched[pattern] else None
                for pattern in patterns
            },
            "matched": matched,
            "total": len(every),
            "beside": list(dict.fromkeys(beside)),
            "localhost": any(host.name == "localhost" for host in every),
        }

    def _host(self, host: Any, request: Mapping[str, Any]) -> dict[str, Any]:
        from ansible.template import Templar

        own = self.of(host, others=request["connection"])
        templar = Templar(loader=self.loader, variables=own)
        entry: dict[str, Any] = {"groups": list(own.get("group_names", ()))}
        entry |= {name: _texts(templar, own.get(name)) for name in request["variables"]}
        if request["connection"]:
            return entry | _connection(own, templar)
        return entry | {"spans": _spans(templar, own)}


def _texts(templar: Any, value: Any) -> list[str]:
    """Return a variable, text or a list of it, as a list without what is empty."""
    resolved = None if value is None else templar.template(value)
    listed = resolved if isinstance(resolved, (list, tuple)) else [resolved]
    return [str(item) for item in listed if item not in (None, "")]


def _spans(templar: Any, own: Mapping[str, Any]) -> bool:
    """Return whether a deployment's layout has nodes; also where only a run could tell.

    No more is templated than the way to that number: the rest may look up secrets.
    """
    from ansible.errors import AnsibleError

    def resolved(value: Any) -> Any:
        return templar.template(value) if isinstance(value, str) else value

    try:
        deployments = resolved(own.get("apiary_deployments")) or [own.get("apiary_deployment")]
        layouts = [resolved((resolved(item) or {}).get("layout")) for item in deployments]
        return any(
            str(resolved(layout.get("nodes", 1))) != "1"
            for layout in layouts
            if isinstance(layout, Mapping)
        )
    except (AnsibleError, AttributeError, TypeError):
        return True


def _connection(variables: Mapping[str, Any], templar: Any) -> dict[str, Any]:
    """Return one host's connection options with every template in them resolved."""
    from ansible import constants
    from ansible.errors import AnsibleError

    definition = constants.config.get_configuration_definition
    names = {
        entry["name"]
        for option in OPTIONS
        for entry in definition(option, "connection", "ssh").get("vars", ())
    }
    values: dict[str, Any] = {}
    problems = []
    for name in sorted({*names, *CONNECTION} & variables.keys()):
        try:
            values[name] = templar.template(variables[name])
        except AnsibleError as failure:
            problems.append(f"{name}: {failure}")
    options: dict[str, Any] = {}
    for option in OPTIONS:
        try:
            value = constants.config.get_config_value(
                option, plugin_type="connection", plugin_name="ssh", variables=values
            )
            options[option] = _plain(value)
        except AnsibleError as failure:
            problems.append(f"{option}: {failure}")
    more = {name: _plain(values.get(name)) for name in CONNECTION}
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
