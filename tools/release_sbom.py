# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The release's bill of materials (CycloneDX 1.6): what is in it, and what it runs on.

Components: the collection with every file, and each run-time package as requirements/runtime.txt
pins it, with the hashes of its distributions. What serves on hosts (ROCm, vLLM, HAProxy) is the
operator's choice of version and not part of a release.
"""

from __future__ import annotations

import re
import tomllib
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import metadata

from cyclonedx.factory.license import LicenseFactory
from cyclonedx.model import (
    ExternalReference,
    ExternalReferenceType,
    HashAlgorithm,
    HashType,
    Property,
    XsUri,
)
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.model.license import License
from cyclonedx.output.json import JsonV1Dot6
from packageurl import PackageURL
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

OWN_LICENSE = "GPL-3.0-or-later"
PIN = re.compile(
    r"^(?P<name>[A-Za-z0-9._-]+)==(?P<version>[^\s;\\]+)(?: ; (?P<marker>[^\\]+?))? ?\\$"
)
CLASSIFIER = "License :: OSI Approved :: "


@dataclass(frozen=True)
class Release:
    """What the bill is of: ``pins`` and ``project`` are the texts of requirements/runtime.txt and
    pyproject.toml, ``files`` the collection's files, ``artefacts`` what is released, by SHA-256."""

    version: str
    commit: str
    epoch: int
    project: str
    pins: str
    files: Mapping[str, str]
    artefacts: Mapping[str, str]


@dataclass(frozen=True)
class Pin:
    """One pinned package; ``hashes`` are of every file that may be installed for it."""

    name: str
    version: str
    marker: str | None
    hashes: tuple[str, ...]


def pins(text: str) -> Iterator[Pin]:
    """Yield the packages of a requirements file with hashes."""
    blocks = re.split(r"^(?=[A-Za-z0-9])", text, flags=re.MULTILINE)
    for block in blocks:
        head = PIN.match(block.splitlines()[0]) if block.strip() else None
        if head:
            hashes = tuple(sorted(re.findall(r"--hash=sha256:([0-9a-f]{64})", block)))
            yield Pin(canonicalize_name(head["name"]), head["version"], head["marker"], hashes)


def sbom(release: Release) -> str:
    """Return the bill as JSON; the same release gives the same text."""
    pinned = {pin.name: pin for pin in pins(release.pins)}
    packages = {name: _package(pin) for name, pin in pinned.items()}
    licence = [LicenseFactory().make_from_string(OWN_LICENSE)]
    apiary = Component(
        name="apiary",
        version=release.version,
        type=ComponentType.APPLICATION,
        bom_ref="apiary",
        licenses=licence,
        purl=PackageURL("pypi", None, "apiary", release.version),
        properties=[Property(name="apiary:commit", value=release.commit)],
        components=[_file(name, digest) for name, digest in release.artefacts.items()],
    )
    collection = Component(
        name="instinct",
        group="apiary",
        version=release.version,
        type=ComponentType.LIBRARY,
        bom_ref="apiary.instinct",
        licenses=licence,
        components=[_file(name, digest) for name, digest in release.files.items()],
    )
    bill = Bom(
        components=[collection, *packages.values()],
        serial_number=uuid.uuid5(uuid.NAMESPACE_URL, f"apiary:{release.version}:{release.commit}"),
    )
    bill.metadata.timestamp = datetime.fromtimestamp(release.epoch, UTC)
    bill.metadata.component = apiary
    wanted = _names(tomllib.loads(release.project)["project"]["dependencies"], packages)
    bill.register_dependency(apiary, [collection, *(packages[name] for name in wanted)])
    for name, component in packages.items():
        needs = _names(metadata.requires(name) or [], packages) if _installed(pinned[name]) else []
        bill.register_dependency(component, [packages[need] for need in needs])
    return JsonV1Dot6(bill).output_as_string(indent=1) + "\n"


def _package(pin: Pin) -> Component:
    """Return the component of a pinned package."""
    purl = PackageURL("pypi", None, pin.name, pin.version)
    distributions = ExternalReference(
        type=ExternalReferenceType.DISTRIBUTION,
        # Whatever index it comes from, it is one of these files.
        url=XsUri(purl.to_string()),
        hashes=[HashType(alg=HashAlgorithm.SHA_256, content=one) for one in pin.hashes],
    )
    marker = [Property(name="apiary:marker", value=pin.marker)] if pin.marker else []
    return Component(
        name=pin.name,
        version=pin.version,
        bom_ref=purl.to_string(),
        purl=purl,
        licenses=[_licence(pin)] if _installed(pin) else [],
        external_references=[distributions],
        properties=marker,
    )


def _file(name: str, digest: str) -> Component:
    """Return the component of one file."""
    return Component(
        name=name,
        type=ComponentType.FILE,
        bom_ref=f"file:{name}",
        hashes=[HashType(alg=HashAlgorithm.SHA_256, content=digest)],
    )


def _installed(pin: Pin) -> bool:
    """Say whether this environment has the package as pinned; a marker may keep it out."""
    try:
        found = metadata.version(pin.name)
    except metadata.PackageNotFoundError:
        if pin.marker:
            return False
        raise
    if found != pin.version:
        raise ValueError(
            f"{pin.name} is {found} here and {pin.version} in requirements/runtime.txt"
        )
    return True


def _licence(pin: Pin) -> License:
    """Return what the installed package says of its licence: an SPDX expression or a name."""
    about = metadata.metadata(pin.name)
    said = about.get("License-Expression") or about.get("License") or ""
    if said in ("", "UNKNOWN") or "\n" in said:
        classifiers = about.get_all("Classifier") or []
        named = [one.removeprefix(CLASSIFIER) for one in classifiers if one.startswith(CLASSIFIER)]
        said = " OR ".join(named) or "not declared"
    return LicenseFactory().make_from_string(said)


def _names(requirements: list[str], packages: Mapping[str, Component]) -> list[str]:
    """Return which of the packages some requirements name, extras left out."""
    asked = (Requirement(line) for line in requirements)
    names = {canonicalize_name(one.name) for one in asked if "extra" not in str(one.marker or "")}
    return sorted(names & packages.keys())
