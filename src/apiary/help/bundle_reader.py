# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Read the secrets of an inventory: a program of its own, a request on stdin, JSON on stdout.

As inventory_reader.py; needs ansible-core and the standard library, nothing of Apiary. What it
answers are secrets: only the command that started it reads them, from a pipe.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any


def answer(request: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``secrets``, every value that is one, and ``error``.

    ``request`` has ``sources``, ``limit``, ``vaulted`` (encrypted files), ``variables`` (names that
    are secrets) and the expressions ``secret`` and ``innocent`` that names of others are judged by.
    """
    from ansible.errors import AnsibleError

    try:
        return {"secrets": sorted(set(_read(request))), "error": None}
    except AnsibleError as failure:
        return {"error": " ".join(str(failure).split())}


def _read(request: Mapping[str, Any]) -> Iterator[str]:
    from ansible.inventory.manager import InventoryManager
    from ansible.parsing.dataloader import DataLoader
    from ansible.plugins.loader import init_plugin_loader
    from ansible.vars.manager import VariableManager

    init_plugin_loader()
    loader = DataLoader()
    secrets = _unlock(loader)
    # A password from a script or from ansible.cfg is known here alone.
    yield from (one.bytes.decode("utf-8", "replace") for _name, one in secrets if one.bytes)
    inventory = InventoryManager(loader, sources=list(request["sources"]))
    variables = VariableManager(loader, inventory)
    for name in request["vaulted"]:
        yield from _of_file(name, secrets)
    asked = _Asked(request)
    # Of all hosts, whichever are asked for: a journal of one may have the secret of another.
    for host in inventory.get_hosts("all"):
        own = variables.get_vars(host=host, include_hostvars=False)
        yield from asked.of(own, loader)


class _Asked:
    """Which variables are secrets; what hosts share is looked at once."""

    def __init__(self, request: Mapping[str, Any]) -> None:
        self.names = set(request["variables"])
        self.secret, self.innocent = re.compile(request["secret"]), re.compile(request["innocent"])
        self.seen: set[tuple[str, int]] = set()
        self.kept: list[Any] = []  # so that no other value gets the id of one

    def of(self, variables: Mapping[str, Any], loader: Any) -> Iterator[str]:
        """Yield the secrets among a host's variables."""
        from ansible.errors import AnsibleError
        from ansible.template import Templar

        templar = Templar(loader=loader, variables=variables)
        for name, value in variables.items():
            if name in ("groups", "hostvars", "vars") or (name, id(value)) in self.seen:
                continue
            self.seen.add((name, id(value)))
            self.kept.append(value)
            yield from _vaulted(value)
            if name in self.names or self._named(name):
                yield from _leaves(value)
                try:
                    yield from _leaves(templar.template(value))
                except AnsibleError:
                    continue  # what it names is a secret of its own, or is not there
            elif isinstance(value, (Mapping, list)):
                yield from self._inside(value)

    def _named(self, name: str) -> bool:
        if self.innocent.search(name):
            return False
        return name.startswith("vault_") or bool(self.secret.search(name))

    def _inside(self, value: Any) -> Iterator[str]:
        """Yield what lies below a secret's name within a mapping."""
        if isinstance(value, Mapping):
            for key, one in value.items():
                if self._named(str(key)):
                    yield from _leaves(one)
                else:
                    yield from self._inside(one)
        elif isinstance(value, (list, tuple)):
            for one in value:
                yield from self._inside(one)


def _leaves(value: Any) -> Iterator[str]:
    if isinstance(value, Mapping):
        for one in value.values():
            yield from _leaves(one)
    elif isinstance(value, (list, tuple)):
        for one in value:
            yield from _leaves(one)
    elif isinstance(value, bytes):
        yield value.decode("utf-8", "replace")
    elif value is not None and not isinstance(value, bool):
        text = str(value)
        # A template is no secret; what it stands for is.
        if text and "{{" not in text and not (isinstance(value, int) and len(text) < 6):
            yield text


def _vaulted(value: Any) -> Iterator[str]:
    """Yield values that were encrypted one by one, whatever they are called."""
    try:
        from ansible._internal._datatag._tags import VaultedValue
    except ImportError:  # another ansible-core may keep it elsewhere
        return
    if isinstance(value, Mapping):
        for one in value.values():
            yield from _vaulted(one)
    elif isinstance(value, (list, tuple)):
        for one in value:
            yield from _vaulted(one)
    elif isinstance(value, str) and VaultedValue.is_tagged_on(value):
        yield str(value)


def _of_file(name: str, secrets: Any) -> Iterator[str]:
    """Yield what an encrypted file holds: its values, or its lines where it is no YAML."""
    import yaml
    from ansible.parsing.vault import VaultLib

    text = VaultLib(secrets).decrypt(Path(name).read_bytes()).decode("utf-8", "replace")
    try:
        data = yaml.safe_load(text)
    except yaml.YAMLError:
        data = None
    if isinstance(data, (Mapping, list)):
        yield from _leaves(data)
    else:
        yield text


def _unlock(loader: Any) -> Any:
    """Give the loader the vault passwords that Ansible's configuration names; return them."""
    from ansible import constants
    from ansible.parsing.vault import VaultSecretsContext

    identities = list(constants.DEFAULT_VAULT_IDENTITY_LIST or [])
    if not identities and not constants.DEFAULT_VAULT_PASSWORD_FILE:
        VaultSecretsContext.initialize(VaultSecretsContext([]))
        return []
    from ansible.cli import CLI  # only here: it refuses locales that the rest can do with

    return CLI.setup_vault_secrets(loader, vault_ids=identities, auto_prompt=False)


def main() -> None:
    """Answer the one request; whatever Ansible prints goes to stderr."""
    request = json.load(sys.stdin)
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as out:
        os.dup2(2, 1)
        json.dump(answer(request), out)


if __name__ == "__main__":
    main()
