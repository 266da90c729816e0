# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a client can have a router hold, beside the memory that the router has."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from ..documents import knowledge
from ..findings import Finding
from ..render.haproxy import buffer_bytes, per_source
from ..router.types import Router

_GIB = 1 << 30


def within(router: Router, total: int | None) -> Router:
    """Return the router with as many connections an address as half of its memory holds requests.

    A power of two, so that two kernels that leave a little less memory do not differ. What somebody
    has set stays, and all does where the memory is not known.
    """
    limits = router.settings.limits
    if total is None or limits.connections_per_source:
        return router
    fit = total // 2 // buffer_bytes(router)
    least: int = knowledge("router.yml")["memory"]["least"]
    several = min(max(least, 1 << fit.bit_length() >> 1), per_source(router.settings))
    limits = replace(limits, connections_per_source=several)
    return replace(router, settings=replace(router.settings, limits=limits))


def memory_findings(router: Router, total: int | None) -> Iterator[Finding]:
    """Warn of requests that are larger than memory, or than buffers that are cheap."""
    size, several = buffer_bytes(router), per_source(router.settings)
    if total is not None and several * size > total // 2:
        message = (
            f"one address may have {several} connections with {size / (1 << 20):.0f} MiB each, "
            f"{several * size / _GIB:.1f} of this router's {total / _GIB:.1f} GiB"
        )
        fit = max(1, total // 2 // size)
        yield Finding("ROUTER-MEMORY", "limits", message, fit=fit)
    mapped: int = knowledge("router.yml")["bodies"]["mapped"]
    if size > mapped:
        message = f"requests may have {(router.settings.limits.body_bytes or 0) >> 20} MiB"
        yield Finding("ROUTER-BODY-LARGE", "limits.body_bytes", message)
