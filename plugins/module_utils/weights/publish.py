# SPDX-License-Identifier: GPL-3.0-or-later

"""Publish, verify, repair and prune the revisions of a repository: what to do, then doing it."""

from __future__ import annotations

import contextlib
import hashlib
import os
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import IO, Any, Protocol

from ..finding import ApiaryError, error
from . import fetch as weights_fetch
from . import manifest as weights_manifest
from . import store as weights_store
from .directory import Directory
from .fetch import Patience, Progress, Source
from .hub import Hub, SourceFile, read_token
from .manifest import COMMIT, REPOSITORY, Manifest, ManifestFile
from .store import Shelf


@dataclass(frozen=True)
class Selection:
    """Which files of a revision are wanted: patterns as the Hugging Face tools have them.

    A ``*`` matches across directories; ``skip`` has patterns that count only where another file,
    which is matched by ``beside``, makes what they match superfluous.
    """

    allow_patterns: tuple[str, ...] = ()
    ignore_patterns: tuple[str, ...] = ()
    skip: tuple[tuple[str, tuple[str, ...]], ...] = ()

    def document(self) -> dict[str, Any]:
        """Return it in the manifest's form."""
        return {
            "allow_patterns": list(self.allow_patterns),
            "ignore_patterns": list(self.ignore_patterns),
            "skip": [{"beside": one, "patterns": list(patterns)} for one, patterns in self.skip],
        }

    def choose(self, files: list[SourceFile]) -> list[SourceFile]:
        """Return the wanted ones."""
        ignored = list(self.ignore_patterns)
        for beside, patterns in self.skip:
            if any(matches(one.path, (beside,)) for one in files):
                ignored += patterns
        return [
            one
            for one in files
            if (not self.allow_patterns or matches(one.path, self.allow_patterns))
            and not matches(one.path, ignored)
        ]


def matches(path: str, patterns: Any) -> bool:
    """Say whether a path matches a pattern; one that ends in a slash means all below it."""
    return any(fnmatchcase(path, one + "*" if one.endswith("/") else one) for one in patterns)


class Origin(Source, Protocol):
    """Where a revision comes from."""

    def commit(self) -> str:
        """Return the commit that is requested."""

    def files(self, commit: str) -> list[SourceFile]:
        """Return the files of the commit."""


class HubOrigin:
    """A revision of a repository on the hub; it is asked only when something is to be known."""

    def __init__(self, job: Job, patience: Patience) -> None:
        self.job = job
        self.patience = patience
        self.resolved = job.revision
        self.opened: Hub | None = None

    @property
    def name(self) -> str:
        return self.job.endpoint

    def hub(self) -> Hub:
        """Return the client; a second run that finds all well needs neither it nor its token."""
        if self.opened is None:
            token = read_token(self.job.token_file) if self.job.token_file else None
            self.opened = Hub(self.job.endpoint, token, self.job.timeout)
        return self.opened

    def commit(self) -> str:
        """Return the commit; a branch or tag is one only if that is allowed."""
        job = self.job
        if COMMIT.fullmatch(job.revision):
            return job.revision
        found = self.patience.ask(lambda: self.hub().commit(job.repository, job.revision))
        if not job.allow_unpinned:
            raise error(
                "WEIGHTS-FETCH-UNPINNED",
                f"{job.repository}@{job.revision}",
                f"found a branch or tag, which may move; today it is the commit {found}",
                commit=found,
            )
        self.resolved = found
        return found

    def files(self, commit: str) -> list[SourceFile]:
        self.resolved = commit
        return self.patience.ask(lambda: self.hub().files(self.job.repository, commit))

    def open_file(self, path: str, offset: int, end: int | None) -> tuple[IO[bytes], int]:
        return self.hub().open_file(self.job.repository, self.resolved, path, offset, end)


@dataclass(frozen=True)
class Job:
    """What an operator asks for."""

    store: str
    repository: str
    revision: str = ""
    endpoint: str = "https://huggingface.co"
    token_file: str | None = None
    source: str | None = None
    selection: Selection = Selection()
    allow_unpinned: bool = False
    make_current: bool = True
    parallel: int = 4
    retries: int = 5
    retry_delay: float = 2.0
    timeout: float = 60.0
    reserve_bytes: int = 0

    def shelf(self) -> Shelf:
        """Return the repository's place."""
        if not REPOSITORY.fullmatch(self.repository) or ".." in self.repository:
            raise error(
                "WEIGHTS-PUBLISH-REPOSITORY",
                self.repository,
                "found no name of a repository, expected ORGANIZATION/NAME",
            )
        return Shelf(self.store, self.repository)

    def origin(self) -> Origin:
        """Return where the files come from."""
        if self.source:
            return Directory(self.source, self.revision)
        return HubOrigin(self, Patience(self.retries, self.retry_delay))


@dataclass(frozen=True)
class Plan:
    """What publishing comes to."""

    shelf: Shelf
    commit: str
    # The manifest at hand, if it can be used.
    manifest: Manifest | None
    fetch: tuple[SourceFile, ...]
    keep: tuple[ManifestFile, ...]
    rewrite: bool
    reseal: tuple[str, ...]
    flip: bool

    @property
    def fetch_bytes(self) -> int:
        return sum(one.size for one in self.fetch)

    @property
    def changed(self) -> bool:
        return bool(self.fetch or self.rewrite or self.reseal or self.flip)

    def diff(self) -> dict[str, str]:
        """Return Ansible's diff entry: the files that are right, and those that will be."""
        before = [f"{one.path}  {one.size}" for one in self.keep]
        after = before + [f"{one.path}  {one.size}" for one in self.fetch]
        was = self.shelf.current()
        now = self.commit if self.flip else was
        return {
            "before_header": self.shelf.path,
            "after_header": self.shelf.path,
            "before": pointing(was) + listed(self.commit, before),
            "after": pointing(now) + listed(self.commit, after),
        }


