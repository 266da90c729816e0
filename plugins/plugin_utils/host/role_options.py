# SPDX-License-Identifier: GPL-3.0-or-later

"""A role's options as Ansible would give them to it: its defaults below the host's variables.

For adapters, which bring Ansible's templating; nothing that decides imports this.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import importlib
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from ansible.module_utils.common.arg_spec import ArgumentSpecValidator
from ansible.parsing.dataloader import DataLoader

from ..findings import ApiaryError, Finding, error

ROLES = Path(__file__).parents[3] / "roles"
# What roles are told beside what the inventory sets.
_NOT_ASKED = ("_evidence", "_refuse", "_plan")


class Templar(Protocol):
    """What is used of Ansible's Templar."""

    def copy_with_new_env(self, *, available_variables: Any) -> Templar: ...

    def template(self, variable: Any) -> Any: ...


@dataclasses.dataclass(frozen=True)
class Role:
    """A role's defaults, and its argument specification by option."""

    name: str
    defaults: Mapping[str, Any]
    options: Mapping[str, Mapping[str, Any]]


@functools.cache
def read_role(name: str) -> Role:
    """Return one of this collection's roles; what Ansible's loader reads may be templates."""
    loader = DataLoader()
    defaults = loader.load_from_file(
        str(ROLES / name / "defaults/main.yml"), trusted_as_template=True
    )
    specs = loader.load_from_file(str(ROLES / name / "meta/argument_specs.yml"))
    return Role(name, defaults or {}, specs["argument_specs"]["main"]["options"])


def options_of(
    role: Role, variables: Mapping[str, Any], templar: Templar, host: str
) -> dict[str, Any]:
    """Return the role's options for a host, templated and of the right type.

    Those that bring evidence or plans are left out. Raises FLEET-VARIABLE, a finding for each wrong
    variable.
    """
    known = {**role.defaults, **variables}
    template = templar.copy_with_new_env(available_variables=known).template
    found: dict[str, Any] = {}
    wrong: list[Finding] = []
    for name in role.options:
        if name.endswith(_NOT_ASKED) or name not in known:
            continue
        try:
            found[name] = plain(template(known[name]))
        except Exception as failure:  # whatever a template of the operator raises
            wrong.append(_wrong(host, name, _first_line(failure)))
    for name, value in found.items():
        found[name], messages = checked(name, role.options[name], value)
        if messages:
            wrong.append(_wrong(host, name, "; ".join(messages)))
    if wrong:
        raise ApiaryError(*wrong)
    return found


def settings_of(concern: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the Settings of a concern from its role's options."""
    package = importlib.import_module(f"{__package__}.{concern}")
    names = [item.name for item in dataclasses.fields(package.Settings)]
    options_by_field = {
        # rocm_version is the name in both.
        name: next((one for one in (f"{concern}_{name}", name) if one in options), None)
        for name in names
    }
    return {name: options[one] for name, one in options_by_field.items() if one is not None}


def interpreter(variables: Mapping[str, Any], templar: Templar) -> str:
    """Return the path of the host's Python, as Ansible discovered it or was told it."""
    discovered = (variables.get("ansible_facts") or {}).get("discovered_interpreter_python")
    named = discovered or variables.get("ansible_python_interpreter") or "/usr/bin/python3"
    return str(templar.template(named))


def digest(asked: Any) -> str:
    """Return a sha256 of what is asked, whatever the order of its keys."""
    text = json.dumps(asked, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def without_secrets(role: Role, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return options without those that are not to be logged."""
    return {name: one for name, one in options.items() if not role.options[name].get("no_log")}


def plain(value: Any) -> Any:
    """Return plain data: Ansible's values are subclasses that template when they are read."""
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if value is None or isinstance(value, bool):
        return value
    kinds: tuple[type, ...] = (str, int, float)
    return next((kind(value) for kind in kinds if isinstance(value, kind)), value)


def _first_line(failure: Exception) -> str:
    return str(failure).strip().partition("\n")[0].rstrip(".")


def _wrong(host: str, name: str, problem: str) -> Finding:
    return error("FLEET-VARIABLE", f"{host}: {name}", problem, name=name).findings[0]


def checked(name: str, option: Mapping[str, Any], value: Any) -> tuple[Any, tuple[str, ...]]:
    """Return the value in the option's type, and why it is none of it, without any secret.

    ``option`` is its entry in meta/argument_specs.yml.
    """
    spec = {key: one for key, one in option.items() if key not in ("required", "default")}
    try:
        done = ArgumentSpecValidator({name: spec}).validate({name: value})
    except (AttributeError, TypeError, ValueError):
        # Ansible looks into a mapping before it is sure that there is one.
        kind = option.get("type", "str")
        return value, (f"{name} is not a {kind} of the form that the role wants",)
    messages = done.error_messages
    if messages and option.get("no_log"):
        return value, (f"{name} is not of the form that the role wants",)
    # What class of Ansible's own a value has says nothing to its author.
    shown = (re.sub(r": <class '[^']*'> cannot be converted.*", "", one) for one in messages)
    return done.validated_parameters.get(name, value), tuple(shown)
