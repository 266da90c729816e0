# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The winner as a file of variables, and how it differs from the deployment as it is."""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from ..deployment import Deployment
from . import candidates
from .types import Tune

_TEMPLATE = ("{{", "{%", "{#")


class _Dumper(yaml.SafeDumper):
    """Writes what Ansible would take for a template so that it does not."""


def _text(dumper: _Dumper, value: str) -> yaml.Node:
    templated = any(mark in value for mark in _TEMPLATE)
    return dumper.represent_scalar("!unsafe" if templated else "tag:yaml.org,2002:str", value)


_Dumper.add_representer(str, _text)


def tuned_variables(before: Deployment, after: Deployment, evidence: str) -> tuple[str, str]:
    """Return `tuned.yml`, which has the whole deployment ``after``, and the unified diff to it.

    Defaults are left out, as an operator would leave them out; ``evidence`` names what shows it.
    """
    old, new = written(before), written(after)
    lines = difflib.unified_diff(
        old.splitlines(keepends=True), new.splitlines(keepends=True), "as deployed", "tuned.yml"
    )
    return f"---\n# Measured by playbooks/tune.yml: {evidence}\n{new}", "".join(lines)


def winner_of(state: Tune) -> str | None:
    """Return the candidate that is to replace the current configuration, if one is."""
    chosen, current = state.choice.candidate if state.choice else None, state.current
    return None if current is not None and chosen == current.id else chosen


def variables_of(state: Tune, evidence: Path) -> tuple[str, str]:
    """Return the text of `tuned.yml` and the difference; both empty where nothing is to change."""
    winner = winner_of(state)
    if winner is None:
        return "", ""
    after = candidates.deployment_of(state, winner)
    return tuned_variables(state.requested.deployment, after, shown(evidence))


def shown(path: Path) -> str:
    """Return a path as people write it who stand where the run was started."""
    here = Path.cwd()
    return str(path.relative_to(here) if path.is_relative_to(here) else path)


def written(deployment: Deployment) -> str:
    """Return a deployment as the variable that hosts have."""
    data = {"apiary_deployment": _plain(deployment)}
    return yaml.dump(data, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=120)


def _plain(value: Any) -> Any:
    """Return plain data without what holds by default."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        items = {item.name: (item, getattr(value, item.name)) for item in dataclasses.fields(value)}
        return {name: _plain(own) for name, (item, own) in items.items() if own != _default(item)}
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, (list, tuple)) else value


def _default(item: dataclasses.Field[Any]) -> Any:
    if item.default_factory is not dataclasses.MISSING:
        return item.default_factory()
    return item.default
