# SPDX-License-Identifier: GPL-3.0-or-later

"""The arithmetic in which knowledge/models/*.yml states the size of a module.

A formula is an expression of whole numbers, names (keys of a config.json), `+ - * // %`,
comparisons (1 or 0), `not`, `and`, `or`, `a if b else c`, and these functions: linear(in, out) with
bias, norm(size) with bias, block(hidden, intermediate) a vision block with biases, ceil(a, b) the
quotient rounded up, max, min, and over a key's own value: given(key) 1 if it is there, count(key) a
list's length, product(key) of a list, first(key) the number that a list repeats, leading(key) the
one it begins with, total(key) its sum or 0 without one, times(key, what) how often it has a word or
number, text(key, "word") 1 if it is that word, outer(key) what the wrapper around a tower says,
multiplied(key) the widths that DeciLM's factors make.
"""

from __future__ import annotations

import ast
import functools
import operator
from collections.abc import Callable, Mapping

Value = Callable[[str], int]
MOST = 2**80  # a count of parameters or bytes never comes near; a larger one is a mistake


class UnknownError(Exception):
    """A number that a formula needs is not known; its reader has noted which."""


def _block(hidden: int, intermediate: int) -> int:
    attention = 4 * hidden * hidden + 4 * hidden
    return attention + 2 * hidden * intermediate + intermediate + hidden + 4 * hidden


_FUNCTIONS: dict[str, Callable[..., int]] = {
    "linear": lambda width, out: width * out + out,
    "norm": lambda size: 2 * size,
    "block": _block,
    "ceil": lambda a, b: -(-a // b),
    "max": max,
    "min": min,
}
# Functions of a key itself: the caller is asked for `function key`.
_OF_KEYS = (
    *("given", "count", "product", "first", "leading", "total", "times", "text", "outer"),
    "multiplied",
    *("zero", "optional", "switch", "flag", "listed", "among", "letters", "letter", "spelt"),
)
_OPERATORS: dict[type, Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Eq: lambda a, b: int(a == b),
    ast.Gt: lambda a, b: int(a > b),
    ast.Lt: lambda a, b: int(a < b),
    ast.GtE: lambda a, b: int(a >= b),
    ast.LtE: lambda a, b: int(a <= b),
}


@functools.cache
def _parsed(formula: str) -> ast.expr:
    return ast.parse(formula, mode="eval").body


def evaluate(formula: str | int, value: Value) -> int:
    """Return what a formula comes to; ``value`` says each name, or raises UnknownError."""
    if isinstance(formula, int):
        return formula
    result = _evaluate(_parsed(formula), value)
    if abs(result) > MOST:
        raise UnknownError(formula)
    return result


def scoped(let: Mapping[str, str | int], outer: Value) -> Value:
    """Return the names of ``let``, which are formulas themselves, before those of ``outer``."""

    def value(name: str) -> int:
        return evaluate(let[name], value) if name in let else outer(name)

    return value


def _evaluate(node: ast.expr, value: Value) -> int:
    if isinstance(node, ast.Constant) and isinstance(node.value, int):
        return node.value
    if isinstance(node, ast.Name):
        return value(node.id)
    if isinstance(node, ast.BinOp):
        return _apply(node.op, node.left, node.right, value)
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        return _apply(node.ops[0], node.left, node.comparators[0], value)
    if isinstance(node, ast.IfExp):
        return _evaluate(node.body if _evaluate(node.test, value) else node.orelse, value)
    if isinstance(node, ast.BoolOp):
        result = 0
        for part in node.values:
            result = _evaluate(part, value)
            if bool(result) is isinstance(node.op, ast.Or):
                break
        return result
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        return int(not _evaluate(node.operand, value))
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        name = node.func.id
        if name in _OF_KEYS:
            words = [arg.id if isinstance(arg, ast.Name) else _word(arg) for arg in node.args]
            return value(" ".join((name, *words)))
        return _FUNCTIONS[name](*(_evaluate(arg, value) for arg in node.args))
    raise ValueError(f"no formula: {ast.dump(node)}")


def _word(node: ast.expr) -> str:
    if isinstance(node, ast.Constant):
        return str(node.value)
    raise ValueError(f"no key or word: {ast.dump(node)}")


def _apply(op: ast.AST, left: ast.expr, right: ast.expr, value: Value) -> int:
    try:
        return _OPERATORS[type(op)](_evaluate(left, value), _evaluate(right, value))
    except ZeroDivisionError:
        raise UnknownError("division by zero") from None
