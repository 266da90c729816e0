# SPDX-License-Identifier: GPL-3.0-or-later

"""The kernel command line as words: read, asked, merged, and given back as it was.

Pure and without order of its own: words of others keep their places, ours stand at the end, before
a `--`, after which the kernel passes everything to init. The file in /etc/default/grub.d merges the
same way when grub-mkconfig sources it, so that what the operator, the cloud image or a package sets
in the same variables later is kept, too.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from ...documents import knowledge

Words = tuple[str, ...]
# As the kernel's own parser: a quote that is never closed reaches to the end.
_WORD = re.compile(r'(?:"[^"]*(?:"|\Z)|[^ \t\n"])+')
END = "--"


def split(line: str) -> Words:
    """Return the words of a command line, quotes kept; a quote hides blanks until the next one."""
    return tuple(_WORD.findall(line))


def parts(word: str) -> tuple[str, str | None]:
    """Return name and value of a word; `-` and `_` are one in names, as they are to the kernel."""
    name, equals, value = word.strip('"').partition("=")
    return name.replace("-", "_"), value.strip('"') if equals else None


def _list_names() -> frozenset[str]:
    return frozenset(knowledge("host/tuning.yml")["list_arguments"]["names"])


def is_list(name: str) -> bool:
    """Say whether an argument's value is a list with commas, as that of `pci` is."""
    return name in _list_names()


def options(value: str | None) -> tuple[str, ...]:
    """Return the options of a list argument's value."""
    return tuple(option for option in (value or "").split(",") if option)


def option_name(option: str) -> str:
    """Return an option's name: `realloc` of `realloc=off`."""
    return option.partition("=")[0]


def kernel_words(words: Sequence[str]) -> tuple[Words, Words]:
    """Return the kernel's own words, and those from `--` on, which are init's."""
    if END not in words:
        return tuple(words), ()
    at = list(words).index(END)
    return tuple(words[:at]), tuple(words[at:])


def pieces(word: str) -> tuple[str, ...]:
    """Return a word as its pieces: one for each option of a list argument, else itself."""
    name, value = parts(word)
    if not is_list(name):
        return (word,)
    return tuple(f"{name}={option}" for option in options(value))


def _same(piece: str, other: str) -> bool:
    """Say whether two pieces decide the same thing, so that the later one wins."""
    (name, value), (other_name, other_value) = parts(piece), parts(other)
    if name != other_name:
        return False
    if not is_list(name):
        return True
    return option_name(value or "") == option_name(other_value or "")


def _excluded(piece: str, excludes: Iterable[str]) -> bool:
    return any(parts(piece) == parts(other) for other in excludes)


def has(words: Sequence[str], wanted: str) -> bool:
    """Say whether a command line has a word of ours in effect: the last that decides it is ours."""
    told = [
        piece
        for word in kernel_words(words)[0]
        for piece in pieces(word)
        if all(_same(piece, one) for one in pieces(wanted))
    ]
    return bool(told) and parts(told[-1]) == parts(wanted)


def contradictions(words: Sequence[str], ours: Sequence[str], excludes: Sequence[str]) -> Words:
    """Return the pieces of a command line that decide otherwise what ours decide."""
    return tuple(
        piece
        for word in kernel_words(words)[0]
        for piece in pieces(word)
        if _excluded(piece, excludes)
        or any(_same(piece, one) and parts(piece) != parts(one) for one in ours)
    )


def without(words: Sequence[str], ours: Sequence[str], excludes: Sequence[str]) -> Words:
    """Return a command line without what ours decide and what contradicts them."""
    kernel, rest = kernel_words(words)
    left = (_left(word, ours, excludes) for word in kernel)
    return (*(word for word in left if word), *rest)


def _left(word: str, ours: Sequence[str], excludes: Sequence[str]) -> str:
    """Return a word without such pieces, empty where none is left."""
    foreign = [
        piece
        for piece in pieces(word)
        if not _excluded(piece, excludes) and not any(_same(piece, one) for one in ours)
    ]
    if len(foreign) == len(pieces(word)):
        return word
    return (
        f"{parts(word)[0]}=" + ",".join(parts(one)[1] or "" for one in foreign) if foreign else ""
    )


def merged(words: Sequence[str], ours: Sequence[str], excludes: Sequence[str] = ()) -> Words:
    """Return a command line with ours in effect, and everything else as it was.

    ``ours`` are words of their own, also of list arguments: AMD's checks look for
    `pci=realloc=off` to the letter. One that is there already keeps its place.
    """
    kernel, rest = kernel_words(words)
    kept: list[str] = []
    for word in kernel:
        stays = word in ours and word not in kept
        left = word if stays else _left(word, ours, excludes)
        kept += [left] * bool(left)
    return (*kept, *(one for one in ours if one not in kept), *rest)


@dataclass(frozen=True)
class Record:
    """What we put into a command line, and what we took from it: enough to give it back."""

    added: Words = ()
    taken: Words = ()


def undone(words: Sequence[str], record: Record) -> Words:
    """Return a command line without what we added, and with what we took away."""
    kernel, rest = kernel_words(words)
    kept: list[str] = []
    for word in kernel:
        left = [piece for piece in pieces(word) if not _excluded(piece, record.added)]
        if len(left) == len(pieces(word)):
            kept.append(word)
        elif left:
            name = parts(word)[0]
            kept.append(f"{name}=" + ",".join(parts(one)[1] or "" for one in left))
    decided = [piece for word in kept for piece in pieces(word)]
    for piece in record.taken:
        if any(_same(piece, other) for other in decided):
            continue  # somebody has decided it anew
        name, value = parts(piece)
        at = [n for n, word in enumerate(kept) if parts(word)[0] == name and parts(word)[1]]
        if is_list(name) and at:
            kept[at[-1]] += f",{value}"
        else:
            kept.append(piece)
    return (*kept, *rest)


def recorded(words: Sequence[str], ours: Sequence[str], excludes: Sequence[str]) -> Record:
    """Return what merging ours into a command line adds to it and takes from it."""
    added = tuple(one for one in ours if not has(words, one))
    return Record(added, contradictions(words, ours, excludes))


_WORDS = "@words@\n"  # the line that ours take the place of


def grub_dropin(ours: Sequence[str], excludes: Sequence[str]) -> str:
    """Return the drop-in's text for our words, those that contradict them, and list arguments."""
    exclude = ["{}={}".format(*parts(word)) for word in excludes]
    lists = knowledge("host/tuning.yml")["list_arguments"]["names"]
    words = {"lists": lists, "excluded": exclude, "ours": ours}
    settings = "".join(
        f"  apiary_{name}={shlex.quote(' '.join(each))} \\\n" for name, each in words.items()
    )
    text = Path(__file__).with_name("grub_dropin.cfg").read_text(encoding="utf-8")
    return text.replace(_WORDS, settings)
