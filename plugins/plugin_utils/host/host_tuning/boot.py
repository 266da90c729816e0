# SPDX-License-Identifier: GPL-3.0-or-later

"""The kernel command line of the next boot, through the boot loader that the host has."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ...documents import knowledge
from ...evidence.types import Evidence
from ...findings import Finding, error
from .. import facts
from ..types import HostFile
from . import cmdline
from .machine import DROP_IN, RECORD

DEFAULTS = "/etc/default/grub"
INHERITED = "/etc/kernel/cmdline"
_ASSIGNMENT = re.compile(
    r"^[ \t]*(?:export[ \t]+)?(GRUB_CMDLINE_LINUX(?:_DEFAULT)?)\+?=(.*)$", re.MULTILINE
)
_PLAIN = re.compile(r"\"((?:[^\"\\$`]|\\.)*)\"|'([^']*)'|([^\s\"'$`\\;]*)")

# GRUB makes such entries with other words than the rest, on purpose.
_RECOVERY = frozenset(("single", "recovery"))
# In every profile, on every host: where it is left over, so may be the others.
_MARK = "numa_balancing=disable"

Command = tuple[str, ...]


@dataclass(frozen=True)
class Wanted:
    """Our words, and those of others that contradict them, each with the one of ours it does."""

    ours: cmdline.Words = ()
    against: Mapping[str, str] = field(default_factory=dict)

    @property
    def excludes(self) -> cmdline.Words:
        """The words of others that contradict ours."""
        return tuple(self.against)


@dataclass(frozen=True)
class BootPlan:
    """How the next boot gets its words.

    ``loader`` is the one that is managed, or None with ``reason``; ``commands`` are what has to run
    after ``files`` are written, none where nothing differs; ``next_boot`` are the command lines
    that the boot loader has now, None where it can't be seen.
    """

    loader: str | None = None
    reason: str = ""
    files: tuple[HostFile, ...] = ()
    commands: tuple[Command, ...] = ()
    findings: tuple[Finding, ...] = ()
    next_boot: tuple[cmdline.Words, ...] | None = None

    def brings(self, word: str) -> bool:
        """Say whether the next boot can have a word: else it would be in vain."""
        if self.commands or not self.next_boot:
            return True
        return any(cmdline.has(line, word) for line in self.next_boot)


def plan(evidence: Evidence, wanted: Wanted, container: bool, managed: bool) -> BootPlan:
    """Return how the next boot gets our words; without any, how it loses those it got from us."""
    if not managed:
        return BootPlan(reason="host_tuning_boot_loader is none")
    document = knowledge("host/tuning_bootloaders.yml")
    for name, paths in document["others"].items():
        present = [path for path in paths if path in evidence.files]
        if present and "/usr/sbin/update-grub" not in evidence.files:
            return BootPlan(
                reason=f"{name} is not supported",
                findings=(_unsupported(evidence.host, f"{name} ({present[0]})", wanted),),
            )
    family = facts.os_release(evidence).id
    for loader in document["boot_loaders"]:
        if family in loader["families"] and _has(evidence, loader):
            # The two differ in where the words are kept, not in what they become.
            how = {"grub_dropin": _dropin, "grubby": _grubby}
            return how[loader["id"]](evidence, loader, wanted)
    if container:
        return BootPlan(reason="a container has no boot loader")
    return BootPlan(
        reason="no boot loader is known here",
        findings=(_unsupported(evidence.host, f"none that is known for {family}", wanted),),
    )


def _has(evidence: Evidence, loader: Mapping[str, Any]) -> bool:
    """Say whether the host has a boot loader's tool: as a script, or because it answered."""
    label = loader["tool"].rpartition("/")[2]
    return loader["tool"] in evidence.files or facts.command(evidence, label) is not None


def _unsupported(host: str, found: str, wanted: Wanted) -> Finding:
    return Finding(
        "TUNE-BOOT-LOADER",
        host,
        f"found {found} as boot loader, expected GRUB with update-grub or grubby",
        words=" ".join(wanted.ours) or "none",
    )


def entries(evidence: Evidence) -> tuple[cmdline.Words, ...] | None:
    """Return the command lines that grub.cfg boots this system with, recovery left out."""
    said = facts.command(evidence, "boot_entries")
    if said is None:
        return None
    lines = [line for line in said.stdout.splitlines() if " root=" in line]
    booted = [cmdline.split(line)[2:] for line in lines]
    booted = [line for line in booted if not _RECOVERY & set(cmdline.kernel_words(line)[0])]
    running = _roots(cmdline.split(evidence.files.get("/proc/cmdline", "")))
    own = [line for line in booted if _roots(line) == running]
    # A container shows its machine's command line: then all are taken for its own.
    return tuple(own or booted)


def _roots(line: cmdline.Words) -> list[str | None]:
    """Return what a command line boots from, the last of which counts."""
    told = [cmdline.parts(word) for word in cmdline.kernel_words(line)[0]]
    return [value for name, value in told if name == "root"][-1:]


