# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What an engine reads from files of its user alone: several keys while one turns, TLS."""

from __future__ import annotations

import contextlib
import json
import os

from .context import Context


def key_arguments(context: Context, keys: list[str]) -> list[str]:
    """Return the engine's arguments for several keys; for one there is a variable.

    They are in a file of the engine's user alone, vLLM's own configuration, because everybody on
    the host may read arguments. JSON is YAML.
    """
    directory = context.environment.get("RUNTIME_DIRECTORY", "").split(":")[0]
    path = os.path.join(directory, "keys.yaml")
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
    if len(keys) < 2:
        return []
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "w", encoding="ascii") as stream:
        json.dump({"api-key": keys}, stream)
    return ["--config", path]


def certificate_file(context: Context) -> str | None:
    """Return where a replica that speaks TLS has its certificate, its key and the authority."""
    name = f"{context.spec.deployment}.pem"
    directory = context.environment.get("CREDENTIALS_DIRECTORY", "")
    return os.path.join(directory, name) if name in context.spec.secrets else None


def tls_arguments(context: Context, path: str | None) -> list[str]:
    """Return the engine's arguments for TLS; one that serves no HTTP has none."""
    if path is None or context.spec.headless:
        return []
    return ["--ssl-certfile", path, "--ssl-keyfile", path]
