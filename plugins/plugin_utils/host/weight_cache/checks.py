# SPDX-License-Identifier: GPL-3.0-or-later

"""What has to hold beside what a run would change: what a server grants, what others need."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from ...documents import knowledge
from ...evidence.types import Evidence
from ..facts import output
from ..types import Check
from .mounts import HostMounts
from .options import Requested, differences
from .settings import LOCAL, Mount, MountStep, Settings

Mounts = Sequence[tuple[Mount, Requested]]


def checks(
    settings: Settings,
    requested: Mounts,
    evidence: Evidence,
    shown: HostMounts,
    steps: Sequence[MountStep],
) -> Iterator[Check]:
    """Yield every check, in the order in which a person would look."""
    stays = [step.path for step in steps if step.action == "keep"]
    if settings.state == "absent":
        return
    yield from _keytab(requested, evidence)
    for mount, options in requested:
        if mount.type == LOCAL:
            yield _local_source(mount, shown)
        elif mount.path in stays:
            yield from _mounted(mount, options, evidence, shown)
    for path in settings.local_directories:
        yield _local(path, shown)
    for path in dict.fromkeys(staged.to for staged in settings.staged):
        yield _space(path, evidence, shown)


def _holds(
    code: str, subject: str, right: bool | None, found: str, expected: str, **more: Any
) -> Check:
    """Return a check; what is right is as expected."""
    return Check.of(code, subject, right, expected if right else found, expected, **more)


def _keytab(requested: Mounts, evidence: Evidence) -> Iterator[Check]:
    """Yield whether there is what Kerberos needs, where a mount is by it."""
    if not any(mount.is_nfs and one.has_kerberos for mount, one in requested):
        return
    facts = knowledge("host/weight_cache.yml")["kerberos"]
    there = facts["keytab"] in output(evidence, "nfs_helpers").split()
    words = ("no keytab", "the host's keytab, for sec=krb5")
    yield _holds("WEIGHTS-KEYTAB", facts["keytab"], there, *words)


def _mounted(
    mount: Mount, requested: Requested, evidence: Evidence, shown: HostMounts
) -> Iterator[Check]:
    """Yield what a mount that stays can't bring itself: what others decide, what vLLM sees."""
    facts = knowledge("host/weight_cache.yml")
    differing = differences(requested.options, shown.at(mount.path)[-1].options)
    wrong = [item for item in differing if not item.lowered]
    lowered = [f"{item.option}: {item.found}" for item in differing if item.lowered]
    actual = ", ".join(f"{item.option}: {item.found}" for item in wrong)
    expected = ", ".join(f"{item.option}: {item.expected}" for item in wrong) or requested.text
    yield _holds("WEIGHTS-OPTIONS", mount.path, not wrong, actual, expected)
    if mount.is_nfs:
        prefetched = facts["prefetched"]
        kind, types = shown.as_vllm_sees(mount.path) or "nothing", prefetched["types"]
        granted = (not lowered, ", ".join(lowered), "the requested size of requests")
        yield _holds("WEIGHTS-GRANTED", mount.path, *granted)
        words = (f"{kind}, as vLLM reads /proc/mounts", " or ".join(types))
        yield _holds("WEIGHTS-TYPE", mount.path, kind in types, *words)
    if "fsc" in requested.options:
        yield _local_cache(mount, evidence)


def _local_cache(mount: Mount, evidence: Evidence) -> Check:
    """Check that reads are kept on the local disk: cachefilesd has to run before the mount."""
    text = evidence.files.get("/proc/fs/nfsfs/volumes")
    return _holds(
        "WEIGHTS-FSC",
        mount.path,
        None if text is None else " yes" in text,
        "no list of volumes" if text is None else "no volume with FSC yes",
        "FSC yes in /proc/fs/nfsfs/volumes",
        path=mount.path,
    )


def _local_source(mount: Mount, shown: HostMounts) -> Check:
    holding = shown.holding(mount.path)
    kind = holding.type if holding else "nothing"
    return _holds(
        "WEIGHTS-LOCAL",
        mount.path,
        kind not in knowledge("host/weight_cache.yml")["not_local"]["types"],
        f"a directory on {kind}",
        "a directory on a disk of the host",
    )


def _local(path: str, shown: HostMounts) -> Check:
    """Check that a directory of caches lies on a local disk that can be written."""
    facts = knowledge("host/weight_cache.yml")["not_local"]
    holding = shown.holding(path)
    kind = holding.type if holding else "nothing"
    read_only = holding is not None and "ro" in holding.options
    return _holds(
        "WEIGHTS-CACHE",
        path,
        kind not in facts["types"] and not read_only,
        f"{kind}, read-only" if read_only else kind,
        "a local file system that can be written",
    )


def _space(path: str, evidence: Evidence, shown: HostMounts) -> Check:
    """Check that a store on the host's disk is local and not full."""
    holding = shown.holding(path)
    kind = holding.type if holding else "nothing"
    if kind in knowledge("host/weight_cache.yml")["not_local"]["types"]:
        return _holds("WEIGHTS-STAGE", path, False, kind, "a local disk")
    free = None
    for line in output(evidence, "space").splitlines()[1:]:
        words = line.rsplit(None, 3)
        if len(words) == 4 and holding and words[0] == holding.path and words[3].isdigit():
            free = int(words[3])
    return _holds(
        "WEIGHTS-SPACE",
        path,
        None if free is None else free > 0,
        "no figure" if free is None else "a full disk",
        "free space",
    )
