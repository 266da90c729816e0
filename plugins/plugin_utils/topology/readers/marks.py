# SPDX-License-Identifier: GPL-3.0-or-later

"""A text's lines without what terminals, launchers and logs put before them, and whose each is.

What a text is, is decided by the lines that one tool alone prints.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ...documents import knowledge

ROCM_SMI, AMD_SMI, ROCMINFO = "rocm-smi", "amd-smi", "rocminfo"
BANDWIDTH_TEST, NUMACTL, LSPCI = "rocm_bandwidth_test", "numactl", "lspci"
KFD, XGMI_SYSFS = "KFD sysfs", "xgmi_num_links"
# Whose word counts first.
ORDER = (KFD, AMD_SMI, ROCM_SMI, ROCMINFO, BANDWIDTH_TEST, XGMI_SYSFS, LSPCI, NUMACTL)

_FACTS = knowledge("outputs.yml")
_FOREIGN = {entry["whose"]: entry for entry in _FACTS["foreign"]}
_TOOLS: dict[str, Any] = _FOREIGN | _FACTS["tools"]
_NAMES = tuple(_TOOLS)
# Longer lines than any tool's words need are looked at up to here.
_HEAD = 400


def _expression(key: str) -> re.Pattern[str]:
    """Return one expression for all tools; the last group that matched says which."""
    groups = (
        f"(?P<m{place}>{'|'.join(parts)})"
        for place, entry in enumerate(_TOOLS.values())
        if (
            parts := [
                *entry.get(key, ()),
                *(item[key] for item in entry.get("absent", ()) if key in item),
            ]
        )
    )
    return re.compile("|".join(groups))


_ABSENCES: dict[str, list[tuple[re.Pattern[str], str]]] = {
    name: [(re.compile(item["words"]), item["meaning"]) for item in facts.get("absent", ())]
    for name, facts in _TOOLS.items()
}
_LINES, _WORDS = _expression("lines"), _expression("words")
_ENDS = {
    name: re.compile("|".join(facts["end"])) for name, facts in _TOOLS.items() if "end" in facts
}
_BEGINNINGS = {name: facts["begin"] for name, facts in _TOOLS.items() if "begin" in facts}


def tool_of(line: str) -> tuple[str | None, bool]:
    """Return which tool prints such a line, taken without its margin, or whose it is if foreign.

    The second says whether the line stands at the margin of an output.
    """
    match = _LINES.match(line)
    at_margin = match is not None
    match = match or _WORDS.search(line, 0, _HEAD)
    return (_NAMES[int((match.lastgroup or "")[1:])] if match else None), at_margin


def foreign(tool: str) -> bool:
    """Return whether a tool is none that is read."""
    return tool in _FOREIGN


def ended(tool: str, text: str) -> bool:
    """Return whether the line with which a tool ends is in a text."""
    return tool in _ENDS and _ENDS[tool].search(text) is not None


def cut(tool: str, text: str) -> bool:
    """Return whether what begins as a tool's output lacks the line with which it ends."""
    return tool in _BEGINNINGS and _BEGINNINGS[tool] in text and not ended(tool, text)


def why_absent(tool: str, text: str) -> str | None:
    """Return why a tool sees no GPU or not all of them, if text (stdout or stderr) tells."""
    return next((meaning for words, meaning in _ABSENCES[tool] if words.search(text)), None)


_ESCAPES = re.compile(
    r"\x1b\[[0-9;?]*[ -/]*[@-~]|\x1b\][^\x07\x1b\n]*(?:\x07|\x1b\\)|\x1b[@-Z\\-_]"
)
# "Â " is a no-break space that was decoded as Latin-1, "M-BM- " one that `cat -A` wrote.
_BLANKS = re.compile("Â\u00a0|\u00a0|\u202f")
_MOST_PREFIXES = 4


