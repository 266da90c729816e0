# SPDX-License-Identifier: GPL-3.0-or-later

"""Engine versions in their order, as PEP 440 has it for the forms that vLLM releases use.

The packaging library would do, but ansible-test's import check runs without it.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from dataclasses import dataclass
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


@functools.cache
def parse_version(text: str) -> Version | None:
    """Return the version, or None for what is none (such as "latest")."""
    match = _FORM.fullmatch(text.strip())
    if match is None:
        return None
    numbers = [int(number) for number in match["release"].split(".")]
    major, minor, micro = (*numbers, 0, 0)[:3]
    final = match["pre"] is None and match["dev"] is None
    return Version((major, minor, micro), final, int(match["post"] or 0))


def order(text: str) -> Version:
    """Return a version that must be one: it comes from our own knowledge."""
    parsed = parse_version(text)
    if parsed is None:
        raise ValueError(f"not a version: {text!r}")
    return parsed


@dataclass(frozen=True)
class Span:
    """A range of versions, both ends included; None is open."""

    first: str | None = None
    last: str | None = None

    def covers(self, version: str) -> bool:
        """Say whether a version is in the range."""
        return (self.first is None or order(version) >= order(self.first)) and (
            self.last is None or order(version) <= order(self.last)
        )

    def __str__(self) -> str:
        if self.first is None:
            return "all" if self.last is None else f"up to {self.last}"
        if self.last is None:
            return f"{self.first} and newer"
        return self.first if self.first == self.last else f"{self.first} to {self.last}"


def read_span(entry: Mapping[str, str] | None) -> Span:
    """Return the range that `{from: …, until: …}` means."""
    return Span((entry or {}).get("from"), (entry or {}).get("until"))
