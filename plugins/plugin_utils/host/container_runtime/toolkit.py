# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""AMD's container toolkit: its repository, its key, its package."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ...documents import knowledge
from ...evidence.types import Evidence
from ..rocm.types import Key, Package
from ..types import HostFile
from .engine import FACTS, System
from .types import Settings

APT_SOURCE = "/etc/apt/sources.list.d/amd-container-toolkit.sources"
DNF_SOURCE = "/etc/yum.repos.d/amd-container-toolkit.repo"
APT_KEY = "/etc/apt/keyrings/amd-container-toolkit.gpg"
DNF_KEY = "/etc/pki/rpm-gpg/RPM-GPG-KEY-amd-container-toolkit"


@dataclass(frozen=True)
class Toolkit:
    """What has to be there for amd-ctk, or to go."""

    keys: tuple[Key, ...] = ()
    repository: tuple[HostFile, ...] = ()
    offers: tuple[Package, ...] = ()
    packages: tuple[str, ...] = ()
    remove: tuple[str, ...] = ()


def plan(settings: Settings, evidence: Evidence, host: System, wanted: bool) -> Toolkit:
    """Return the toolkit's part of the plan; where it is not wanted, what we made of it goes."""
    facts: Mapping[str, Any] = knowledge(FACTS)["toolkit"]
    source = APT_SOURCE if host.manager == "apt" else DNF_SOURCE
    said = evidence.commands.get("amd_ctk")
    installed = said is not None and said.error is None
    if not wanted:
        # Only where the source is ours is the package.
        ours = source in evidence.files
        gone = (HostFile(source, None), HostFile(_key_path(host), None)) if ours else ()
        return Toolkit(repository=gone, remove=(facts["package"],) if ours and installed else ())
    address = (settings.toolkit_url or facts["url"]).rstrip("/")
    key = Key(
        settings.toolkit_key_url or facts["key"]["url"],
        _key_path(host),
        settings.toolkit_key_fingerprint or facts["key"]["fingerprint"],
        "binary" if host.manager == "apt" else "armored",
    )
    text = _apt(address, host, key) if host.manager == "apt" else _dnf(address, key)
    name = facts["package"]
    return Toolkit(
        keys=(key,),
        repository=(HostFile(source, text),),
        offers=(Package(name, None, name),),
        packages=() if installed else (name,),
    )


def _key_path(host: System) -> str:
    return APT_KEY if host.manager == "apt" else DNF_KEY


def _apt(address: str, host: System, key: Key) -> str:
    return (
        "# Written by the role container_runtime.\n"
        "Types: deb\n"
        f"URIs: {address}/apt/\n"
        f"Suites: {host.codename}\n"
        "Components: main\n"
        "Architectures: amd64\n"
        f"Signed-By: {key.path}\n"
    )


def _dnf(address: str, key: Key) -> str:
    return (
        "# Written by the role container_runtime.\n"
        "[amd-container-toolkit]\n"
        "name=AMD container toolkit\n"
        f"baseurl={address}/el9/main/\n"
        "enabled=1\n"
        "priority=50\n"
        "gpgcheck=1\n"
        f"gpgkey=file://{key.path}\n"
    )
