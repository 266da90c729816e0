# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""That a finding has the severity that its catalogue entry says, read from the code itself."""

import ast

import pytest
from ansible_collections.apiary.instinct.plugins.plugin_utils.documents import KNOWLEDGE, knowledge
from ansible_collections.apiary.instinct.plugins.plugin_utils.engine.problems import checks
from ansible_collections.apiary.instinct.plugins.plugin_utils.engine.rules import rules

AREAS = ("model", "fit", "engine")
CATALOGUE = {
    code: entry for area in AREAS for code, entry in knowledge(f"findings/{area}.yml").items()
}
TREES = [
    ast.parse(path.read_text(encoding="utf-8"))
    for package in ("model", "engine")
    for path in sorted((KNOWLEDGE.parent / package).glob("*.py"))
]
# What makes a finding: its name, the place of the code, and the severity or the place of it.
MAKERS = {"Finding": (0, 1), "error": (0, "error")}


def calls(tree):
    """Every call by a plain name or as a method, with its name."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, (ast.Name, ast.Attribute)):
            name = node.func.id if isinstance(node.func, ast.Name) else node.func.attr
            yield name, node


def severity_of(call, rule):
    """The severity that a call gives, None where it is not written there."""
    severity = call.args[rule] if isinstance(rule, int) else rule
    return severity.value if isinstance(severity, ast.Constant) else severity


def with_wrappers(makers):
    """Add the functions that pass a parameter on as the code, until there are no more."""
    found = dict(makers)
    for tree in TREES:
        for function in ast.walk(tree):
            if not isinstance(function, ast.FunctionDef):
                continue
            names = [argument.arg for argument in function.args.args if argument.arg != "self"]
            for name, call in calls(function):
                place, rule = makers.get(name, (None, None))
                if place is None or len(call.args) <= place:
                    continue
                code, severity = call.args[place], severity_of(call, rule)
                if isinstance(code, ast.Name) and code.id in names and isinstance(severity, str):
                    found[function.name] = (names.index(code.id), severity)
    return found if found == makers else with_wrappers(found)


def made():
    """Every (code, severity) that is constructed in the packages, by their rules too."""
    makers = with_wrappers(MAKERS)
    result = set()
    for tree in TREES:
        for name, call in calls(tree):
            place, rule = makers.get(name, (None, None))
            if place is None or len(call.args) <= place:
                continue
            code = call.args[place]
            if isinstance(code, ast.Constant) and isinstance(code.value, str):
                result.add((code.value, severity_of(call, rule)))
    result |= {(rule.effect["code"], rule.severity) for rule in rules() if rule.severity}
    result |= {(check.code, "error") for check in checks()}
    return result


def written():
    """Every code that is written as a literal in the packages."""
    return {
        node.value
        for tree in TREES
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and node.value in CATALOGUE
    }


@pytest.mark.parametrize(("code", "severity"), sorted(made()))
def test_a_finding_has_the_severity_of_its_catalogue_entry(code, severity):
    assert CATALOGUE[code]["severity"] == severity


def test_every_entry_and_every_code_that_is_written_was_compared():
    compared = {code for code, _ in made()}
    assert written() <= compared
    assert compared == set(CATALOGUE)
