# SPDX-License-Identifier: GPL-3.0-or-later

"""Whose a line is: what a text is, is decided by the lines that one tool alone prints."""

from __future__ import annotations

import re
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