@dataclass(frozen=True)
class Line:
    """One line of a text; ``number`` counts from 1 in the text as it was given.

    ``label`` is the task (a number) or host whose line it is, where a launcher wrote that;
    ``tool`` is the one tool that prints such lines (marks.py).
    """

    number: int
    text: str
    label: str | None = None
    tool: str | None = None


@dataclass(frozen=True)
class Command:
    """What somebody typed, or a script traced, above an output; ``host`` is that of the prompt."""

    number: int
    text: str
    host: str | None = None


# `$ x`, `root@gpu-001:~# x`, `[root@gpu-001 ~]# x`, `gpu-001:~ # x`, `+ x` of `set -x`.
_PROMPT = re.compile(
    r"(?:\([\w. -]{1,60}\) ?)?(?:\[?(?:[\w.-]{1,64}@)?([\w.-]{1,64})(?:[: ][^\s$#%>]{0,200})?\]?)?"
    r" ?[$#%>\u276f] ?(\S.*)?$"
)
_TRACE = re.compile(r"\+{1,9} (\S.*)$")
_TYPED = re.compile(
    r"(?:\S{1,200}+ ){0,40}?(?:\S{0,200}/)?(?:(?:rocm|amd|nvidia)-smi|rocminfo|rocm.bandwidth.test"
    r"|numactl|lspci|cat|head)(?: |$)"
)
_SSH = re.compile(r"(?:^|\s)ssh (?:-\S+ )*(?:[\w.-]{1,64}@)?([\w.-]{1,64})(?: |$)")
# A command alone on its line, without its prompt.
_BARE = re.compile(r"(?:sudo )?(?:\S{0,200}/)?(?:rocm|amd)-smi(?: -.*| [a-z]+(?: -.*)?)?$")
_MOST_TYPED = 1000
# What launchers leave without a prefix, beside prompts and traces: their own complaints.
_COMPLAINT = re.compile(r"(?:srun|slurmstepd|clush|pdsh@\S+): ")


def command(line: Line) -> Command | None:
    """Return the command that a line is, behind its prompt or traced by the shell."""
    text = line.text.strip()
    if len(text) > _MOST_TYPED:
        return None
    trace, prompt = _TRACE.match(text), _PROMPT.match(text)
    typed = trace.group(1) if trace else prompt and prompt.group(2)
    if typed and _TYPED.match(typed):
        target = _SSH.search(typed)
        host = target or (prompt if prompt and "@" in text[: prompt.start(2)] else None)
        return Command(line.number, typed, host.group(1) if host else None)
    return Command(line.number, text) if _BARE.match(text) else None


def _aside(text: str) -> bool:
    """Say whether a line may lack the prefix that all others have."""
    bare = text.strip()
    if not bare or _COMPLAINT.match(bare) or _TRACE.match(bare):
        return True
    prompt = _PROMPT.match(bare) if len(bare) <= _MOST_TYPED else None
    return prompt is not None and (prompt.start(2) < 0 or bool(_TYPED.match(prompt.group(2))))


def _accepted(what: str, words: Sequence[str]) -> bool:
    """Return whether words are what a prefix has in all lines."""
    if what == "number":
        numbers = [int(word) for word in words]
        rises = all(a < b for a, b in itertools.pairwise(numbers))
        return len(numbers) > 2 and numbers[0] > 0 and rises
    return len(words) > {"host": 2 * len(set(words)), "time": 2}.get(what, 0)


_PREFIXES = tuple(
    (re.compile("^" + entry["line"]), entry["what"])
    for entry in knowledge("outputs.yml")["prefixes"]
)


