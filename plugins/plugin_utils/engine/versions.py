# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Engine versions in their order, as PEP 440 has it for the forms that vLLM releases use.

The packaging library would do, but ansible-test's import check runs without it.
"""

from __future__ import annotations

import re
from typing import NamedTuple

_FORM = re.compile(
    r"v?(?P<release>\d+(?:\.\d+){0,2})"
    r"(?P<pre>(?:a|b|rc)\d+)?(?:\.post(?P<post>\d+))?(?P<dev>\.dev\d+)?(?:\+[\w.]+)?"
)


class Version(NamedTuple):
    """A version's place in the order; local builds share their release's place.

    ``final`` is False for pre-releases and development builds, which come before their release.
    """

    release: tuple[int, int, int]
    final: bool
    post: int


def parse_version(text: str) -> Version | None:
    """Return the version, or None for what is none (such as "latest")."""
    found = _FORM.fullmatch(text.strip())
    if found is None:
        return None
    numbers = [int(number) for number in found["release"].split(".")]
    major, minor, micro = (*numbers, 0, 0)[:3]
    final = found["pre"] is None and found["dev"] is None
    return Version((major, minor, micro), final, int(found["post"] or 0))


def order(text: str) -> Version:
    """Return a version that must be one: it comes from our own knowledge."""
    parsed = parse_version(text)
    if parsed is None:
        raise ValueError(f"not a version: {text!r}")
    return parsed
