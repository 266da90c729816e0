# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What has to hold on a host whose weights are right; every drift is one of these that fails."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import Any

from ...documents import knowledge
from ...evidence.types import Evidence
from .. import facts as host_facts
from ..types import Check, CheckState, HostFile, LiveSetting
from .mounts import UNITS, HostMounts
from .options import Asked, differences
from .settings import LOCAL, Mount, MountStep, Settings

AGAIN = "run the role weight_cache again"
Mounts = Sequence[tuple[Mount, Asked]]


def checks(
    settings: Settings,
    asked: Mounts,
    evidence: Evidence,
    shown: HostMounts,
    steps: Sequence[MountStep],
    files: Sequence[HostFile],
    live: Sequence[LiveSetting],
) -> tuple[Check, ...]:
    """Return every check, in the order in which a person would look."""
    found = [_file(one, evidence, shown) for one in files]
    by_path = {one.path: one for one in steps}
    if settings.state == "absent":
        return tuple(found) + tuple(
            _holds("WEIGHTS-MOUNT", one.path, not shown.at(one.path), "a mount", "nothing mounted")
            for one in steps
        )
    found += _client(asked, evidence)
    for mount, one in asked:
        if mount.type == LOCAL:
            found.append(_local_source(mount, shown))
        else:
            found += _mount(mount, one, by_path[mount.path], evidence, shown)
    found += [_live(one, evidence) for one in live]
    found += [_local(path, shown) for path in settings.local_directories]
    found += [_space(path, evidence, shown) for path in {one.to: 1 for one in settings.staged}]
    found += _models(settings, evidence)
    return tuple(found)


def _holds(
    code: str,
    subject: str,
    state: bool | CheckState,
    found: str,
    expected: str,
    **more: Any,
) -> Check:
    """Return a check; ``state`` may be the plain answer."""
    if isinstance(state, bool):
        state = "pass" if state else "fail"
    return Check(code, subject, state, expected if state == "pass" else found, expected, **more)


def _file(one: HostFile, evidence: Evidence, shown: HostMounts) -> Check:
    """Check one file; of mount units only hashes are known, for others' may hold passwords."""
    name = one.path.rsplit("/", 1)[-1]
    if one.path.startswith(UNITS) and name.endswith("mount"):
        there = shown.unit_hashes.get(name)
        wanted = one.content and hashlib.sha256(one.content.encode()).hexdigest()
    else:
        there, wanted = evidence.files.get(one.path), one.content
    if one.path in evidence.unreadable:
        return _holds("WEIGHTS-FILE", one.path, "unknown", "a file that cannot be read", "its text")
    found = "no such file" if there is None else "another text" if wanted else "a file"
    expected = "no such file" if wanted is None else "the role's text"
    return _holds("WEIGHTS-FILE", one.path, there == wanted, found, expected)


def _client(asked: Mounts, evidence: Evidence) -> list[Check]:
    """Check that what mounts NFS is there, and what Kerberos needs."""
    nfs = [(mount, one) for mount, one in asked if mount.is_nfs]
    if not nfs:
        return []
    there = host_facts.command(evidence, "mount_nfs") is not None
    client = _holds("WEIGHTS-CLIENT", "mount.nfs", there, "none", "the NFS client installed")
    if not any(str(one.options.get("sec", "")).startswith("krb5") for _mount, one in nfs):
        return [client]
    facts = knowledge("host/weight_cache.yml")["kerberos"]
    helpers = evidence.commands.get("nfs_helpers")
    there = helpers is not None and facts["keytab"] in helpers.stdout.split()
    words = ("no keytab", "the host's keytab, for sec=krb5")
    keytab = _holds("WEIGHTS-KEYTAB", facts["keytab"], there, *words, source=facts["source"])
    return [client, keytab]


def _mount(
    mount: Mount, asked: Asked, step: MountStep, evidence: Evidence, shown: HostMounts
) -> list[Check]:
    """Check one mount: there, alone, of the right kind, as requested, there after a boot."""
    facts = knowledge("host/weight_cache.yml")
    there = shown.at(mount.path)
    expected = f"{mount.source} mounted as {mount.type}"
    top = there[-1] if there else None
    kind = [one for one in step.reasons if one.startswith("it ") or "lie on each other" in one]
    plain, boot = facts["plain_mount"]["source"], shown.unit_states.get(step.unit)
    stale = [*(["an entry in /etc/fstab"] if step.fstab else []), *step.automounts]
    state, actual = bool(there) and not kind, "; ".join(kind) or "nothing mounted"
    actual_boot = boot or "no such unit"
    found = [
        _holds("WEIGHTS-MOUNT", mount.path, state, actual, expected, source=plain),
        _holds("WEIGHTS-BOOT", step.unit, boot == "enabled", actual_boot, "enabled"),
        _holds("WEIGHTS-STALE", mount.path, not stale, " and ".join(stale), f"{step.unit} alone"),
    ]
    if top is None:
        return found
    differing = differences(asked.options, top.options)
    wrong = [item for item in differing if not item.lowered]
    lowered = [f"{item.option}: {item.found}" for item in differing if item.lowered]
    actual = ", ".join(f"{item.option}: {item.found}" for item in wrong)
    expected = ", ".join(f"{item.option}: {item.expected}" for item in wrong) or asked.text
    source = facts["shown"]["source"]
    found.append(_holds("WEIGHTS-OPTIONS", mount.path, not wrong, actual, expected, source=source))
    if mount.is_nfs:
        found += _nfs(mount, shown, lowered)
    if mount.wanted_readahead:
        found.append(_readahead(mount, step))
    if "fsc" in asked.options:
        found.append(_local_cache(mount, evidence))
    return found


