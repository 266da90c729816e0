# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Ask Ansible what it would run with: a program of its own, a request on stdin, JSON on stdout.

As inventory_reader.py; needs ansible-core and the standard library, nothing of Apiary.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

PROMPTS = ("ask_pass", "become_ask_pass", "ask_vault_pass")


def answer(request: Mapping[str, Any]) -> dict[str, Any]:
    """Return doctor_types.AnsibleFacts; ``request`` has ``collections`` and ``vaulted``."""
    try:
        from ansible import cli, constants, release  # cli refuses locales that are not UTF-8
        from ansible.config.manager import find_ini_config_file
    except SystemExit as refusal:
        return {"refused": str(refusal.code).removeprefix("ERROR: ")}
    except ImportError as failure:
        return {"refused": f"{failure}"}
    warnings: set[str] = set()
    find_ini_config_file(warnings)
    files = [*(constants.DEFAULT_VAULT_IDENTITY_LIST or [])]
    files += (
        [constants.DEFAULT_VAULT_PASSWORD_FILE] if constants.DEFAULT_VAULT_PASSWORD_FILE else []
    )
    return {
        "refused": None,
        "version": release.__version__,
        "config": constants.CONFIG_FILE,
        "warnings": sorted(warnings),
        "forks": constants.DEFAULT_FORKS,
        "host_key_checking": bool(constants.HOST_KEY_CHECKING),
        "prompts": [name for name in PROMPTS if getattr(constants, f"DEFAULT_{name.upper()}")],
        "vault_password_files": [str(one).rpartition("@")[2] for one in files],
        "collections": {name: _collection(name) for name in request["collections"]},
        "vault": _vault(cli.CLI, constants, request["vaulted"]),
    }


def _collection(name: str) -> list[str] | None:
    """Return the version and the directory of a collection that Ansible finds."""
    import importlib.util

    from ansible.plugins.loader import init_plugin_loader

    if not any(type(one).__name__ == "_AnsibleCollectionFinder" for one in sys.meta_path):
        init_plugin_loader()
    try:
        found = importlib.util.find_spec(f"ansible_collections.{name}")
    except (ImportError, ValueError):
        found = None
    if found is None or not found.submodule_search_locations:
        return None
    directory = Path(next(iter(found.submodule_search_locations)))
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


def _vault(cli: Any, constants: Any, names: list[str]) -> dict[str, str | None]:
    """Return why each encrypted file cannot be read; None for one that can."""
    from ansible.errors import AnsibleError
    from ansible.parsing.dataloader import DataLoader
    from ansible.parsing.vault import VaultLib

    if not names:
        return {}
    identities = list(constants.DEFAULT_VAULT_IDENTITY_LIST or [])
    if not identities and not constants.DEFAULT_VAULT_PASSWORD_FILE:
        return dict.fromkeys(names, "there is no vault password")
    try:
        vault = VaultLib(
            cli.setup_vault_secrets(DataLoader(), vault_ids=identities, auto_prompt=False)
        )
    except (AnsibleError, OSError) as failure:
        return dict.fromkeys(names, " ".join(str(failure).split()))
    found: dict[str, str | None] = {}
    for name in names:
        try:
            vault.decrypt(Path(name).read_bytes())
            found[name] = None
        except (AnsibleError, OSError) as failure:
            found[name] = " ".join(str(failure).split())[:200]
    return found


def main() -> None:
    """Answer the one request; whatever Ansible prints goes to stderr."""
    request = json.load(sys.stdin)
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as out:
        os.dup2(2, 1)
        json.dump(answer(request), out)


if __name__ == "__main__":
    main()