def lacking(line: Sequence[str], wanted: Wanted) -> bool:
    """Say whether a command line is without one of our words, or with one that contradicts it."""
    return not all(cmdline.has(line, one) for one in wanted.ours) or bool(
        cmdline.contradictions(line, wanted.ours, wanted.excludes)
    )


def _dropin(evidence: Evidence, loader: Mapping[str, Any], wanted: Wanted) -> BootPlan:
    before = evidence.files.get(DROP_IN)
    content = cmdline.grub_dropin(wanted.ours, wanted.excludes) if wanted.ours else None
    booted = entries(evidence)
    later = sorted(
        path
        for path, text in evidence.files.items()
        if path.startswith("/etc/default/grub.d/")
        and path > DROP_IN
        and any("GRUB_CMDLINE" not in value for _name, value in _ASSIGNMENT.findall(text))
    )
    stale = bool(wanted.ours and booted and any(lacking(line, wanted) for line in booted))
    stale = stale or (not wanted.ours and _left_over(evidence, booted or ()))
    findings = [*_conflicts(evidence, wanted)]
    findings += [_later(evidence.host, path) for path in later if wanted.ours]
    return BootPlan(
        loader=loader["id"],
        files=(HostFile(DROP_IN, content),),
        # A file that comes later would have it run again and again, to no effect.
        commands=(tuple(loader["update"]),) if before != content or (stale and not later) else (),
        findings=tuple(findings),
        next_boot=booted,
    )


def _left_over(evidence: Evidence, booted: Sequence[cmdline.Words]) -> bool:
    """Say whether boot entries have our words still, though no file of GRUB's asks for them."""
    sources = [path for path in (*evidence.files, *evidence.unreadable) if path != DROP_IN]
    sources = [path for path in sources if path.startswith(DEFAULTS)]
    name = cmdline.parts(_MARK)[0]
    asked = any(
        facts.unknown(evidence, path) or name in evidence.files[path].replace("-", "_")
        for path in sources
    )
    return not asked and any(cmdline.has(line, _MARK) for line in booted)


def _later(host: str, path: str) -> Finding:
    return Finding(
        "TUNE-GRUB-LATER",
        f"{host}: {path}",
        "found a file that sets the kernel command line anew after Apiary's, expected none",
    )


def _conflicts(evidence: Evidence, wanted: Wanted) -> Iterator[Finding]:
    """Find what others set otherwise; ours wins, and that is told."""
    for path in sorted(evidence.files):
        if path != DEFAULTS and not path.startswith("/etc/default/grub.d/"):
            continue
        if path == DROP_IN:
            continue
        for name, value in _ASSIGNMENT.findall(evidence.files[path]):
            line = cmdline.split(_text(value) or "")
            against = cmdline.contradictions(line, wanted.ours, wanted.excludes)
            if against:
                yield _conflict(f"{evidence.host}: {path}: {name}", against, wanted)


def _conflict(subject: str, against: Sequence[str], wanted: Wanted) -> Finding:
    names = {cmdline.parts(one)[0] for one in against}
    ours = [one for one in wanted.ours if cmdline.parts(one)[0] in names]
    ours += [wanted.against[one] for one in against if one in wanted.against]
    return Finding(
        "TUNE-ARGUMENT-CONFLICT",
        subject,
        f"found {' '.join(against)}, expected {' '.join(dict.fromkeys(ours))}, which wins at next "
        "boot",
    )


def _text(value: str) -> str | None:
    """Return what a shell assigns, or None where that takes a shell to say."""
    plain = _PLAIN.match(value.strip())
    tail = value.strip()[plain.end() :].strip() if plain else value
    if plain is None or (tail and not tail.startswith("#")):
        return None
    double, single, bare = plain.groups()
    return re.sub(r"\\(.)", r"\1", double) if double is not None else single or bare or ""


def records(evidence: Evidence) -> dict[str, cmdline.Record]:
    """Return what we put into the host's command lines before, by place."""
    try:
        told = json.loads(evidence.files.get(RECORD, "{}"))
        return {
            place: cmdline.Record(tuple(each["added"]), tuple(each["taken"]))
            for place, each in told.items()
        }
    except (ValueError, AttributeError, KeyError, TypeError):
        # Damaged: then the words count as somebody's, and stay at the undo.
        return {}