def pointing(commit: str | None) -> str:
    """Return the line on `current`."""
    return f"current -> {commit}\n" if commit else ""


def listed(commit: str, lines: list[str]) -> str:
    """Return the lines on a revision's files."""
    return "".join(f"{commit}/{line}\n" for line in sorted(lines))


def usable_manifest(shelf: Shelf, commit: str) -> Manifest | None:
    """Return the manifest of a published revision, if there is one that speaks of it."""
    with contextlib.suppress(ApiaryError):
        manifest = weights_manifest.read(shelf.revision(commit))
        if (manifest.repository, manifest.revision) == (shelf.repository, commit):
            return manifest
    return None


def identify(place: str, wanted: SourceFile) -> ManifestFile | None:
    """Return a file that is what the source lists, or nothing."""
    try:
        if os.path.getsize(place) != wanted.size:
            return None
        sha256 = weights_manifest.hash_file(place)
        if wanted.git_sha1:
            with open(place, "rb") as stream:
                blob = b"blob %d\0" % wanted.size + stream.read()
            if hashlib.sha1(blob, usedforsecurity=False).hexdigest() != wanted.git_sha1:
                return None
    except OSError:
        return None
    if wanted.sha256 not in (None, sha256):
        return None
    return ManifestFile(wanted.path, wanted.size, sha256)


def make_plan(job: Job, origin: Origin, level: str, progress_path: str | None) -> Plan:
    """Return what is to be done so that a revision is published and right; it only reads.

    ``level`` says how closely the files of a published revision are looked at.
    """
    shelf = job.shelf()
    commit = origin.commit()
    directory = shelf.revision(commit)
    manifest = usable_manifest(shelf, commit)
    keep: list[ManifestFile] = []
    fetch: list[SourceFile] = []
    if manifest:
        progress = Progress(progress_path, "hashing", manifest.total_bytes)
        deviations = weights_manifest.verify(directory, manifest, level, job.parallel, progress.add)
        wrong = {one.path for one in deviations}
        keep = [one for one in manifest.files if one.path not in wrong]
        fetch = [
            SourceFile(one.path, one.size, one.sha256)
            for one in manifest.files
            if one.path in wrong
        ]
    # To repair is not to choose anew: what the manifest has is what is wanted.
    rewrite = manifest is None or (
        level != "hashes" and manifest.selection != job.selection.document()
    )
    if rewrite:
        known = {one.path for one in manifest.files} if manifest else set()
        chosen = job.selection.choose(origin.files(commit))
        if not chosen:
            raise error(
                "WEIGHTS-FETCH-NOTHING",
                f"{shelf.repository}@{commit}",
                "the patterns leave no file",
            )
        for one in chosen:
            if one.path in known:
                continue
            found = None if manifest else identify(os.path.join(directory, one.path), one)
            if found:
                keep.append(found)
            else:
                fetch.append(one)
    return Plan(
        shelf=shelf,
        commit=commit,
        manifest=manifest,
        fetch=tuple(fetch),
        keep=tuple(keep),
        rewrite=rewrite,
        reseal=tuple(weights_store.unsealed(directory, manifest) if manifest else ()),
        flip=job.make_current and shelf.current() != commit,
    )


def carry_out(job: Job, origin: Origin, plan: Plan) -> None:
    """Do it: nothing of it shows before all of it is right."""
    shelf, commit = plan.shelf, plan.commit
    partial, directory = shelf.partial(commit), shelf.revision(commit)
    if plan.fetch or plan.rewrite:
        wanted, kept = list(plan.fetch), plan.manifest
        at_hand = weights_fetch.at_hand(wanted, partial)
        weights_store.check_space(partial, plan.fetch_bytes - at_hand, job.reserve_bytes)
        try:
            os.makedirs(partial, exist_ok=True)
            patience = Patience(job.retries, job.retry_delay)
            fetched = weights_fetch.fetch(
                wanted, partial, origin, patience, job.parallel, shelf.own(".progress.json")
            )
            manifest = Manifest(
                repository=shelf.repository,
                revision=commit,
                created_at=kept.created_at if kept else weights_store.now(),
                files=tuple(sorted([*plan.keep, *fetched])),
                selection=job.selection.document() if plan.rewrite or not kept else kept.selection,
            )
            if os.path.isdir(directory):
                weights_store.replace(shelf, manifest, [one.path for one in fetched])
            else:
                weights_store.publish(shelf, manifest)
        except OSError as failure:
            raise weights_fetch.store_problem(failure.filename or directory, failure) from failure
    elif plan.reseal and plan.manifest:
        weights_store.seal(directory, plan.manifest)
    if plan.flip:
        weights_store.flip(shelf, commit)


def settled(job: Job) -> str:
    """Return the revision to look at: the one asked for, or the current one."""
    shelf = job.shelf()
    commit = job.revision or shelf.current()
    if commit and COMMIT.fullmatch(commit):
        return commit
    raise error(
        "WEIGHTS-PUBLISH-REVISION",
        shelf.path,
        f"found {commit or 'no current revision'}, expected a commit",
        revisions=", ".join(shelf.revisions()) or "(none published)",
    )
