# SPDX-License-Identifier: GPL-3.0-or-later

"""What Ansible would run with: its settings, collections and vault passwords."""

from __future__ import annotations

import contextlib
import json
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from apiary.app.ansible_reader.inventory import passwords

PROMPTS = ("ask_pass", "become_ask_pass", "ask_vault_pass")


def settings(request: Mapping[str, Any]) -> dict[str, Any]:
    """Return what Ansible would run with: doctor's AnsibleFacts."""
    try:
        from ansible import cli, constants, release  # cli refuses locales that are not UTF-8
        from ansible.config.manager import find_ini_config_file
    except SystemExit as refusal:
        return {"refused": str(refusal.code).removeprefix("ERROR: ")}
    except ImportError as failure:
        return {"refused": f"{failure}"}
    warnings: set[str] = set()
    find_ini_config_file(warnings)
    password = constants.DEFAULT_VAULT_PASSWORD_FILE
    files = [*(constants.DEFAULT_VAULT_IDENTITY_LIST or []), *([password] if password else [])]
    return {
        "refused": None,
        "version": release.__version__,
        "config": constants.CONFIG_FILE,
        "warnings": sorted(warnings),
        "forks": constants.DEFAULT_FORKS,
        "host_key_checking": bool(constants.HOST_KEY_CHECKING),
        "prompts": [name for name in PROMPTS if getattr(constants, f"DEFAULT_{name.upper()}")],
        "vault_password_files": [str(file).rpartition("@")[2] for file in files],
        "collections": {name: _collection(name) for name in request["collections"]},
        "vault": _vault(cli.CLI, bool(files), request["vaulted"]),
    }


def _collection(name: str) -> list[str] | None:
    """Return the version and the directory of a collection that Ansible finds."""
    import importlib.util

    from ansible.plugins.loader import init_plugin_loader

    if not any(type(finder).__name__ == "_AnsibleCollectionFinder" for finder in sys.meta_path):
        init_plugin_loader()
    try:
        spec = importlib.util.find_spec(f"ansible_collections.{name}")
    except (ImportError, ValueError):
        spec = None
    if spec is None or not spec.submodule_search_locations:
        return None
    directory = Path(next(iter(spec.submodule_search_locations)))
    return [_version(directory), str(directory)]


def _version(directory: Path) -> str:
    import yaml

    wrong = (OSError, ValueError, KeyError, TypeError, AttributeError, yaml.YAMLError)
    for name, load in (("MANIFEST.json", json.loads), ("galaxy.yml", yaml.safe_load)):
        with contextlib.suppress(*wrong):
            read = load((directory / name).read_text(encoding="utf-8"))
            return str(read.get("collection_info", read)["version"])
    return "of unknown version"


def _vault(cli: Any, unlocked: bool, names: list[str]) -> dict[str, str | None]:
    """Return why each encrypted file cannot be read; None for one that can."""
    from ansible.errors import AnsibleError
    from ansible.parsing.dataloader import DataLoader
    from ansible.parsing.vault import VaultLib

    if not names or not unlocked:
        return dict.fromkeys(names, "there is no vault password")
    try:
        vault = VaultLib(passwords(DataLoader()))
    except (AnsibleError, OSError) as failure:
        return dict.fromkeys(names, " ".join(str(failure).split()))
    readable: dict[str, str | None] = {}
    for name in names:
        try:
            vault.decrypt(Path(name).read_bytes())
            readable[name] = None
        except (AnsibleError, OSError) as failure:
            readable[name] = " ".join(str(failure).split())[:200]
    return readable


if TYPE_CHECKING:
    from apiary.app.ansible_reader.inventory import Inventory


class Secrets:
    """The secrets of an inventory; what hosts share is read once."""

    def __init__(self, request: Mapping[str, Any], passwords: Any) -> None:
        self.names = set(request["variables"])
        self.secret, self.innocent = re.compile(request["secret"]), re.compile(request["innocent"])
        self.vaulted: Sequence[str] = request["vaulted"]
        self.passwords = passwords
        self.read: set[tuple[str, int]] = set()
        self.retained: list[Any] = []  # so that no other value gets the id of one of these

    def of_inventory(self, inventory: Inventory) -> Iterator[str]:
        """Yield every secret of encrypted files and of all hosts."""
        # A password from a script or from ansible.cfg is nowhere else.
        for _name, password in self.passwords:
            if password.bytes:
                yield password.bytes.decode("utf-8", "replace")
        for name in self.vaulted:
            yield from self._of_file(name)
        # Of all hosts, whatever the limit: a journal of one may have the secret of another.
        for host in inventory.manager.get_hosts("all"):
            yield from self._of_host(inventory.of(host), inventory.loader)

    def _of_file(self, name: str) -> Iterator[str]:
        """Yield what an encrypted file has: its values, or its lines where it is no YAML."""
        import yaml
        from ansible.parsing.vault import VaultLib

        content = VaultLib(self.passwords).decrypt(Path(name).read_bytes())
        text = content.decode("utf-8", "replace")
        try:
            data = yaml.safe_load(text)
        except yaml.YAMLError:
            data = None
        if isinstance(data, (Mapping, list)):
            yield from _leaves(data)
        else:
            yield text

    def _of_host(self, variables: Mapping[str, Any], loader: Any) -> Iterator[str]:
        from ansible.errors import AnsibleError
        from ansible.template import Templar

        templar = Templar(loader=loader, variables=variables)
        for name, value in variables.items():
            if name in ("groups", "hostvars", "vars") or (name, id(value)) in self.read:
                continue
            self.read.add((name, id(value)))
            self.retained.append(value)
            yield from _encrypted(value)
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
            for key, item in value.items():
                yield from (_leaves if self._named(str(key)) else self._inside)(item)
        elif isinstance(value, (list, tuple)):
            for item in value:
                yield from self._inside(item)


def _items(value: Any) -> Any:
    return value.values() if isinstance(value, Mapping) else value


def _leaves(value: Any) -> Iterator[str]:
    if isinstance(value, (Mapping, list, tuple)):
        for item in _items(value):
            yield from _leaves(item)
    elif isinstance(value, bytes):
        yield value.decode("utf-8", "replace")
    elif value is not None and not isinstance(value, bool):
        text = str(value)
        # A template is no secret; what it stands for is.
        if text and "{{" not in text and not (isinstance(value, int) and len(text) < 6):
            yield text


def _encrypted(value: Any) -> Iterator[str]:
    """Yield values that were encrypted one by one, whatever they are called."""
    try:
        from ansible._internal._datatag._tags import VaultedValue
    except ImportError:  # another ansible-core may have it elsewhere
        return
    if isinstance(value, (Mapping, list, tuple)):
        for item in _items(value):
            yield from _encrypted(item)
    elif isinstance(value, str) and VaultedValue.is_tagged_on(value):
        yield str(value)
