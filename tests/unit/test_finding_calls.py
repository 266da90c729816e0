# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Code gives facts and the catalogue explains them: no call can contradict it."""

from __future__ import annotations

import ast
import functools
import re
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[2]
FOLDERS = ("plugins", "src")
CATALOGUE = ROOT / "plugins/plugin_utils/knowledge/findings"
SEVERITIES = ("error", "warning", "info")
# A finding's own keywords, and the catalogue's keys that two of them choose.
CASES = {"accepted", "minor"}
OWN = {"source", "unknown", "parts", *CASES}
# How many facts a shape takes by position: code, subject and message, a check two more.
FACTS = {"Finding": 3, "error": 3, "replica_error": 2, "Check": 5}
# Only these know what a remedy is: the rest gives facts.
HOSTS = ("plugins/module_utils", "plugins/modules", "plugins/action", "plugins/plugin_utils/render")
EXPLAINING = "plugins/module_utils/finding.py"
BY_HAND = re.compile(r"(error|warning|info): (\{[^}]+\}|[A-Z][A-Z0-9]*-[A-Z0-9-]+):|remedy: ")
# Who words a remedy more closely than the catalogue can: rules, which are knowledge, too, and who
# shows it elsewhere than where it was written.
REWORDING = {
    "plugins/module_utils/finding.py",
    "plugins/plugin_utils/bench/validity/evaluate.py",
    "plugins/plugin_utils/engine/advisories.py",
    "plugins/plugin_utils/engine/review.py",
    "plugins/plugin_utils/engine/rules.py",
    "plugins/plugin_utils/files.py",
    "plugins/plugin_utils/fleet/groups.py",
    "plugins/plugin_utils/fleet/plan.py",
    "plugins/plugin_utils/plan/cases.py",
}
# They give the values themselves, and are no findings.
INDIRECT = {"explanation", "_Misfit", "_each", "_unknown", "died", "stood_still"}


@functools.cache
def catalogue():
    entries = {}
    for path in sorted(CATALOGUE.glob("*.yml")):
        entries |= yaml.safe_load(path.read_text(encoding="utf-8"))
    return entries


@functools.cache
def calls():
    """Return every call of the product: its file, the name of what is called, the call."""
    found = []
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*.py")):
            tree = ast.parse(path.read_text(encoding="utf-8"))
            name = path.relative_to(ROOT).as_posix()
            found += [(name, _name(one.func), one) for one in _calls(tree)]
    return tuple(found)


def _calls(tree):
    return (one for one in ast.walk(tree) if isinstance(one, ast.Call))


def _name(function):
    return getattr(function, "id", None) or getattr(function, "attr", "")


def _keywords(call):
    return {one.arg for one in call.keywords}


def _where(file, call):
    return f"{file}:{call.lineno}"


def placeholders(entry):
    return set(re.findall(r"\{([a-z_]+)\}", entry["remedy"])) - {"subject"}


def test_code_gives_no_severity_and_no_remedy():
    wrong = [
        _where(file, call)
        for file, name, call in calls()
        if FACTS.get(name)
        and (len(call.args) > FACTS[name] or _keywords(call) & {"severity", "remedy"})
        and not (name == "error" and isinstance(call.func, ast.Attribute))
    ]
    assert not wrong, "\n".join(wrong)


def _texts(tree):
    """Yield the text constants of a tree without its docstrings, and the names that hold one."""
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef)
    docstrings = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, documented) and node.body and isinstance(node.body[0], ast.Expr)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            yield node, ast.unparse(node)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            if id(node) not in docstrings:
                yield node, node.value
        elif isinstance(node, (ast.arg, ast.keyword)):
            yield node, node.arg or ""
        elif isinstance(node, ast.Name):
            yield node, node.id


def test_what_runs_on_hosts_has_no_remedies_and_writes_no_finding_by_hand():
    wrong = []
    for folder in HOSTS:
        for path in sorted((ROOT / folder).rglob("*.py")):
            name = path.relative_to(ROOT).as_posix()
            if name == EXPLAINING:
                continue
            for node, text in _texts(ast.parse(path.read_text(encoding="utf-8"))):
                documents = text == "remedy" and isinstance(node, ast.Constant)
                if BY_HAND.search(text) or (text == "remedy" and not documents):
                    wrong.append(f"{name}:{node.lineno}: {text[:80]}")
    assert not wrong, "\n".join(wrong)


def _tasks(node):
    if isinstance(node, list):
        for item in node:
            yield from _tasks(item)
    elif isinstance(node, dict):
        yield node
        for value in node.values():
            yield from _tasks(value)


def test_roles_and_playbooks_refuse_by_codes_of_the_catalogue():
    wrong = []
    for folder in ("roles", "playbooks"):
        for path in sorted((ROOT / folder).rglob("*.yml")):
            text = path.read_text(encoding="utf-8")
            name = path.relative_to(ROOT).as_posix()
            wrong += [f"{name}: {found[0]}" for found in BY_HAND.finditer(text)]
            for task in _tasks(yaml.safe_load(text)):
                refusal = task.get("apiary.instinct.refuse")
                # It has no values for places of a remedy.
                if refusal and placeholders(catalogue()[refusal["code"]]):
                    wrong.append(f"{name}: {refusal['code']}")
    assert not wrong, "\n".join(wrong)


def test_only_rules_and_pages_put_a_remedy_in_other_words():
    wrong = [
        _where(file, call)
        for file, name, call in calls()
        if name == "reworded" and "remedy" in _keywords(call) and file not in REWORDING
    ]
    assert not wrong, "\n".join(wrong)


def test_the_values_of_a_call_are_the_placeholders_of_the_remedy():
    wrong = []
    for file, name, call in calls():
        first = call.args[0] if call.args else None
        code = first.value if isinstance(first, ast.Constant) else None
        if code not in catalogue() or None in _keywords(call) or name in INDIRECT:
            continue
        entry = catalogue()[code]
        if _keywords(call) - OWN != placeholders(entry):
            given = sorted(_keywords(call) - OWN)
            wrong.append(f"{_where(file, call)}: {code} gives {given}: {entry['remedy']}")
        wrong += [
            f"{_where(file, call)}: {code} has no {case}"
            for case in _keywords(call) & CASES
            if case not in entry
        ]
    assert not wrong, "\n".join(wrong)


def test_an_entry_has_severities_and_a_whole_sentence():
    for code, entry in catalogue().items():
        assert entry["severity"] in SEVERITIES, code
        assert all(entry[case] in SEVERITIES for case in CASES if case in entry), code
        assert entry["remedy"].endswith((".", "?", "!")), code


def test_the_findings_of_every_module_are_explained():
    """By the action of its name, or by converge's, where meta/runtime.yml sends its tasks."""
    routes = yaml.safe_load((ROOT / "meta/runtime.yml").read_text(encoding="utf-8"))
    sent = routes["plugin_routing"]["modules"]
    assert {route["action_plugin"] for route in sent.values()} == {"apiary.instinct.converge"}
    failing = {
        path.stem
        for path in (ROOT / "plugins/modules").glob("*.py")
        if re.search(r"import .*\bfail\b", path.read_text(encoding="utf-8"))
    }
    completing = {
        path.stem
        for path in (ROOT / "plugins/action").glob("*.py")
        if re.search(r"import .*\b(completed|Completing)\b", path.read_text(encoding="utf-8"))
    }
    assert failing - sent.keys() - completing == set()
    # What they return is bounded, and what they collect is said, there.
    assert sent.keys() - {"evidence_info", "bundle_info"} <= failing
