# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a PromQL expression asks for, checked against the labels that series really have.

The parser is Prometheus' own grammar (promql-parser); what an operator does to labels is from
https://prometheus.io/docs/prometheus/latest/querying/operators/.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import promql_parser as promql

Labels = frozenset[str]
Known = Mapping[str, Labels]
_SET_OPERATORS = ("and", "or", "unless")
_KEEPING = ("topk", "bottomk", "limitk", "limit_ratio")


class BadQueryError(Exception):
    """A query for a series or a label that does not exist, or a join that never matches."""


def plain(expression: str) -> str:
    """Return a panel's expression with Grafana's variables replaced, so that it parses."""
    text = re.sub(r"\$__(rate_interval|interval|range)\b", "5m", expression)
    return re.sub(r"\$\{?(\w+)(:\w+)?\}?", r"\1", text)


def names(expression: str) -> set[str]:
    """Return the names of all series that an expression asks for."""
    found: set[str] = set()

    def visit(node: Any) -> None:
        if isinstance(node, promql.VectorSelector):
            found.add(node.name or "")

    promql.walk(promql.parse(plain(expression)), visit)
    return found


def labels_of(expression: str, known: Known) -> Labels:
    """Return the labels that the result may have; raise BadQueryError for what cannot be."""
    try:
        return _labels(promql.parse(plain(expression)), known) or frozenset()
    except ValueError as failure:
        raise BadQueryError(f"{expression}: {failure}") from failure


def _labels(node: Any, known: Known) -> Labels | None:
    """Return the labels of a node's result; None for a number, which has none to match."""
    if isinstance(node, (promql.NumberLiteral, promql.StringLiteral)):
        return None
    if isinstance(node, promql.VectorSelector):
        return _selector(node, known)
    if isinstance(node, promql.MatrixSelector):
        return _selector(node.vector_selector, known)
    if isinstance(node, (promql.ParenExpr, promql.SubqueryExpr, promql.UnaryExpr)):
        return _labels(node.expr, known)
    if isinstance(node, promql.Call):
        return _call(node, known)
    if isinstance(node, promql.AggregateExpr):
        return _aggregate(node, known)
    return _binary(node, known)


def _selected(node: Any, known: Known) -> set[str]:
    """Return the names that a selector has, by its name or by a pattern."""
    if node.name:
        return {node.name} & known.keys()
    (pattern,) = [one.value for one in node.matchers.matchers if one.name == "__name__"]
    return {name for name in known if re.fullmatch(pattern, name)}


def _selector(node: Any, known: Known) -> Labels:
    named = _selected(node, known)
    if not named:
        raise BadQueryError(f"there is no series {node.name or node}")
    have = frozenset.union(*(known[name] for name in named))
    for matcher in node.matchers.matchers:
        if matcher.name == "__name__":
            continue
        if matcher.name not in have:
            raise BadQueryError(f"{node.name} has no label {matcher.name!r}, only {sorted(have)}")
    return have


def _call(node: Any, known: Known) -> Labels | None:
    name, arguments = node.func.name, node.args
    inner = [_labels(one, known) for one in arguments]
    have = next((one for one in inner if one is not None), None)
    if name in ("time", "scalar", "pi"):
        return None
    if name == "vector":
        return frozenset()
    if have is None:
        return frozenset()
    if name in ("label_replace", "label_join"):
        sources = arguments[3:4] if name == "label_replace" else arguments[3:]
        for source in sources:
            if source.val and source.val not in have:
                raise BadQueryError(f"{name} takes {source.val!r}, which is not in {sorted(have)}")
        return have | {arguments[1].val}
    if name in ("histogram_quantile", "histogram_fraction"):
        if "le" not in have:
            raise BadQueryError(f"{name} of a series without `le`")
        return have - {"le"}
    return have


def _aggregate(node: Any, known: Known) -> Labels:
    have = _labels(node.expr, known) or frozenset()
    asked = set(node.modifier.labels) if node.modifier else set()
    if asked - have:
        raise BadQueryError(f"{node.op} by {sorted(asked - have)}, which is not in {sorted(have)}")
    if str(node.op) in _KEEPING:
        return have
    if node.modifier and node.modifier.type == promql.AggModifierType.Without:
        return have - asked
    return frozenset(asked)


def _binary(node: Any, known: Known) -> Labels | None:
    left, right = _labels(node.lhs, known), _labels(node.rhs, known)
    if left is None or right is None:
        return left if right is None else right
    modifier = node.modifier
    matching = modifier.matching if modifier else None
    operator = str(node.op)
    if matching and matching.type == promql.LabelModifierType.Include:
        for label in matching.labels:
            if label not in left or label not in right:
                raise BadQueryError(f"`{node}`: on ({label}), which one side does not have")
        joined = frozenset(matching.labels)
    else:
        ignored = frozenset(matching.labels) if matching else frozenset()
        if left - ignored != right - ignored and operator not in _SET_OPERATORS:
            apart = sorted((left - ignored) ^ (right - ignored))
            raise BadQueryError(f"`{node}` never matches: only one side has {apart}")
        joined = left - ignored
    if operator in _SET_OPERATORS:
        return left | right if operator == "or" else left
    return _joined(node, left, right, joined)


def _joined(node: Any, left: Labels, right: Labels, joined: Labels) -> Labels:
    """Return the labels of arithmetic or a comparison of two vectors."""
    modifier = node.modifier
    many_left = modifier and modifier.card == promql.VectorMatchCardinality.ManyToOne
    many_right = modifier and modifier.card == promql.VectorMatchCardinality.OneToMany
    taken = frozenset(modifier.group_labels or ()) if modifier else frozenset()
    if many_left or many_right:
        many, one = (left, right) if many_left else (right, left)
        if taken - one:
            raise BadQueryError(f"`{node}` takes {sorted(taken - one)} from where it is not")
        return many | taken
    comparison = str(node.op) in ("==", "!=", ">", "<", ">=", "<=")
    return left if comparison and not modifier else joined
