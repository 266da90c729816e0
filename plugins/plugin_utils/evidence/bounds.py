# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""How much evidence a host may send: a controller reads that of many."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from ..documents import to_document
from ..findings import ApiaryError, error

# 64 partitions with all their links are below 2 MiB in some 6,000 files.
MOST_BYTES = 8 * 2**20


def bounded(evidence: Any, host: str) -> str:
    """Return evidence as JSON in one line; raise PROBE-SIZE where no host has so much.

    What is no mapping is none: DOC-TYPE.
    """
    if not isinstance(evidence, Mapping):
        allowed = "what evidence_info returns"
        message = f"is {type(evidence).__name__}, expected {allowed}"
        raise error("DOC-TYPE", f"{host}: evidence", message, field="evidence", allowed=allowed)
    text = json.dumps(to_document(evidence), sort_keys=True)
    check_size(len(text), host)
    return text


def check_size(size: int, host: str) -> None:
    """Raise PROBE-SIZE for evidence of more bytes than any host's."""
    if size > MOST_BYTES:
        raise too_large(host, f"{size} bytes, expected at most {MOST_BYTES}")


def too_large(host: str, what: str) -> ApiaryError:
    return error("PROBE-SIZE", host, f"its evidence has {what}", host=host)