def _nfs(mount: Mount, shown: HostMounts, lowered: list[str]) -> list[Check]:
    """Check what the server granted, and that vLLM sees a file system that it reads ahead on."""
    facts = knowledge("host/weight_cache.yml")["prefetched"]
    kind, types = shown.as_vllm_sees(mount.path) or "nothing", facts["types"]
    granted = (not lowered, ", ".join(lowered), "the size of requests that is requested")
    words = (f"{kind}, as vLLM reads /proc/mounts", " or ".join(types))
    return [
        _holds("WEIGHTS-GRANTED", mount.path, *granted),
        _holds("WEIGHTS-TYPE", mount.path, kind in types, *words, source=facts["source"]),
    ]


def _readahead(mount: Mount, step: MountStep) -> Check:
    requested, actual = mount.wanted_readahead, step.readahead_found
    state: bool | CheckState = "unknown" if actual is None else actual == requested
    words = ("none reported" if actual is None else f"{actual} KiB", f"{requested} KiB")
    source = knowledge("host/weight_cache.yml")["readahead"]["source"]
    return _holds("WEIGHTS-READAHEAD", mount.path, state, *words, source=source)


def _local_cache(mount: Mount, evidence: Evidence) -> Check:
    """Check that reads are kept on the local disk: cachefilesd has to run before the mount."""
    text = evidence.files.get("/proc/fs/nfsfs/volumes")
    return _holds(
        "WEIGHTS-FSC",
        mount.path,
        "unknown" if text is None else " yes" in text,
        "no list of volumes" if text is None else "no volume with FSC yes",
        "FSC yes in /proc/fs/nfsfs/volumes",
        source="https://docs.kernel.org/filesystems/caching/fscache.html",
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


def _live(one: LiveSetting, evidence: Evidence) -> Check:
    found = evidence.files.get(one.path, "").strip()
    return _holds("WEIGHTS-SLOTS", one.path, found == one.value, found or "nothing", one.value)


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
        source=facts["source"],
    )


def _space(path: str, evidence: Evidence, shown: HostMounts) -> Check:
    """Check that a store on the host's disk is local and not full."""
    holding = shown.holding(path)
    kind = holding.type if holding else "nothing"
    if kind in knowledge("host/weight_cache.yml")["not_local"]["types"]:
        return _holds("WEIGHTS-STAGE", path, False, kind, "a local disk")
    output = evidence.commands.get("space")
    free = None
    for line in (output.stdout if output else "").splitlines()[1:]:
        words = line.rsplit(None, 3)
        if len(words) == 4 and holding and words[0] == holding.path and words[3].isdigit():
            free = int(words[3])
    return _holds(
        "WEIGHTS-SPACE",
        path,
        "unknown" if free is None else free > 0,
        "no figure" if free is None else "a full disk",
        "free space",
    )


def _models(settings: Settings, evidence: Evidence) -> list[Check]:
    """Check what the host's own verification of sizes says of every model."""
    if not settings.models and not settings.staged:
        return []
    output = evidence.commands.get("weights_check")
    expected = "every file there, in its size"
    try:
        reports = json.loads(output.stdout if output else "")["models"]
        by_path = {str(one["directory"]): one for one in reports}
    except (ValueError, KeyError, TypeError):
        why = (output.error or f"exit {output.exit}") if output else "it did not run"
        return [
            _holds(
                "WEIGHTS-MODEL",
                "weights-check",
                "fail" if output and output.error == "not found" else "unknown",
                f"no answer of weights-check ({why})",
                expected,
            )
        ]
    wanted = [*settings.models, *(path for path in by_path if path not in settings.models)]
    return [_model(path, by_path.get(path), expected) for path in wanted]


def _model(path: str, report: dict[str, Any] | None, expected: str) -> Check:
    if report is None:
        return _holds("WEIGHTS-MODEL", path, "unknown", "a model not looked at", expected)
    finding = report.get("finding")
    if finding is None:
        return _holds("WEIGHTS-MODEL", path, True, "", expected)
    return _holds(
        "WEIGHTS-MODEL",
        path,
        "fail",
        f"{finding['code']}: {finding['message']}",
        expected,
        minor=finding.get("severity") == "warning",
    )
