# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What rendering yields, and the spelling of words in unit and environment files."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import jinja2

from ..findings import error

UNITS = "/etc/systemd/system"
_TEMPLATES = Path(__file__).parent / "templates"
_BARE = re.compile(r"[A-Za-z0-9_./:,=@+-]+", re.ASCII)
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
# systemd drops a variable whose value has one of these (string_has_cc of env-util.c).
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")


@dataclass(frozen=True)
class RenderedFile:
    """A file to be on the host: absolute path, octal mode, text.

    ``unit`` is the replica that must start anew when the file changes; None where nobody must.
    """

    path: str
    mode: str
    content: str
    unit: str | None = None


def secret_reference(name: str) -> str:
    """Return what stands for a secret in a file until the host has its value."""
    return f"@secret:{name}@"


def quote(word: str) -> str:
    """Return a word as systemd reads it back unchanged from a unit file (systemd.syntax(7))."""
    escaped = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    escaped = escaped.replace("\n", "\\n").replace("\t", "\\t")
    return '"' + _CONTROL.sub(lambda match: f"\\x{ord(match[0]):02x}", escaped) + '"'


def quote_argument(word: str) -> str:
    """Return a word of ExecStart=: as ``quote``, and without $ expansion; plain words stay bare."""
    return word if _BARE.fullmatch(word) else quote(word).replace("$", "$$")


def environment_file(variables: Mapping[str, str]) -> str:
    """Return variables as an EnvironmentFile= that systemd reads back unchanged, sorted.

    Raises ApiaryError with REPLICA-VARIABLE for what systemd would drop without failing.
    Source: systemd src/basic/env-file.c (SHELL_NEED_ESCAPE within double quotes).
    """
    lines = []
    for name, value in sorted(variables.items()):
        if not _NAME.fullmatch(name) or _CONTROL.search(value):
            raise error(
                "REPLICA-VARIABLE",
                f"engine.env.{name!r}" if not _NAME.fullmatch(name) else f"engine.env.{name}",
                f"is {value!r}; systemd passes on names of letters, digits and _, "
                "and values without control characters",
                source="systemd src/basic/env-util.c",
            )
        bare = not value or _BARE.fullmatch(value)
        escaped = re.sub(r'(["\\`$])', r"\\\1", value)
        lines.append(f"{name}={value}\n" if bare else f'{name}="{escaped}"\n')
    return "".join(lines)


def render_device(key: str) -> str:
    """Return udev's stable name of a GPU's render node, so that no unit stores a minor number.

    Source: systemd's 60-drm.rules (``dri/by-path/$env{ID_PATH}-render``).
    """
    return f"/dev/dri/by-path/pci-{key}-render"


def _dumps(value: Any, **options: Any) -> str:
    """Return JSON that YAML reads alike: there a pair of surrogates is no letter."""
    text = json.dumps(value, ensure_ascii=False, **options)
    return re.sub(r"[^\x00-\x7e]", lambda match: f"\\U{ord(match[0]):08x}", text)


@cache
def templates() -> jinja2.Environment:
    """Return the environment of every template of a unit; a name it does not know is an error."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_TEMPLATES),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,  # noqa: S701 - unit files, not HTML; quote() is the escaping they need
    )
    environment.policies["json.dumps_function"] = _dumps
    environment.filters |= {"quote": quote, "argument": quote_argument, "device": render_device}
    return environment
