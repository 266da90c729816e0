# SPDX-License-Identifier: GPL-3.0-or-later

"""What the templates of variables depend on, so that hosts alike in that resolve them once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from jinja2 import Environment, TemplateError, meta, nodes

from ..documents import knowledge

_MARKS = ("{{", "{%", "{#")
_LOOKUPS = frozenset({"lookup", "q", "query"})
# Lookups that read variables which the template does not name; others ask the same of all hosts.
_READING = frozenset({"first_found", "template", "varnames", "vars"})


class Templates:
    """Looks at values once each, by identity: a group's hosts have the same objects."""

    def __init__(self) -> None:
        # Beside each answer its value: while that is kept, no other has its id.
        self._seen: dict[int, tuple[object, frozenset[str] | None]] = {}
        self._parser = Environment(autoescape=True)

    def names(self, value: object) -> frozenset[str] | None:
        """Return the variables that the templates in a value name; None for a value without any."""
        if id(value) not in self._seen:
            self._seen[id(value)] = (value, self._names(value))
        return self._seen[id(value)][1]

    def _names(self, value: object) -> frozenset[str] | None:
        found: set[str] = set()
        templates = list(_templates(value))
        for text in templates:
            try:
                parsed = self._parser.parse(text)
                named = meta.find_undeclared_variables(parsed)
                found |= named - _LOOKUPS if _asks_the_same(parsed) else named
            except TemplateError:
                found.add("vars")  # nobody knows what it needs
        return frozenset(found) if templates else None

    def key(self, name: str, variables: Mapping[str, object]) -> tuple[object, ...] | None:
        """Return what a variable's value follows from: the same for hosts that share it.

        None where it may differ by host whatever the variables are.
        """
        order = [name]
        for one in order:
            if one in knowledge("variables.yml")["by_host"]:
                return None
            needs = self.names(variables[one]) if one in variables else None
            order += sorted((needs or frozenset()) - set(order))
        return tuple((one, id(variables[one]) if one in variables else None) for one in order)


def _asks_the_same(template: nodes.Template) -> bool:
    """Say whether all lookups of a template depend on nothing but what it names itself.

    A password store is then asked once for a thousand hosts.
    """
    calls = [one for one in template.find_all(nodes.Call) if _is_lookup(one.node)]
    asked = [
        one.args[0].value for one in calls if one.args and isinstance(one.args[0], nodes.Const)
    ]
    mentioned = sum(_is_lookup(one) for one in template.find_all(nodes.Name))
    plain = {str(one).rpartition(".")[2] for one in asked}
    return len(asked) == mentioned and not plain & _READING


def _is_lookup(node: nodes.Node) -> bool:
    return isinstance(node, nodes.Name) and node.name in _LOOKUPS


def _templates(value: object) -> Iterator[str]:
    """Yield the texts of a value that are templates, and "" for what cannot be looked into."""
    if isinstance(value, Mapping):
        for key, one in value.items():
            yield from _templates(key)
            yield from _templates(one)
    elif isinstance(value, (list, tuple)):
        for one in value:
            yield from _templates(one)
    elif isinstance(value, str):
        if any(mark in value for mark in _MARKS):
            yield value
    elif not isinstance(value, (int, float, type(None))):
        yield ""  # such as a single value from a vault, which is decrypted when it is asked for
