# SPDX-License-Identifier: GPL-3.0-or-later

"""Read what the kernel log says of GPUs that amdgpu could not bring up."""

from __future__ import annotations

import errno
import re

from ...findings import Finding
from .. import problems
from .text import bus_address

# Linux drivers/base/dd.c, up to 6.10 and since.
_FAILED = re.compile(
    r"amdgpu: probe of ([0-9a-f:.]{7,16}) failed with error -(\d{1,4})\b"
    r"|amdgpu ([0-9a-f:.]{7,16}): probe with driver amdgpu failed with error -(\d{1,4})\b"
)


def failed_probes(text: str, subject: str) -> list[Finding]:
    """Return a finding for each error with which probes failed, and on which GPUs."""
    failed: dict[int, list[str]] = {}
    for old, number, new, other in _FAILED.findall(text):
        address, code = bus_address(old or new), int(number or other)
        if address and address not in failed.setdefault(code, []):
            failed[code].append(address)
    return [
        problems.finding(
            "TOPO-PROBE-FAILED",
            subject,
            f"amdgpu could not bring up {gpus[0]}"
            + (f" and {len(gpus) - 1} more GPUs" if len(gpus) > 1 else "")
            + f": its probe failed with error -{code} ({errno.errorcode.get(code, 'unknown')})",
            parts=tuple((address,) for address in gpus),
        )
        for code, gpus in failed.items()
        if gpus
    ]
