# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The store that a writer exports, as resources."""

import pytest
from ansible_collections.apiary.instinct.plugins.module_utils.resources.converge import items
from ansible_collections.apiary.instinct.plugins.plugin_utils.evidence.types import (
    CommandOutput,
    Evidence,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.host.weights import decide, exports

EXPORTS = "file /etc/exports.d/apiary-weights.exports"


def names(clients, system="debian", server=True):
    output = CommandOutput((), 0 if server else 2, "", "", 0.0)
    evidence = Evidence(
        "writer", "", "2", {"nfs_server": output}, {"/etc/os-release": f"ID={system}\n"}
    )
    options = {"weights_store": "/export/models", "weights_export_clients": clients}
    return [item.name for item in items([dict(one) for one in decide(options, evidence).resources])]


def test_the_exports_are_as_ansible_rendered_them():
    words = "ro,sync,no_subtree_check,root_squash,fsid=0fcd7ff6-a3a5-5be4-b721-23327cadb1c8"
    assert exports("/export/models", ["10.0.0.0/8", "gpu-001"]) == (
        "# Written by Apiary's role weights; changes are lost.\n"
        f'"/export/models" 10.0.0.0/8({words}) gpu-001({words})\n'
    )


@pytest.mark.parametrize(
    ("system", "package"), [("debian", "nfs-kernel-server"), ("rocky", "nfs-utils")]
)
def test_a_new_writer_gets_the_server(system, package):
    assert names(["gpu-001"], system, server=False) == [
        f"packages {package}",
        "directory /export/models",
        EXPORTS,
        "service nfs-server",
        "command exportfs -ra",
    ]
    assert names(["gpu-001"], system)[0] == "directory /export/models"


def test_without_clients_nothing_is_exported():
    assert names([]) == [EXPORTS, "command exportfs -ra"]
