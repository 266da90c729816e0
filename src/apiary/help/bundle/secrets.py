# SPDX-License-Identifier: GPL-3.0-or-later

"""The secrets that this machine knows by their value: the inventory's, the environment's."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from ansible_collections.apiary.instinct.plugins.plugin_utils.documents import knowledge
from ansible_collections.apiary.instinct.plugins.plugin_utils.findings import error
from ansible_collections.apiary.instinct.plugins.plugin_utils.host.role_options import (
    ROLES,
    read_role,
)

from apiary.app.ask_ansible import ask_ansible
from apiary.help.bundle.masking import secret_name
from apiary.help.doctor.gather import encrypted_files

# Files that hold one token each, of this user.
_TOKENS = ("~/.cache/huggingface/token", "~/.huggingface/token")


def known_secrets(sources: Sequence[str], vault: Sequence[str]) -> list[str]:
    """Return every secret of the inventory, of the vault's password files and the environment.

    Raises BUNDLE-VAULT where the inventory cannot be read: its secrets would not be recognised.
    """
    matches = [value for name, value in os.environ.items() if secret_name(name)]
    for name in (*vault, os.environ.get("ANSIBLE_VAULT_PASSWORD_FILE", ""), *_TOKENS):
        path = Path(name.rpartition("@")[2]).expanduser()
        if name and path.is_file() and not os.access(path, os.X_OK):
            matches.append(path.read_text(encoding="utf-8", errors="replace"))
    return [*matches, *(_of_inventory(sources, vault) if sources else ())]


def secret_variables() -> list[str]:
    """Return the names of variables that the roles and Ansible keep secret."""
    named = list(knowledge("variables.yml")["secrets"])
    for path in sorted(ROLES.glob("*/meta/argument_specs.yml")):
        options = read_role(path.parents[1].name).options
        named += [name for name, option in options.items() if option.get("no_log")]
    return sorted(set(named))


def _of_inventory(sources: Sequence[str], vault: Sequence[str]) -> list[str]:
    whole, _partly = encrypted_files(sources)
    names = knowledge("secrets.yml")["names"]
    request = {
        "sources": list(sources),
        "secrets": {
            "vaulted": whole,
            "variables": secret_variables(),
            "secret": names["secret"],
            "innocent": names["innocent"],
        },
    }
    answer, _printed = ask_ansible(request, vault)
    if answer["error"]:
        raise error(
            "BUNDLE-VAULT",
            ", ".join(sources),
            f"its secrets cannot be read, so nobody could take them out: {answer['error'][-600:]}",
        )
    secrets: list[str] = answer["secrets"]
    return secrets
