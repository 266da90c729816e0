# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A load to the command line of our own client, module_utils/load/client.py."""

from __future__ import annotations

import json
from typing import Any

from ..documents import knowledge, to_document
from .types import Load, Target

# Whoever runs it fills these in: where the programs lie, and the Python to run them with.
_COMMAND = ("env", "PYTHONPATH=@PROGRAMS@", "@PYTHON@", "-m", "load.client")


def argv(
    load: Load,
    target: Target,
    shard: int,
    shards: int,
    result_dir: str,
    filename: str,
    session_header: str | None = None,
) -> tuple[str, ...]:
    """Return the command of one shard of a load, without any secret.

    Shard i goes to url i % len(urls); the client itself takes its even share of requests,
    concurrency, rate and warm-ups.
    """
    facts = knowledge("bench/client.yml")
    request: dict[str, Any] = {
        "url": target.urls[shard % len(target.urls)],
        "model": target.model,
        "load": to_document(load),
        "shard": shard,
        "shards": shards,
        "timeout_seconds": facts["timeout_seconds"],
        "session_header": session_header or facts["session_header"],
    }
    return (*_COMMAND, json.dumps(request, sort_keys=True), f"{result_dir}/{filename}")
