# SPDX-License-Identifier: GPL-3.0-or-later

"""Hosts grouped by identical changes: concern by concern, and as a whole."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain

from ..findings import errors_of
from .names import Kind, Own, neutral
from .types import Cause, Change, ChangeGroup, ConcernSurvey, HostGroup

# What texts that several hosts share may still have differently from those of others.
SHARED: tuple[Kind, ...] = ("PCI address", "UUID", "release")


@dataclass
class _Alike:
    """Hosts with the very same texts, which are kept once there are two.

    ``key`` is what the only host of them is grouped by, ``shared`` what several are: a name in
    texts that hosts share is nobody's own.
    """

    concern: str
    cause: Cause
    key: str
    values: dict[Kind, tuple[str, ...]]
    shared: str = ""
    hosts: list[str] = field(default_factory=list)
    texts: ConcernSurvey | None = None

    @property
    def group(self) -> str:
        """Return the key of the group that they are in."""
        return self.key if len(self.hosts) == 1 else self.shared

    def differing(self, kind: Kind) -> tuple[str, ...]:
        """Return what is their own of a kind."""
        return self.values[kind] if len(self.hosts) == 1 or kind in SHARED else ()


class Grouping:
    """Groups that grow host by host, so that nobody holds the texts of a thousand."""

    def __init__(self) -> None:
        self._alike: dict[str, _Alike] = {}
        self._first: dict[str, tuple[Own, ConcernSurvey]] = {}
        self._hosts: dict[str, list[str]] = {}

    def add(self, own: Own, concerns: Iterable[ConcernSurvey], causes: Mapping[str, Cause]) -> None:
        """Take in one host; ``causes`` has those of its unsettled concerns, others are left out."""
        self._hosts[own.name] = [
            self._add(own, one, causes[one.concern]) for one in concerns if one.concern in causes
        ]

    def _add(self, own: Own, concern: ConcernSurvey, cause: Cause) -> str:
        texts = _texts(concern)
        about = (concern.concern, cause, *_shape(concern))
        exact = _digest((*about, *texts))
        alike = self._alike.get(exact)
        if alike is None:
            plain = neutral(texts, own)
            values = dict(plain.values)
            names = [kind for kind in values if values[kind] and kind not in SHARED]
            key = _digest((*about, ",".join(names), *plain.texts))
            alike = _Alike(concern.concern, cause, key, values)
            self._alike[exact] = alike
            self._first.setdefault(key, (own, concern))
        elif alike.texts is None:
            alike.texts = concern
            alike.shared = _digest((*about, "", *neutral(texts, own, SHARED).texts))
        alike.hosts.append(own.name)
        return exact

    def groups(self) -> tuple[tuple[ChangeGroup, ...], tuple[HostGroup, ...]]:
        """Return the groups of changes and those of hosts, each with the largest first."""
        order = {host: number for number, host in enumerate(self._hosts)}
        found: dict[str, list[_Alike]] = {}
        for alike in self._alike.values():
            found.setdefault(alike.group, []).append(alike)
        sizes = {key: sum(len(one.hosts) for one in members) for key, members in found.items()}
        counts: dict[str, int] = {}
        names: dict[str, str] = {}
        changes = []
        for key in sorted(found, key=lambda one: -sizes[one]):
            concern = found[key][0].concern
            counts[concern] = counts.get(concern, 0) + 1
            names[key] = f"{concern}/{counts[concern]}"
            hosts = sorted(
                (host for one in found[key] for host in one.hosts), key=order.__getitem__
            )
            changes.append(self._change_group(names[key], found[key], hosts))
        whole: dict[tuple[str, ...], list[str]] = {}
        for host, exacts in self._hosts.items():
            made = tuple(names[self._alike[exact].group] for exact in exacts)
            whole.setdefault(made, []).append(host)
        groups = [HostGroup(tuple(hosts), made) for made, hosts in whole.items()]
        return tuple(changes), tuple(sorted(groups, key=lambda group: -len(group.hosts)))

    def _change_group(
        self, name: str, members: Sequence[_Alike], hosts: Sequence[str]
    ) -> ChangeGroup:
        """Return the group with one host's texts, neutral only in what differs between hosts."""
        own, concern = self._first[members[0].key]
        kinds = tuple(
            kind
            for kind in members[0].values
            if len({one.differing(kind) for one in members}) > 1
            # The text that was kept is that of a host with the same texts but for its own.
            or (own.name not in hosts and members[0].differing(kind))
        )
        for one in members:
            if one.texts is not None:
                own, concern = Own(one.hosts[0]), one.texts
        texts = iter(neutral(_texts(concern), own, kinds).texts)
        return ChangeGroup(
            name=name,
            concern=concern.concern,
            cause=members[0].cause,
            hosts=tuple(hosts),
            changes=tuple(
                Change(next(texts), next(texts), next(texts)) for _one in concern.changes
            ),
            reboot=tuple(next(texts) for _one in concern.reboot),
            refused=tuple(
                one.about(next(texts)).reworded(message=next(texts), remedy=next(texts))
                for one in errors_of(concern.findings)
            ),
            neutral=kinds,
            variants=len(members),
        )


def _texts(concern: ConcernSurvey) -> list[str]:
    """Return every text that may name the host: changes, reboot, errors."""
    changes = ((one.subject, one.before, one.after) for one in concern.changes)
    errors = ((one.subject, one.message, one.remedy) for one in errors_of(concern.findings))
    return list(chain(*changes, concern.reboot, *errors))


def _shape(concern: ConcernSurvey) -> tuple[str, ...]:
    """Return what tells the texts of one list from those of the next."""
    counts = (str(len(concern.changes)), str(len(concern.reboot)))
    return (*counts, *(one.code for one in errors_of(concern.findings)))


def _digest(texts: Iterable[str]) -> str:
    """Return what only the same texts have, one by one."""
    return hashlib.sha256(b"".join(map(_text_digest, texts))).hexdigest()


@functools.lru_cache(maxsize=2048)
def _text_digest(text: str) -> bytes:
    """Return a text's digest; most texts are the same on all hosts."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()
