# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What is known of a host's models; beside weights_check.py, which is a program on the host."""

from __future__ import annotations

from typing import Any

from . import check as weights_check
from .manifest import LEVELS

ARGUMENTS: dict[str, Any] = {
    "directories": {"type": "list", "elements": "path", "default": []},
    "level": {"type": "str", "choices": list(LEVELS), "default": "sizes"},
    "parallel": {"type": "int", "default": 4},
    "manifest_required": {"type": "bool", "default": False},
}


def look(asked: dict[str, Any]) -> dict[str, Any]:
    """Return the result of the module weights_info."""
    directories = asked["directories"]
    if not directories:
        directories = weights_check.configured_models(weights_check.configuration())
    models = [
        weights_check.check(path, asked["level"], asked["parallel"], asked["manifest_required"])
        for path in directories
    ]
    findings = [one["finding"] for one in models if one["finding"]]
    return {"changed": False, "models": models, "findings": findings}
