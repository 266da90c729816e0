# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a vLLM version makes of its environment variables before it starts."""

from __future__ import annotations

import typing

from engine_double.logs import StartupError, warning


def check(environment: typing.Mapping[str, str], data: dict[str, typing.Any], strict: bool) -> None:
    """Warn of (or with ``strict`` refuse) unknown VLLM_* names, and refuse values out of choice."""
    known = data["env"]
    if data["checks"]["unknown_environment"]:
        for name in sorted(environment):
            if name.startswith("VLLM_") and name not in known:
                message = f"Unknown vLLM environment variable detected: {name}"
                if strict:
                    raise StartupError("ValueError", message)
                warning("interface.py:0", message)
    for name, variable in known.items():
        if name in environment and variable["choices"]:
            _check_choice(name, environment[name], variable)


def _check_choice(name: str, value: str, variable: dict[str, typing.Any]) -> None:
    choices = variable["choices"]
    fold = str.lower if variable["ignore_case"] else str
    values = [item.strip() for item in value.split(",")] if variable["many"] else [value]
    for item in values:
        if item and fold(item) not in [fold(choice) for choice in choices]:
            raise StartupError(
                "ValueError", f"Invalid value '{item}' for {name}. Valid options: {choices}."
            )
