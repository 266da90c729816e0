# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Every regular expression of the product, the worst texts for it, and the work that they make."""

import ast
import functools
import importlib
import math
import re
import signal
import time
from collections.abc import Mapping
from pathlib import Path
from re import _constants as code
from re import _parser as parser

ROOT = Path(__file__).parents[2]
METHODS = ("search", "match", "fullmatch", "findall", "finditer", "sub", "split")
# Read what an operator gives: a command or a variable of his, a public key.
EXEMPT = ("shell.py", "release.py")
# What a class of characters is tried with.
TRIED = " \ta0A_-.:/,\n\"'[(<>=@{"
# Which text fails after it, so that every way to split what is before is tried.
ENDS = ("\0", " \0", "\n\0")
# A quadratic pattern has more than enough work with these.
SMALL, FACTOR = 750, 4
# Twice as much work for a character as a linear pattern has, half of what a quadratic one has.
MOST = 2
# Seconds of CPU below which a text is too little work to compare, and after which it is given up.
LEAST, ENDLESS = 0.01, 2
# The same of whole readers: between no more work for each character of a longer text (0), and as
# many times more as it is longer, as a quadratic reader has (1), by their logarithms.
LITTLE, LINEAR = 0.001, 0.6


def packages():
    """The files of the product, with the names by which they are imported."""
    for folder, name in (
        ("plugins", "ansible_collections.apiary.instinct.plugins"),
        ("src/apiary", "apiary"),
    ):
        for path in sorted((ROOT / folder).rglob("*.py")):
            parts = path.relative_to(ROOT / folder).with_suffix("").parts
            if "render" in parts and "host" in parts:
                continue  # programs of hosts, which read their own
            parts = parts[:-1] if parts[-1] == "__init__" else parts
            yield path, ".".join([name, *parts])


@functools.cache
def expressions():
    """Every expression with the methods that it is used with, once each."""
    found, used, calls = {}, {}, {}
    for path, name in packages():
        inline = calls.setdefault((path, name), [])
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Attribute) and node.attr in (*METHODS, "compile"):
                # By its last name, as another module may import it.
                owner = ast.unparse(node.value).rpartition(".")[2]
                for place in (name, ""):
                    used.setdefault((place, owner), set()).add(node.attr)
            elif (
                isinstance(node, ast.Call)
                and node.args
                and isinstance(node.func, ast.Attribute)
                and ast.unparse(node.func.value) == "re"
            ):
                inline.append((node.func.attr, node.args[0], node))
    for (path, name), inline in calls.items():
        if path.name in EXEMPT:
            continue
        for method, argument, node in inline:
            if method in METHODS and isinstance(argument, ast.Constant):
                flags = sum(flags_of(node))
                key = (argument.value, flags)
                found.setdefault(key, (set(), path))[0].add(method)
        if inline:
            for attribute, value in vars(importlib.import_module(name)).items():
                for pattern in patterns_in(value):
                    if isinstance(pattern.pattern, str):
                        key = (pattern.pattern, pattern.flags & ~re.UNICODE)
                        own, any_ = used.get((name, attribute)), used.get(("", attribute))
                        methods = (own or any_ or set()) & {*METHODS} or {"search"}
                        found.setdefault(key, (set(), path))[0].update(methods)
    return found


def flags_of(node):
    """The flags of a call of re, as far as they are written there."""
    words = [*node.args[1:], *(one.value for one in node.keywords if one.arg == "flags")]
    for word in words:
        for part in ast.walk(word):
            if isinstance(part, ast.Attribute) and ast.unparse(part.value) == "re":
                yield int(getattr(re, part.attr))


def patterns_in(value, depth=3):
    """The compiled expressions in a module's value."""
    if isinstance(value, re.Pattern):
        yield value
    elif depth and isinstance(value, Mapping):
        for one in value.values():
            yield from patterns_in(one, depth - 1)
    elif depth and isinstance(value, (list, tuple, set, frozenset)):
        for one in value:
            yield from patterns_in(one, depth - 1)


class Reader:
    """What an expression's repetitions are, and a text that leads to each."""

    def __init__(self, pattern, flags):
        self.pumps = set()
        self.read(parser.parse(pattern, flags), "")

    def read(self, items, before):
        """Note the repetitions of a sequence; return a text that it matches."""
        text = ""
        for kind, value in items:
            text += self.one(kind, value, before + text)
        return text

    def one(self, kind, value, before):
        if kind in (code.LITERAL, code.NOT_LITERAL):
            return chr(value) if kind is code.LITERAL else other(value)
        if kind is code.ANY:
            return "a"
        if kind is code.IN:
            return members(value)[0]
        if kind is code.BRANCH:
            return next(iter([self.read(branch, before) for branch in value[1]]))
        if kind is code.SUBPATTERN:
            return self.read(value[3], before)
        if kind is code.ATOMIC_GROUP:
            return self.read(value, before)
        if kind in (code.MAX_REPEAT, code.MIN_REPEAT, code.POSSESSIVE_REPEAT):
            least, most, inner = value
            text = self.read(inner, before)
            if most > 64:
                for pump in self.choices(inner, text):
                    self.pumps.add((before, pump))
            return text * max(least, 1)
        return ""

    def choices(self, inner, text):
        """Texts that a repetition may repeat: each kind of character of a class."""
        (kind, value), *more = list(inner) or [(None, None)]
        if not more and kind is code.IN:
            return members(value)[:8]
        if not more and kind in (code.ANY, code.NOT_LITERAL):
            return [one for one in "a 0-[/:" if kind is code.ANY or ord(one) != value]
        return [text] if text else []


