# SPDX-License-Identifier: GPL-3.0-or-later

"""The role `weights`: the store that its writer exports over NFS, as resources."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from typing import Any

from ..evidence.types import Evidence
from .facts import package_manager
from .types import ConcernPlan

Resource = Mapping[str, Any]
EXPORTS = "/etc/exports.d/apiary-weights.exports"
_EXPORTFS = "/usr/sbin/exportfs"
_PACKAGES = {"apt": "nfs-kernel-server", "dnf": "nfs-utils"}
# Ansible's own namespace, of its filter to_uuid.
_NAMESPACE = uuid.UUID("361E6D51-FAEC-444A-9079-341386DA8E2E")


def decide(options: Mapping[str, Any], evidence: Evidence) -> ConcernPlan:
    """Return what the writer has; ``options`` are the role's with their prefix."""
    store, clients = options["weights_store"], options["weights_export_clients"]
    return ConcernPlan(resources=tuple(_resources(store, clients, evidence)))


def exports(store: str, clients: Iterable[str]) -> str:
    """Return the file that says to whom the store is exported.

    An fsid that follows from the path survives the server's reinstallation: without it clients get
    ESTALE (exports(5)).
    """
    fsid = uuid.uuid5(_NAMESPACE, store)
    words = f"ro,sync,no_subtree_check,root_squash,fsid={fsid}"
    named = "".join(f" {client}({words})" for client in clients)
    return f'# Written by Apiary\'s role weights; changes are lost.\n"{store}"{named}\n'


def _resources(store: str, clients: list[str], evidence: Evidence) -> Iterable[Resource]:
    server = evidence.commands.get("nfs_server")
    if clients:
        if server is None or server.exit != 0:
            manager = package_manager(evidence)
            yield {"kind": "packages", "manager": manager, "names": [_PACKAGES[manager]]}
        yield {"kind": "directory", "path": store, "mode": "0755"}
    text = exports(store, clients) if clients else None
    yield {"kind": "file", "path": EXPORTS, "content": text}
    if clients:
        yield {"kind": "service", "name": "nfs-server", "state": "started", "enabled": True}
    # It withdraws what the files no longer have.
    argv = ["exportfs", "-ra"]
    yield {"kind": "command", "argv": argv, "after": [f"file {EXPORTS}"], "needs": _EXPORTFS}
