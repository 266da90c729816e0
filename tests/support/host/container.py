# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Evidence of hosts with container engines, built on simulated hardware."""

import dataclasses
import json

from ansible_collections.apiary.instinct.plugins.plugin_utils.documents import from_document
from ansible_collections.apiary.instinct.plugins.plugin_utils.evidence.types import (
    CommandOutput,
    Evidence,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.host.container_runtime import (
    Settings,
    decide,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.host.container_runtime import (
    specification as names,
)

from support.topology.simulated import simulate

RENDER_GID, VIDEO_GID = 104, 44
RELEASES = {
    "debian-12": 'ID=debian\nVERSION_ID="12"\nVERSION_CODENAME=bookworm\nPRETTY_NAME="Debian 12"\n',
    "debian-13": 'ID=debian\nVERSION_ID="13"\nVERSION_CODENAME=trixie\nPRETTY_NAME="Debian 13"\n',
    "ubuntu-24.04": 'ID=ubuntu\nVERSION_ID="24.04"\nVERSION_CODENAME=noble\nPRETTY_NAME="Ubuntu"\n',
    "rhel-9": 'ID=rhel\nVERSION_ID="9.6"\nPRETTY_NAME="Red Hat Enterprise Linux 9.6"\n',
    "arch": 'ID=arch\nPRETTY_NAME="Arch Linux"\n',
}


def hardware(root, *faults):
    """The evidence of a simulated host's GPUs, as the collector finds it."""
    return from_document(Evidence, simulate(root, *faults), "test")


def said(stdout="", code=0):
    """A command that ended."""
    return CommandOutput(("x",), code, stdout, "", 0.1)


def policy(**candidates):
    """What apt-cache policy prints."""
    return said(
        "".join(
            f"{name.replace('_', '.')}:\n  Installed: (none)\n  Candidate: {version}\n"
            "  Version table:\n"
            for name, version in candidates.items()
        )
    )


def host(
    gpus, release="debian-12", podman="4.3.1", docker=None, files=None, commands=None, mode="660"
):
    """A host with this hardware, release, engines and files."""
    engines = {}
    if podman:
        engines["podman_version"] = said(f"podman version {podman}\n")
    if docker:
        engines["docker_version"] = said(f"Docker version {docker}, build 297e128\n")
    nodes = [f"/dev/kfd {mode} 0 {RENDER_GID}"]
    for device in names.devices_of(gpus):
        nodes.append(f"/dev/dri/{device.render} {mode} 0 {RENDER_GID}")
        nodes.append(f"/dev/dri/{device.card} {mode} 0 {VIDEO_GID}")
    told = {
        "device_owners": said("".join(f"{line}\n" for line in nodes)),
        **engines,
        **(commands or {}),
    }
    texts = {"/etc/os-release": RELEASES[release], **(files or {})}
    return dataclasses.replace(
        gpus, commands={**gpus.commands, **told}, files={**gpus.files, **texts}
    )


def nodes_by_name(specification):
    """The DRM nodes that a container gets, by device name."""
    return {
        device["name"]: {node["path"] for node in device["containerEdits"]["deviceNodes"]}
        for device in specification["devices"]
    }


def applied(evidence, plan):
    """The host after the role has done what its plan says."""
    files = dict(evidence.files)
    for one in plan.files:
        files.pop(one.path, None)
        if one.content is not None:
            files[one.path] = one.content
    if plan.daemon is not None:
        files["/etc/docker/daemon.json"] = json.dumps(plan.daemon)
    return dataclasses.replace(evidence, files=files)


def failing(evidence, **settings):
    """The checks that fail, as (code, subject) to check."""
    plan = decide(Settings(**settings), evidence)
    return {(one.code, one.subject): one for one in plan.checks if one.state == "fail"}


def refused(evidence, **settings):
    """The findings of severity error, by code."""
    plan = decide(Settings(**settings), evidence)
    return {one.code: one for one in plan.findings if one.severity == "error"}