def other(letter):
    return "b" if letter == ord("a") else "a"


def members(items):
    """Characters of a class, one of each kind that is tried."""
    expression = re.compile("[\\s\\S]")
    chosen = [one for one in TRIED if inside(items, one)]
    if chosen:
        return chosen
    for kind, value in items:
        if kind is code.LITERAL:
            return [chr(value)]
        if kind is code.RANGE:
            return [chr(value[0])]
    return ["a" if expression else ""]


CATEGORIES = {
    code.CATEGORY_DIGIT: r"\d",
    code.CATEGORY_NOT_DIGIT: r"\D",
    code.CATEGORY_SPACE: r"\s",
    code.CATEGORY_NOT_SPACE: r"\S",
    code.CATEGORY_WORD: r"\w",
    code.CATEGORY_NOT_WORD: r"\W",
}


def inside(items, letter):
    negated = any(kind is code.NEGATE for kind, _value in items)
    hit = any(
        (kind is code.LITERAL and value == ord(letter))
        or (kind is code.RANGE and value[0] <= ord(letter) <= value[1])
        or (kind is code.CATEGORY and re.match(CATEGORIES[value], letter) is not None)
        for kind, value in items
    )
    return hit != negated


def worst_texts(pattern, flags):
    """Makers of texts of some length that are much work, if any are, for an expression."""
    for before, pump in sorted(Reader(pattern, flags).pumps):
        for end in ENDS:
            yield lambda size, b=before, p=pump, e=end: b + repeated(p, size) + e
        yield lambda size, w=before + pump: repeated(w, size) + "\0"
        if before:
            yield lambda size, b=before: repeated(b, size) + "\0"
        yield lambda size, w=before + pump * 60: repeated(w, size) + "\0"


def repeated(text, size):
    return text * max(1, size // len(text))


def work(function, text, runs=3, most=ENDLESS):
    """Seconds of this process's CPU, the least of some runs; infinite above ``most``."""
    spent = []
    former = signal.signal(signal.SIGVTALRM, give_up)
    try:
        for _run in range(runs):
            begun = time.process_time()
            signal.setitimer(signal.ITIMER_VIRTUAL, most)
            function(text)
            spent.append(time.process_time() - begun)
            if spent[-1] > 1:
                break
    except EndlessError:
        return math.inf
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, former)
    return min(spent)


class EndlessError(Exception):
    """More work than anybody awaits."""


def give_up(*_words):
    raise EndlessError


def grows(function, maker, small=SMALL):
    """Say how much more work each character of a text of several times the length is.

    None where it is little.
    """
    size = 10
    # From small to large, so that nothing that doubles with each character goes on for ever.
    while work(function, maker(size * FACTOR), 1) < LEAST:
        size = size + 5 if size < 50 else size * 2
        if size > small * FACTOR:
            return None
    growth = 0.0
    # What grows too fast is looked at more closely: the machine may have been busy.
    for runs in (1, 3, 5, 25):
        longer, shorter = maker(size * FACTOR), maker(size)
        more = work(function, longer, runs)
        if more == math.inf:
            return more
        less = work(function, shorter, runs)
        growth = more / max(less, 1e-6) / (len(longer) / len(shorter))
        if growth < MOST:
            break
    return growth


def grown(function, shorter, longer):
    """Return the work of a longer text, and by which power of its length each character takes more.

    What is too little work to compare has not grown.
    """
    ratio = len(longer) / len(shorter)
    more = less = math.inf
    # What grows too fast is looked at more closely, the least of all runs counts, and both are
    # tried in turn: the machine may be busy with other things, and never makes work less.
    for _run in range(20):
        more = min(more, work(function, longer, 1, ENDLESS * ratio))
        if more == math.inf:
            break
        if more < LITTLE * ratio * ratio**LINEAR:
            return more, 0.0
        less = min(less, work(function, shorter, 1))
        growth = math.log(more / max(less, LITTLE) / ratio, ratio)
        if growth < LINEAR:
            return more, growth
    return more, math.inf if more == math.inf else growth


def applied(pattern, flags, method):
    """A function that applies an expression to a text as the product does."""
    compiled = re.compile(pattern, flags)
    if method == "sub":
        return lambda text: compiled.sub("", text)
    if method == "finditer":
        return lambda text: list(compiled.finditer(text))
    return getattr(compiled, method)
