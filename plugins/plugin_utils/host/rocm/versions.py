# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""AMD's versions: in addresses, in package versions, in the kernel."""

from __future__ import annotations

import re
from dataclasses import dataclass
from fnmatch import fnmatchcase

_FORM = re.compile(r"(\d{1,3})\.(\d{1,2})(?:\.(\d{1,2}))?")


@dataclass(frozen=True, order=True)
class Version:
    """A version of ROCm or of its driver: 7.2 is 7.2.0."""

    major: int
    minor: int
    patch: int

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}.{self.patch}"

    @property
    def series(self) -> str:
        """7.2 of 7.2.4: what the packages of the current stream have in their names."""
        return f"{self.major}.{self.minor}"

    @property
    def directory(self) -> str:
        """The version as AMD's directories spell it: a last .0 is dropped."""
        return str(self) if self.patch else self.series

    @property
    def token(self) -> str:
        """The version as it is part of a package's: 70204 of ROCm, 30300400 of a driver."""
        token = f"{self.major}{self.minor:02}{self.patch:02}"
        # Since the driver has versions of its own, which begin at 30, it has two digits more.
        return token + "00" if self.major >= 30 else token


def parse(text: str) -> Version | None:
    """Return the version, or None for what is none."""
    found = _FORM.fullmatch(text.strip())
    return Version(*(int(part or 0) for part in found.groups())) if found else None


def is_current_stream(version: Version) -> bool:
    """Say whether ROCm of this version is of the stream that 7.9 began ("TheRock")."""
    return version >= Version(7, 9, 0)


def matches(version: str, pattern: str | None) -> bool:
    """Say whether an installed version is one of those that will do; an epoch need not be told."""
    return pattern is None or any(
        fnmatchcase(form, pattern) for form in (version, version.partition(":")[2])
    )


def module_of(package: str) -> tuple[str, str] | None:
    """Return the driver's version and release, of its package's version.

    ``1:6.16.13.30300400-2341068.24.04`` is 6.16.13, 2341068.24.04, as DKMS names it, too:
    amdgpu/6.16.13-2341068.24.04.
    """
    found = re.fullmatch(r"(?:\d+:)?(\d+(?:\.\d+)+?)\.\d{5,8}-(.+)", package)
    return (found[1], found[2]) if found else None


def kernel_order(release: str) -> tuple[int, ...]:
    """Return what orders kernel releases by age."""
    return tuple(int(number) for number in re.findall(r"\d+", release))
