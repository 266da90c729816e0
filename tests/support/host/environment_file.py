# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""An EnvironmentFile= as systemd reads it, by the states of its parser (src/basic/env-file.c)."""

from __future__ import annotations

WHITESPACE, NEWLINE, COMMENTS, NEED_ESCAPE = " \t\n\r", "\n\r", "#;", '"\\`$'


def parse(text: str) -> dict[str, str]:
    """Return the variables of a file; the later of two of the same name holds."""
    found: dict[str, str] = {}
    state, key, value, kept = "before key", "", "", 0

    def finish() -> None:
        nonlocal key, value, kept
        found[key.rstrip(WHITESPACE)] = value
        key, value, kept = "", "", 0

    for letter in text:
        if state == "before key":
            if letter in COMMENTS:
                state = "comment"
            elif letter not in WHITESPACE:
                state, key = "key", letter
        elif state == "comment":
            if letter == "\\":
                state = "comment escape"
            elif letter in NEWLINE:
                state = "before key"
        elif state == "comment escape":
            state = "comment"
        elif state == "key":
            if letter in NEWLINE:
                state, key = "before key", ""
            elif letter == "=":
                state = "before value"
            else:
                key += letter
        elif state == "before value":
            if letter in NEWLINE:
                finish()
                state = "before key"
            elif letter in "'\"\\":
                state = {"'": "single", '"': "double", "\\": "escape"}[letter]
            elif letter not in WHITESPACE:
                state, value = "value", value + letter
                kept = len(value)
        elif state == "value":
            if letter in NEWLINE:
                value = value[:kept]
                finish()
                state = "before key"
            elif letter == "\\":
                state, kept = "escape", len(value)
            else:
                value += letter
                kept = len(value) if letter not in WHITESPACE else kept
        elif state == "escape":
            state = "value"
            if letter not in NEWLINE:
                value += letter
                kept = len(value)
        elif state == "single":
            if letter == "'":
                state = "before value"
            else:
                value += letter
        elif state == "double":
            if letter == '"':
                state = "before value"
            elif letter == "\\":
                state = "double escape"
            else:
                value += letter
        elif state == "double escape":
            state = "double"
            if letter in NEED_ESCAPE:
                value += letter
            elif letter != "\n":
                value += "\\" + letter
    if state not in ("before key", "key", "comment", "comment escape"):
        finish()
    return found
