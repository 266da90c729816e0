# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a router's host has beside HAProxy's own files: its unit's drop-in, what keeps states."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from ansible_collections.apiary.instinct.plugins.plugin_utils.documents import dumps, knowledge
from ansible_collections.apiary.instinct.plugins.plugin_utils.render.files import (
    RenderedFile,
    templates,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.render.haproxy import (
    CONFIGURATION,
    DIRECTORY,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.router.types import Router

DOCUMENT = f"{DIRECTORY}/router.json"
PROGRAM = "/usr/libexec/apiary/haproxy.py"
DROP_IN = "/etc/systemd/system/haproxy.service.d/50-apiary.conf"
# The module that drains and the service that keeps drains read states by the same code.
_PROGRAM = Path(__file__).parents[2] / "module_utils/haproxy.py"


@cache
def program() -> str:
    """Return the text of the program that saves the servers' states."""
    return _PROGRAM.read_text(encoding="utf-8")


def render_router_host(router: Router, python: str) -> tuple[RenderedFile, ...]:
    """Return the files; ``python`` is the host's interpreter, an absolute path."""
    limits = knowledge("router_unit.yml")["open_files"]
    connections = router.settings.connections
    drop_in = templates().get_template("haproxy_drop_in.conf.j2")
    return (
        RenderedFile(PROGRAM, "0644", program()),
        RenderedFile(
            DROP_IN,
            "0644",
            drop_in.render(
                python=python,
                program=PROGRAM,
                configuration=CONFIGURATION,
                open_files=max(limits["least"], limits["per_connection"] * connections),
            ),
        ),
        # It names the digests of API keys.
        RenderedFile(DOCUMENT, "0600", dumps(router)),
    )
