# SPDX-License-Identifier: GPL-3.0-or-later

"""What Ansible would run with: its settings, collections and vault passwords."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

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

    try:
        manifest = json.loads((directory / "MANIFEST.json").read_text(encoding="utf-8"))
        return str(manifest["collection_info"]["version"])
    except (OSError, ValueError, KeyError):
        pass
    try:
        galaxy = yaml.safe_load((directory / "galaxy.yml").read_text(encoding="utf-8"))
        return str(galaxy["version"])
    except (OSError, ValueError, KeyError, TypeError, yaml.YAMLError):
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