class _Rewriter:
    """Command lines that are kept as text: each is given back what it was, then gets ours."""

    def __init__(self, evidence: Evidence, wanted: Wanted) -> None:
        self.wanted, self.host, self.before = wanted, evidence.host, records(evidence)
        self.evidence = evidence
        # A kernel that was installed since has inherited ours.
        added = dict.fromkeys(word for one in self.before.values() for word in one.added)
        self.inherited = cmdline.Record(tuple(added))
        self.findings: list[Finding] = []
        self.after: dict[str, cmdline.Record] = {}

    def line(self, words: cmdline.Words, place: str) -> cmdline.Words:
        """Return a command line as it is to be; one that is right already stays as it is."""
        base = cmdline.undone(words, self.before.get(place, self.inherited))
        told = cmdline.recorded(base, self.wanted.ours, self.wanted.excludes)
        if told != cmdline.Record():
            self.after[place] = told
        if told.taken:
            self.findings.append(_conflict(f"{self.host}: {place}", told.taken, self.wanted))
        after = cmdline.merged(base, self.wanted.ours, self.wanted.excludes)
        return words if Counter(after) == Counter(words) else after

    def rewritten(self, path: str, content: str | None) -> tuple[HostFile, ...]:
        """Return a file of others that is to change; one whose text is not known is told."""
        why = facts.unknown(self.evidence, path)
        # Unread, it may have our words; the record tells.
        told = path not in self.evidence.files and any(one.startswith(path) for one in self.before)
        if content == self.evidence.files.get(path) and not (why and told):
            return ()
        if why is None:
            return (HostFile(path, content),)
        line = " ".join(self.wanted.ours) or "none of Apiary's"
        self.findings.append(
            Finding(
                "TUNE-FILE-UNKNOWN",
                f"{self.host}: {path}",
                f"found {why}, expected a text that can be written again whole",
                path=path,
                line=line,
            )
        )
        return ()

    def file(self) -> HostFile:
        """Return the record of what is ours, for the undo."""
        if not self.after:
            return HostFile(RECORD, None)
        told = {
            place: {"added": list(one.added), "taken": list(one.taken)}
            for place, one in self.after.items()
        }
        return HostFile(RECORD, json.dumps(told, indent=2, sort_keys=True) + "\n")


def _defaults(evidence: Evidence, variable: str, rewriter: _Rewriter) -> tuple[HostFile, ...]:
    """Return /etc/default/grub with our words in one of its variables, if it is to change."""
    text = evidence.files.get(DEFAULTS, "")
    found = [match for match in _ASSIGNMENT.finditer(text) if match.group(1) == variable]
    if not found:
        line = rewriter.line((), f"{DEFAULTS}: {variable}")
        gap = "" if not text or text.endswith("\n") else "\n"
        added = f'{gap}{variable}="{_quoted(line)}"\n' if line else ""
        return rewriter.rewritten(DEFAULTS, text + added if added else evidence.files.get(DEFAULTS))
    match = found[-1]
    value = _text(match.group(2))
    if value is None:
        raise error(
            "TUNE-GRUB-SYNTAX",
            f"{evidence.host}: {DEFAULTS}",
            f"found {match.group(0).strip()!r}, expected {variable} with a plain value in quotes",
            variable=variable,
        )
    words = cmdline.split(value)
    after = rewriter.line(words, f"{DEFAULTS}: {variable}")
    if after == words:
        return ()
    changed = f'{text[: match.start(2)]}"{_quoted(after)}"{text[match.end(2) :]}'
    return rewriter.rewritten(DEFAULTS, changed)


def _quoted(words: Sequence[str]) -> str:
    """Return words as they stand between a shell's double quotes."""
    return re.sub(r'(["\\$`])', r"\\\1", " ".join(words))


def _grubby(evidence: Evidence, loader: Mapping[str, Any], wanted: Wanted) -> BootPlan:
    said = facts.command(evidence, "grubby")
    rewriter = _Rewriter(evidence, wanted)
    commands: list[Command] = []
    booted = []
    for kernel, words in _kernels(said.stdout if said else ""):
        booted.append(words)
        after = rewriter.line(words, f"boot entry of {kernel}")
        gone, new = Counter(words) - Counter(after), Counter(after) - Counter(words)
        # grubby takes every word of a name away when it adds one of that name.
        names = {cmdline.parts(word)[0] for word in new}
        gone |= Counter(word for word in words if cmdline.parts(word)[0] in names)
        added = [word for word in after if cmdline.parts(word)[0] in names]
        if gone or added:
            options = [f"--remove-args={' '.join(gone)}"] * bool(gone)
            options += [f"--args={' '.join(added)}"] * bool(added)
            commands.append(("grubby", f"--update-kernel={kernel}", *options))
    files = [*_defaults(evidence, loader["variable"], rewriter)]
    same = evidence.files.get(INHERITED)
    if same is not None or INHERITED in evidence.unreadable:
        words = cmdline.split(same or "")
        after = rewriter.line(words, INHERITED)
        files += rewriter.rewritten(INHERITED, same if after == words else " ".join(after) + "\n")
    return BootPlan(
        loader=loader["id"],
        files=(*files, rewriter.file()),
        commands=tuple(commands),
        findings=tuple(rewriter.findings),
        next_boot=tuple(booted),
    )


def _kernels(text: str) -> Iterator[tuple[str, cmdline.Words]]:
    """Yield kernel and words of each boot entry, as `grubby --info=ALL` prints them."""
    kernel = None
    for line in text.splitlines():
        key, _equals, value = line.partition("=")
        if key == "kernel":
            kernel = value.strip('"')
        elif key == "args" and kernel:
            inner = value.strip()
            inner = inner[1:-1] if len(inner) > 1 and inner[0] == inner[-1] == '"' else inner
            yield kernel, cmdline.split(inner)
            kernel = None
