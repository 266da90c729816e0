# SPDX-License-Identifier: GPL-3.0-or-later

"""What is requested of a host's weights, and what has to be done about it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

from ....module_utils.weights.manifest import REPOSITORY
from ...documents import knowledge
from ...findings import Finding
from ..types import ConcernPlan, LiveSetting

# A directory that is there already, on a disk of the host's own or mounted by somebody else.
LOCAL = "local"
_TYPE = re.compile(r"[A-Za-z0-9._-]+")
NFS_SOURCE = re.compile(r"(\[[0-9A-Fa-f:.]+(%\w+)?\]|[^\s:/\[\]]+):/\S*")
Action = Literal["keep", "mount", "remount", "unmount"]


@dataclass(frozen=True)
class Mount:
    """Where weights come from and go; ``options`` go over the profile's, null takes one out."""

    path: str
    source: str = ""
    type: str = "nfs"
    profile: str | None = None
    options: dict[str, str | int | bool | None] = field(default_factory=dict)
    readahead_kib: int | None = None

    @property
    def is_nfs(self) -> bool:
        return self.type in ("nfs", "nfs4")

    @property
    def server(self) -> str:
        """The server of an NFS source, as it is written."""
        return self.source.rsplit(":/", 1)[0]

    @property
    def wanted_readahead(self) -> int | None:
        """KiB, or None where the kernel's own is to stay."""
        facts = knowledge("host/weight_cache.yml")["readahead"]
        if self.readahead_kib is not None:
            return self.readahead_kib or None
        return int(facts["kib"]) if self.is_nfs else None


@dataclass(frozen=True)
class Staged:
    """A model that is copied to the host's own disk: ``source`` is the published directory, ``to``
    the store on the disk, which has the same layout; ``keep`` counts revisions."""

    repository: str
    source: str
    to: str
    keep: int = 1


@dataclass(frozen=True)
class Settings:
    """The inputs of the role `weight_cache`, without its prefix."""

    state: Literal["present", "absent"] = "present"
    mounts: tuple[Mount, ...] = ()
    models: tuple[str, ...] = ()
    manifest_required: bool = False
    replace_existing: bool = True
    remount_while_serving: bool = False
    mount_timeout_seconds: int = 120
    session_slots: int = 180
    local_directories: tuple[str, ...] = ("/var/cache",)
    staged: tuple[Staged, ...] = ()


@dataclass(frozen=True)
class MountStep:
    """What is to happen to one mount point; ``reasons`` say why a mount does not stay.

    ``automounts`` are units that hold the place, ``fstab`` says that /etc/fstab does.
    """

    path: str
    unit: str
    action: Action
    reasons: tuple[str, ...] = ()
    readahead_kib: int | None = None
    automounts: tuple[str, ...] = ()
    fstab: bool = False


@dataclass(frozen=True)
class WeightCachePlan(ConcernPlan):
    """ConcernPlan, and packages of the family, live settings, services, steps by mount."""

    family: str = ""
    packages: tuple[str, ...] = ()
    live: tuple[LiveSetting, ...] = ()
    services: tuple[str, ...] = ()
    mounts: tuple[MountStep, ...] = ()


def problems(settings: Settings) -> tuple[Finding, ...]:
    """Return what can't be right whatever the host is."""
    found: list[Finding] = []

    def refuse(code: str, subject: str, message: str, source: str | None = None) -> None:
        found.append(Finding(code, subject, message, source=source))

    paths = [one.path for one in settings.mounts]
    places = [
        *paths,
        *settings.models,
        *settings.local_directories,
        *(path for one in settings.staged for path in (one.source, one.to)),
    ]
    for path in dict.fromkeys(places):
        if not is_plain(path):
            refuse(
                "WEIGHTS-PATH",
                path or "(empty)",
                f"found {path!r}, expected an absolute path without . and .., below /",
            )
    for path in sorted({path for path in paths if paths.count(path) > 1}):
        refuse("WEIGHTS-TWICE", path, "found two mounts there, expected one")
    system = knowledge("host/weight_cache.yml")["system"]
    for one in settings.mounts:
        found += _source_problems(one)
        hidden = [path for path in system if f"{path}/".startswith(f"{one.path}/")]
        # Nothing is mounted over a directory that is there already.
        if hidden and one.type != LOCAL and is_plain(one.path):
            refuse(
                "WEIGHTS-PLACE",
                one.path,
                f"found a directory of the system, expected one that does not hold {hidden[0]}",
            )
    for subject, number, least in _numbers(settings):
        if number < least:
            refuse("WEIGHTS-NUMBER", subject, f"found {number}, expected at least {least}")
    for staged in settings.staged:
        if not REPOSITORY.fullmatch(staged.repository) or ".." in staged.repository:
            refuse(
                "WEIGHTS-REPOSITORY",
                "weight_cache_staged",
                f"found the repository {staged.repository!r}, expected ORG/NAME",
            )
        if any(
            staged.to == one.path or staged.to.startswith(one.path + "/")
            for one in settings.mounts
            if one.is_nfs
        ):
            refuse(
                "WEIGHTS-STAGE",
                staged.to,
                "found a mount of NFS there, expected a disk of the host's own",
            )
    return tuple(found)


def _numbers(settings: Settings) -> Iterator[tuple[str, int, int]]:
    """Yield each number that is requested: whose it is, itself, the least."""
    yield "weight_cache_session_slots", settings.session_slots, 0
    for one in settings.mounts:
        yield f"{one.path}: readahead_kib", one.readahead_kib or 0, 0
    for staged in settings.staged:
        yield f"{staged.repository}: keep", staged.keep, 1


def is_plain(path: str) -> bool:
    """Say whether a path is absolute, below / and means itself."""
    parts = path.split("/")
    return (
        path.isprintable()
        and path.startswith("/")
        and len(path) > 1
        and not any(part in ("", ".", "..") for part in parts[1:])
    )


def _source_problems(one: Mount) -> list[Finding]:
    """Return what is wrong with where a mount comes from."""
    facts = knowledge("host/weight_cache.yml")
    found: list[Finding] = []
    profile = one.profile
    if profile is not None and profile not in facts["profiles"]:
        found.append(
            Finding(
                "WEIGHTS-PROFILE",
                one.path,
                f"found the profile {profile}, expected {' or '.join(facts['profiles'])}",
            )
        )
    if one.type == LOCAL and not one.source:
        return found
    expected, source = None, None
    if not _TYPE.fullmatch(one.type):
        message = f"found the type {one.type!r}, expected the name of a file system"
        return [*found, Finding("WEIGHTS-SOURCE", one.path, message)]
    if one.type in (LOCAL, "bind"):
        expected = None if is_plain(one.source) else "an absolute path without . and .."
    elif one.is_nfs and not NFS_SOURCE.fullmatch(one.source):
        expected, source = "server:/path", "https://man7.org/linux/man-pages/man5/nfs.5.html"
    elif not one.source or not one.source.isprintable():
        expected = f"what {one.type} is mounted from"
    if expected:
        message = f"found the source {one.source!r}, expected {expected}"
        found.append(Finding("WEIGHTS-SOURCE", one.path, message, source=source))
    return found
