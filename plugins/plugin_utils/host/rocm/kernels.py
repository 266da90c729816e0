# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Packages that bring the next kernel: held where requested, and not without its headers."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ...findings import Finding
from .host import HostState
from .target import Target, streams
from .types import Offer


def meta_packages(target: Target, state: HostState) -> tuple[str, ...]:
    """Return the installed packages that bring the next kernel, or its headers."""
    facts = target.system.facts
    if "meta" in facts:
        flavours = "|".join(facts["flavours"])
        pattern = re.compile(facts["meta"].format(flavour=f"(?:{flavours})"))
    else:
        pattern = re.compile(facts["kernel_packages"])
    return tuple(sorted(name for name in state.packages if pattern.fullmatch(name)))


def holds(target: Target, state: HostState) -> tuple[str, ...]:
    """Return what must not be upgraded by the way: the driver, and kernels where requested."""
    names = list(streams()["driver"]["packages"]) if target.driver else []
    if target.settings.hold_kernel:
        names += meta_packages(target, state)
    return tuple(names)


def findings(target: Target, state: HostState, host: str) -> Iterator[Finding]:
    """Report that there is nothing to hold, and headers that no repository has any more."""
    if target.settings.hold_kernel and not meta_packages(target, state):
        yield Finding(
            "ROCM-KERNEL-HOLD",
            host,
            "found no installed package that brings the next kernel, expected one to hold",
        )
    if target.driver and headers_gone(target, state) and not target.settings.update_kernel:
        yield Finding(
            "ROCM-HEADERS-GONE",
            host,
            f"no repository has linux-headers-{state.running} any more, which the driver is built"
            f" with; {', '.join(_next(target, state))} can be had",
        )


def without_headers(target: Target, state: HostState) -> Iterator[Offer]:
    """Yield the headers of kernels that come by an upgrade: without them the driver is lost."""
    facts = target.system.facts
    if "meta_image" not in facts or state.running is None:
        return
    installed = meta_packages(target, state)
    for name in installed:
        suffix = name.removeprefix(facts["meta_image"])
        whole = facts.get("meta_whole", facts["meta_headers"]) + suffix
        headers = facts["meta_headers"] + suffix
        # linux-generic depends on both.
        if name != suffix and not {whole, headers} & set(installed):
            yield Offer(state.running, (headers,))


def headers_gone(target: Target, state: HostState) -> bool:
    """Return whether repositories have a later kernel of this flavour, and not this one's headers.

    Package lists that have neither tell nothing: they are not fetched yet.
    """
    running = state.running
    missing = running is not None and running not in state.with_headers
    facts = target.system.facts
    if not missing or "meta_headers" not in facts or f"linux-headers-{running}" in state.packages:
        return False
    offered = set(state.offered_headers)
    return f"linux-headers-{running}" not in offered and bool(_next(target, state))


def update(target: Target, state: HostState) -> tuple[str, ...]:
    """Return the packages of the newest kernel of this flavour, where the running one is given up.

    None where it is installed already, and boots next.
    """
    if not (target.settings.update_kernel and headers_gone(target, state)):
        return ()
    return () if state.kernels[0] != state.running else _next(target, state)


def _next(target: Target, state: HostState) -> tuple[str, ...]:
    """Return image and headers of the flavour, as repositories have them."""
    facts = target.system.facts
    headers, image = facts["meta_headers"], facts["meta_image"]
    whole = facts.get("meta_whole", image)
    names = meta_packages(target, state)
    installed = [name.removeprefix(image).removeprefix(whole) for name in names]
    flavours = [name for name in facts["flavours"] if (state.running or "").endswith(f"-{name}")]
    # cloud-amd64 ends with amd64, too; generic-hwe-24.04 is installed rather than generic.
    named = sorted(flavours, key=len)[-1:]
    suffixes = [name for name in installed if named and name.startswith(named[0])] + named
    for suffix in suffixes:
        if headers + suffix in state.offered_headers:
            return (image + suffix, headers + suffix)
    return ()
