# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Build what a host says of its weights: mounts, units, the files that the role wrote."""

import hashlib
import json

from ansible_collections.apiary.instinct.plugins.plugin_utils.documents import from_document
from ansible_collections.apiary.instinct.plugins.plugin_utils.evidence.types import (
    CommandOutput,
    Evidence,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.host.types import HostFile
from ansible_collections.apiary.instinct.plugins.plugin_utils.host.weight_cache import (
    Settings,
    decide,
)

NFS = {"path": "/srv/models", "source": "nfs-1:/export/models"}
# As a kernel shows the options of the profile read_mostly.
SHOWN = (
    "ro,nosuid,nodev,noexec,noatime,nodiratime,vers=4.2,rsize=1048576,wsize=1048576,namlen=255,"
    "acregmin=600,acregmax=600,acdirmin=600,acdirmax=600,hard,nocto,proto=tcp,nconnect=8,"
    "timeo=600,retrans=2,sec=sys,clientaddr=192.0.2.9,local_lock=none,addr=192.0.2.1"
)
ROOT = ("/dev/vda1", "/", "ext4", "rw,relatime")


def said(stdout, code=0, error=None):
    return CommandOutput(("it",), code, stdout, "", 0.1, error)


def mounted(options=SHOWN, path="/srv/models", source="nfs-1:/export/models", kind="nfs4"):
    return (source, path, kind, options)


class Host:
    """A Debian host; what is not given is as on a fresh one."""

    def __init__(self, *mounts, release="debian", kernel="6.1.0-28-amd64"):
        self.mounts = [ROOT, *mounts]
        self.files = {
            "/etc/os-release": f"ID={release}\nPRETTY_NAME={release}\n",
            "/proc/sys/kernel/osrelease": kernel + "\n",
        }
        self.commands = {}
        self.units = {}
        self.hashes = {}

    def with_files(self, files: tuple[HostFile, ...]):
        """Have the files of a plan on the host, units enabled."""
        for one in files:
            name = one.path.rsplit("/", 1)[-1]
            if one.content is None:
                self.files.pop(one.path, None)
                self.hashes.pop(name, None)
            elif name.endswith(".mount"):
                self.hashes[name] = hashlib.sha256(one.content.encode()).hexdigest()
                self.units[name] = "enabled"
            else:
                self.files[one.path] = one.content
        return self

    def with_readahead(self, kib, device="0:50"):
        self.files[f"/sys/class/bdi/{device}/read_ahead_kb"] = f"{kib}\n"
        return self

    def with_fstab(self, *paths):
        entries = [{"target": path, "source": "x:/y", "fstype": "nfs"} for path in paths]
        self.commands["fstab"] = said(json.dumps({"filesystems": entries}))
        return self

    def serving(self):
        self.commands["replicas"] = said("apiary-x-0.service loaded active running x\n")
        return self

    def with_client(self):
        self.commands["mount_nfs"] = said("mount.nfs: (linux nfs-utils 2.6.2)\n")
        return self

    @property
    def evidence(self):
        rows = [" ".join((*one, "0 0")) for one in self.mounts]
        commands = {
            "mounts": said("\n".join(rows) + "\n"),
            "mount_units": said("".join(f"{n} {s}\n" for n, s in self.units.items())),
            "mount_unit_hashes": said(
                "".join(f"{h}  /etc/systemd/system/{n}\n" for n, h in self.hashes.items())
            ),
            "mount_nfs": said("", None, "not found"),
            **self.commands,
        }
        return Evidence("gpu-001", "2026-11-21T00:00:00Z", "3", commands, self.files)


def settings(*mounts, **more):
    """The role's inputs with these mounts."""
    return from_document(Settings, {"mounts": list(mounts), **more}, "test")


def plan(host, *mounts, **more):
    """What is decided for a host, with one mount of NFS unless others are given."""
    return decide(settings(*(mounts or (NFS,)), **more), host.evidence)


def codes(findings):
    """The codes of findings, in their order."""
    return [one.code for one in findings]
