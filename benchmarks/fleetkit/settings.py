# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The settings of ansible.cfg that are measured, each changed alone."""

from __future__ import annotations

import os
from dataclasses import dataclass

MITOGEN = os.environ.get("MITOGEN", "/opt/mitogen")
_MASTER = "-o ControlMaster=auto -o ControlPersist=60s"
_ALIVE = "-o ServerAliveInterval=15 -o ServerAliveCountMax=6"


@dataclass(frozen=True)
class Variant:
    """Changes of (section, key, value) to ansible.cfg, None for the default; PLACE is a directory.

    ``needs`` is a path without which the variant is left out.
    """

    name: str
    changes: tuple[tuple[str, str, str | None], ...] = ()
    environment: tuple[tuple[str, str], ...] = ()
    needs: str = ""


def ssh(name: str, arguments: str) -> Variant:
    return Variant(name, (("ssh_connection", "ssh_args", arguments),))


def default(name: str, key: str, value: str | None) -> Variant:
    return Variant(name, (("defaults", key, value),))


VARIANTS = (
    Variant("as shipped"),
    Variant("no pipelining", (("ssh_connection", "pipelining", "False"),)),
    ssh("no ControlPersist", f"-C -o ControlMaster=no {_ALIVE}"),
    ssh("without -C", f"{_MASTER} {_ALIVE}"),
    Variant("forks 5", environment=(("ANSIBLE_FORKS", "5"),)),
    Variant("forks 50", environment=(("ANSIBLE_FORKS", "50"),)),
    Variant("as shipped"),
    default("strategy free", "strategy", "free"),
    default("strategy host_pinned", "strategy", "host_pinned"),
    default("interpreter fixed", "interpreter_python", "/usr/bin/python3"),
    Variant(
        "fact cache",
        (
            ("defaults", "fact_caching", "jsonfile"),
            ("defaults", "fact_caching_connection", "PLACE/facts"),
        ),
    ),
    default("internal_poll_interval 0.001", "internal_poll_interval", "0.001"),
    default("skipped hosts shown", "display_skipped_hosts", "True"),
    default("JSON results", "callback_result_format", "json"),
    default("host keys unchecked", "host_key_checking", "False"),
    Variant(
        "Mitogen linear",
        (
            ("defaults", "strategy", "mitogen_linear"),
            ("defaults", "strategy_plugins", f"{MITOGEN}/ansible_mitogen/plugins/strategy"),
        ),
        (("PYTHONPATH", MITOGEN),),
        f"{MITOGEN}/ansible_mitogen",
    ),
    Variant("as shipped"),
)
