# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a router's host has beside HAProxy's own files: its unit's drop-in, what keeps states."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path

from ..documents import dumps, knowledge
from ..findings import error
from ..host.program import standalone
from ..host.sandbox import sandbox
from ..router.types import Router
from .files import UNITS, RenderedFile, secret_reference, templates
from .haproxy import CONFIGURATION, DIRECTORY

DOCUMENT = f"{DIRECTORY}/router.json"
PROGRAM = "/usr/libexec/apiary/haproxy.py"
DROP_IN = f"{UNITS}/haproxy.service.d/50-apiary.conf"
# Ends drains whose time is over, and has HAProxy take a certificate that was renewed.
TIMER = "apiary-router.timer"
UNIT_FILES = {
    DROP_IN: "haproxy_drop_in.conf.j2",
    f"{UNITS}/apiary-router.service": "router.service.j2",
    f"{UNITS}/{TIMER}": "router.timer.j2",
}
_WORD = re.compile(r"[!-~]+", re.ASCII)
# The module that drains and the service that keeps drains read states by the same code.
_PROGRAM = Path(__file__).parents[2] / "module_utils/router/haproxy.py"


def engines_map(keys: Mapping[str, str]) -> RenderedFile:
    """Return the file with a reference to the engines' key of each deployment; raise ROUTER-KEY.

    The keys are checked and are not in the file, so that no result of deciding has them.
    """
    for name, key in keys.items():
        if not _WORD.fullmatch(key) or not _WORD.fullmatch(name):
            raise error(
                "ROUTER-KEY",
                f"the engines' key of {name!r}",
                "is empty, or has spaces or letters that a header cannot have",
            )
    lines = "".join(f"{name} {secret_reference(name)}\n" for name in sorted(keys))
    return RenderedFile(f"{DIRECTORY}/engines.map", "0640", lines)


@cache
def program() -> str:
    """Return the text of the program that saves the servers' states."""
    return standalone(_PROGRAM)


def render_router_host(router: Router, python: str) -> tuple[RenderedFile, ...]:
    """Return the files; ``python`` is the host's interpreter, an absolute path."""
    facts = knowledge("router_unit.yml")
    limits = facts["open_files"]
    connections = router.settings.connections
    values = {
        "python": python,
        "program": PROGRAM,
        "configuration": CONFIGURATION,
        "stop_seconds": facts["stop"]["seconds"],
        "sandbox": sandbox("haproxy.service"),
        "open_files": max(limits["least"], limits["per_connection"] * connections),
        "certificate": router.settings.tls and router.settings.tls.certificate,
        "stamp": facts["certificate"]["stamp"],
        "keeper_sandbox": sandbox("apiary-router.service"),
    }
    return (
        RenderedFile(PROGRAM, "0644", program()),
        *(
            RenderedFile(path, "0644", templates().get_template(name).render(values))
            for path, name in UNIT_FILES.items()
        ),
        # It names the digests of API keys. Findings are of the day, and change nothing.
        RenderedFile(DOCUMENT, "0600", dumps(replace(router, findings=()))),
    )
