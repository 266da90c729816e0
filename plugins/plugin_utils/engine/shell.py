# SPDX-License-Identifier: GPL-3.0-or-later

"""Shell text in words: quotes, continuations, comments and variables, with their line numbers.

Only what start scripts of engines use; nothing is run. What would have to be run to be known
($(…), `…`, globs) stays in the word as it is written.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

_OPERATORS = ("&&", "||", ";;", "|&", ">>", "<<", ">&", "<&", "&>", ";", "&", "|", "<", ">", "\n")
_ESCAPED = re.compile(r'\\([$`"\\\n])')  # by a backslash between double quotes
_PART = re.compile(
    r"""'(?P<single>[^']*)'|"(?P<double>(?:[^"\\]|\\.)*)"|"""
    r"""\\(?P<escaped>.?)|(?P<plain>[^ \t\n;&|<>'"\\]+)""",
    re.DOTALL,
)
_BREAKS = ("&&", "||", ";;", ";", "&", "|", "|&", "\n")
_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(?=\+?=)")
_VARIABLE = re.compile(r"\$(?:\{(?P<braced>[A-Za-z_]\w*)(?P<rest>[^}]*)\}|(?P<name>[A-Za-z_]\w*))")


class ShellError(Exception):
    """Text that no shell would read, with its line."""

    def __init__(self, line: int, message: str) -> None:
        self.line, self.message = line, message
        super().__init__(f"line {line}: {message}")


@dataclass(frozen=True)
class Word:
    """One word: its text, the line it begins on, and the variables in it that have no value."""

    text: str
    line: int
    unset: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Token:
    parts: tuple[tuple[str, bool], ...]  # text, and whether variables in it are replaced
    line: int
    operator: bool = False
    glued: bool = False  # an operator right behind a word, as in `2>`

    @property
    def raw(self) -> str:
        return "".join(text for text, _replaced in self.parts)


def commands(text: str) -> Iterator[tuple[dict[str, Word], list[Word]]]:
    """Yield each simple command: the variables that hold for it, and its words.

    Assignments on lines of their own, exported or not, hold for what follows. Raises ShellError
    for a quote that is not closed.
    """
    variables: dict[str, str] = {}
    exported: dict[str, Word] = {}
    for tokens in _split(text):
        own: dict[str, Word] = {}
        rest = list(tokens)
        while rest and (name := _assigned(rest[0])):
            word = _expand(rest.pop(0), variables)
            own[name] = Word(word.text.partition("=")[2], word.line, word.unset)
        words = [_expand(token, variables) for token in rest]
        if words and words[0].text in ("export", "declare", "set", "setenv"):
            for word in words[1:]:
                name, equals, value = word.text.partition("=")
                if equals and _ASSIGNMENT.match(word.text):
                    own[name] = Word(value, word.line, word.unset)
                elif name in variables:
                    own[name] = Word(variables[name], word.line)
            words = []
        if words:
            yield {**exported, **own}, words
        else:
            variables |= {name: word.text for name, word in own.items()}
            exported |= own


def _assigned(token: _Token) -> str | None:
    first, _replaced = token.parts[0] if token.parts else ("", True)
    match = _ASSIGNMENT.match(first)
    return match.group() if match else None


def _expand(token: _Token, variables: Mapping[str, str]) -> Word:
    """Return a token as a word, its variables replaced where they are known."""
    unset: list[str] = []

    def value(match: re.Match[str]) -> str:
        name, rest = match["braced"] or match["name"], match["rest"] or ""
        if name in variables and (not rest or rest.startswith((":-", "-"))):
            return variables[name]
        if rest.startswith((":-", "-")):
            return rest.removeprefix(":").removeprefix("-")
        unset.append(name)
        return match.group()

    text = "".join(
        _VARIABLE.sub(value, part) if replaced else part for part, replaced in token.parts
    )
    return Word(text, token.line, tuple(unset))


def _split(text: str) -> Iterator[list[_Token]]:
    """Yield the tokens of each simple command, without redirections."""
    command: list[_Token] = []
    skip = False
    for token in _tokens(text):
        if token.operator:
            skip = token.raw not in _BREAKS
            if skip:
                # The file descriptor right before a redirection is no word of the command.
                if token.glued and command and command[-1].raw.isdigit():
                    command.pop()
            elif command:
                yield command
                command = []
        elif skip:
            skip = False
        else:
            command.append(token)
    if command:
        yield command


def _tokens(text: str) -> Iterator[_Token]:
    text = text.replace("\r\n", "\n")
    position, line = 0, 1
    while position < len(text):
        char = text[position]
        if text.startswith("\\\n", position):
            position, line = position + 2, line + 1
        elif char in " \t":
            position += 1
        elif char == "#":
            end = text.find("\n", position)
            position = len(text) if end < 0 else end
        elif operator := next((item for item in _OPERATORS if text.startswith(item, position)), ""):
            glued = position > 0 and text[position - 1].isdigit()
            yield _Token(((operator, False),), line, operator=True, glued=glued)
            position += len(operator)
            line += operator == "\n"
        else:
            parts, end = _word(text, position, line)
            yield _Token(parts, line)
            line += text.count("\n", position, end)
            position = end


def _word(text: str, start: int, line: int) -> tuple[tuple[tuple[str, bool], ...], int]:
    """Return the parts of the word that begins at ``start``, and where it ends."""
    parts: list[tuple[str, bool]] = []
    position = start
    while position < len(text) and text[position] not in " \t\n;&|<>":
        match = _PART.match(text, position)
        if match is None:
            quote = "single" if text[position] == "'" else "double"
            raise ShellError(line, f"a {quote} quote is not closed")
        if match["double"] is not None:
            pieces = _ESCAPED.split(match["double"])
            parts += [
                (piece, at % 2 == 0)
                for at, piece in enumerate(pieces)
                if piece != "\n" or at % 2 == 0
            ]
        elif match["plain"] is not None:
            parts.append((match["plain"], True))
        elif match["single"] is not None:
            parts.append((match["single"], False))
        elif match["escaped"] != "\n":
            parts.append((match["escaped"], False))
        position = match.end()
    return _joined(parts), position


def _joined(parts: list[tuple[str, bool]]) -> tuple[tuple[str, bool], ...]:
    """Return neighbouring parts of one kind as one, so that `${NAME}` is found whole."""
    result: list[tuple[str, bool]] = []
    for text, replaced in parts:
        if result and result[-1][1] == replaced:
            result[-1] = (result[-1][0] + text, replaced)
        else:
            result.append((text, replaced))
    return tuple(result)