def plain(text: str) -> tuple[Line, ...]:
    """Return the lines of a text as the tools printed them, with their numbers.

    Takes away the byte order mark, escapes of terminals, carriage returns, no-break spaces, what
    `cat -A` shows in their place, marks of quotations, the prefix that all lines have (a task's or
    host's label, a time, a number), and the margin. Only of one task or host is the label taken
    away: what several of them printed is no one output, and Line.label says whose it is.
    """
    lines = [
        Line(number, piece.rstrip("\r"))
        for number, whole in enumerate(_unescaped(text).split("\n"), 1)
        for piece in (whole.rstrip("\r").splitlines() or [""])
    ]
    if text.endswith("\n"):
        lines.pop()
    lines = _visible(lines)
    quoted = [line.text.startswith(">") for line in lines if line.text.strip()]
    if quoted and all(quoted):
        lines = [replace(line, text=re.sub(r"^> ?", "", line.text)) for line in lines]
    for _prefix in range(_MOST_PREFIXES):
        stripped = _without_prefix(lines)
        if stripped is None:
            break
        lines = stripped
        if len({line.label for line in lines} - {None}) > 1:
            break
    return tuple(_flush(lines))


def _unescaped(text: str) -> str:
    return _BLANKS.sub(" ", _ESCAPES.sub("", text.lstrip("\ufeff").replace("\x00", "")))


def _visible(lines: list[Line]) -> list[Line]:
    """Undo `cat -A` and `cat -e`: a `$` at the end of lines, tabs and returns as `^I` and `^M`."""
    if sum(line.text.endswith("$") and not _aside(line.text) for line in lines) < 2:
        return lines
    return [
        replace(
            line,
            text=line.text.removesuffix("$")
            .removesuffix("^M")
            .replace("^I", "\t")
            .replace("M-BM- ", " "),
        )
        for line in lines
    ]


def _without_prefix(lines: Sequence[Line]) -> list[Line] | None:
    """Return lines without the first prefix that all but asides have, or None without any."""
    written = [line.text for line in lines if line.text.strip()]
    for prefix, what in _PREFIXES:
        words = []
        for text in written:
            match = prefix.match(text)
            if match is not None:
                words.append(match.group(1))
            elif not _aside(text):
                words.clear()
                break
        if not words or not _accepted(what, words):
            continue
        matches = [prefix.match(line.text) for line in lines]
        if what in ("task", "host"):
            return _relabelled(lines, matches)
        return [
            line if match is None else replace(line, text=line.text[match.end() :])
            for line, match in zip(lines, matches, strict=True)
        ]
    return None


def _relabelled(lines: Sequence[Line], matches: Sequence[re.Match[str] | None]) -> list[Line]:
    """Return lines with labels in place of the prefix.

    Tasks are often on one host and print the same, which then counts once; hosts that print the
    same are several still.
    """
    result: list[Line] = []
    tasks: dict[str, list[str]] = {}
    for line, match in zip(lines, matches, strict=True):
        if match is not None:
            word = match.group(1)
            label = str(int(word)) if word.isdecimal() else word
            line = Line(line.number, line.text[match.end() :], label)
            tasks.setdefault(label, []).append(line.text)
        result.append(line)
    first = next(iter(tasks))
    if all(map(str.isdecimal, tasks)) and all(text == tasks[first] for text in tasks.values()):
        result = [line for line in result if line.label in (None, first)]
    if len({line.label for line in result} - {None}) == 1:
        return [replace(line, label=None) for line in result]
    return result


def _flush(lines: Iterable[Line]) -> Iterable[Line]:
    """Yield lines without their margin: pages indent an output, and not the prompt above it.

    What is known to begin in a tool's first column gives the margin of what follows.
    """
    margin = 0
    for line in lines:
        text = line.text.lstrip(" \t")
        indent = len(line.text) - len(text)
        tool, at_margin = tool_of(text) if text else (None, False)
        if at_margin:
            margin = indent
        if margin or tool is not None:
            line = replace(line, text=line.text[min(margin, indent) :], tool=tool)
        yield line


def clean(text: str) -> str:
    """Return one output without the prefixes of its lines; that of several tasks as it is."""
    lines = plain(text)
    if any(line.label for line in lines):
        return text
    return "".join(f"{line.text}\n" for line in lines)
