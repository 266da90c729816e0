# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A plan as the files of a systemd host: units, the target, the launcher and the plan itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import jinja2
from ansible_collections.apiary.instinct.plugins.plugin_utils.documents import dumps, knowledge
from ansible_collections.apiary.instinct.plugins.plugin_utils.plan.types import Plan, Replica

LAUNCHER = "/usr/libexec/apiary/launch"
UNITS = "/etc/systemd/system"
_HERE = Path(__file__).parent
_LAUNCHER_SOURCE = _HERE / "host" / "launch.py"


@dataclass(frozen=True)
class RenderedFile:
    """A file to be on the host: absolute path, octal mode, text."""

    path: str
    mode: str
    content: str


def quote(word: str) -> str:
    """Return a word as systemd reads it back unchanged in Environment= (systemd.syntax(7))."""
    escaped = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    escaped = escaped.replace("\n", "\\n").replace("\t", "\\t")
    return f'"{escaped}"'


def quote_argument(word: str) -> str:
    """Return a word of ExecStart=: as ``quote``, and without $ expansion; plain words stay bare."""
    plain = word and all(letter.isalnum() or letter in "-_./:,=@+" for letter in word)
    return word if plain else quote(word).replace("$", "$$")


def render_device(key: str) -> str:
    """Return udev's stable name of a GPU's render node, so that no unit stores a minor number.

    Source: systemd's 60-drm.rules (``dri/by-path/$env{ID_PATH}-render``).
    """
    return f"/dev/dri/by-path/pci-{key}-render"


@cache
def _templates() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_HERE / "templates"),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,  # noqa: S701 - unit files, not HTML; quote() is the escaping they need
    )
    environment.filters |= {"quote": quote, "argument": quote_argument, "device": render_device}
    return environment


def render_systemd(plan: Plan) -> tuple[RenderedFile, ...]:
    """Return every file of the plan: launcher, units in replica order, target, the plan itself."""
    names = [replica.unit for replica in plan.replicas]
    units = [
        RenderedFile(f"{UNITS}/{replica.unit}", "0644", _unit(plan, replica, index))
        for index, replica in enumerate(plan.replicas)
    ]
    target = _templates().get_template("target.j2").render(plan=plan, units=names)
    return (
        RenderedFile(LAUNCHER, "0755", _launcher()),
        *units,
        RenderedFile(f"{UNITS}/{plan.target}", "0644", target),
        RenderedFile(_plan_path(plan), "0644", dumps(plan)),
    )


def _plan_path(plan: Plan) -> str:
    return f"/etc/apiary/{plan.deployment.name}/plan.json"


def _launcher() -> str:
    """Return the launcher as a program; a collection's sources carry no shebang."""
    return "#!/usr/bin/env python3\n" + _LAUNCHER_SOURCE.read_text(encoding="utf-8")


def _unit(plan: Plan, replica: Replica, index: int) -> str:
    serving: Mapping[str, Mapping[str, object]] = knowledge("serving.yml")
    address = plan.deployment.listen_address
    return (
        _templates()
        .get_template("replica.service.j2")
        .render(
            plan=plan,
            replica=replica,
            index=index,
            launcher=LAUNCHER,
            plan_path=_plan_path(plan),
            settings=serving["unit"],
            groups=serving["groups"]["entries"],
            caches=[
                entry["directory"]
                for entry in knowledge("serving.yml")["cache_directories"]["entries"].values()
            ],
            cache_root=replica.unit.removesuffix(".service"),
            # A wildcard address listens on loopback too.
            probe_host="127.0.0.1" if address in ("0.0.0.0", "::", "") else address,  # noqa: S104
        )
    )
