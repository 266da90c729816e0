# SPDX-License-Identifier: GPL-3.0-or-later

"""What a host fetches from elsewhere, read from the resources that it is brought to.

There is no other list: what a role fetches is a resource, and so is here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from ...module_utils.evidence.host import without_credentials
from ..model.weights import checkpoint_bytes
from ..plan.types import Plan

Resource = Mapping[str, Any]
SYSTEM = "the system's own repositories"
_FIELD = re.compile(r"^(URIs|Suites|baseurl)\s*[:=]\s*(\S.*)$", re.MULTILINE)
_LINE = re.compile(r"^deb\s+(?:\[[^\]\n]*\]\s+)?(\S+)\s+(\S+)", re.MULTILINE)
_PIN = re.compile(r"^\s*([A-Za-z0-9][\w.-]*(?:\[[\w,-]+\])?)\s*==\s*([^\s;\\#]+)([^\n]*)")
_HASH = re.compile(r"--hash=(sha256:[0-9a-f]{64})")
_UNIT = re.compile(r"^(What|Type|Options)=(.*)$", re.MULTILINE)


@dataclass(frozen=True, order=True)
class Fetch:
    """One thing: its kind, its name and version, where it comes from, its digest.

    ``bytes`` is its size where that is known.
    """

    kind: str
    name: str
    version: str = ""
    address: str = ""
    digest: str = ""
    bytes: int | None = None


def fetches(resources: Iterable[Resource], plans: Sequence[Plan] = ()) -> tuple[Fetch, ...]:
    """Return all that resources and the models of plans fetch, sorted, each once."""
    listed = list(resources)
    result = {item for each in listed for item in _KINDS.get(each["kind"], _none)(each)}
    result |= {
        Fetch("export", target, address=target.partition(" ")[0]) for target in exports(listed)
    }
    for plan in plans:
        model, size = plan.deployment.model, checkpoint_bytes(plan.model)
        result.add(Fetch("weights", model.name, PurePosixPath(model.path).name, bytes=size))
    masked = (
        Fetch(
            item.kind,
            without_credentials(item.name),
            item.version,
            without_credentials(item.address),
            item.digest,
            item.bytes,
        )
        for item in result
    )
    return tuple(
        sorted(masked, key=lambda item: (item.kind, item.name, item.version, item.address))
    )


def sources(resource: Resource) -> Iterator[tuple[str, str]]:
    """Yield each repository of a resource, and the file of it that answers where it is one."""
    for file in resource["files"]:
        text = file.get("content") or ""
        fields = dict(_FIELD.findall(text))
        found = _LINE.findall(text)
        if "URIs" in fields:
            suites = fields.get("Suites", "").split()
            found += [(url, suite) for url in fields["URIs"].split() for suite in suites]
        for url, suite in found:
            flat = suite.endswith("/")
            yield url, f"{url.rstrip('/')}/{suite if flat else f'dists/{suite}/'}Release"
        for name, url in _FIELD.findall(text):
            if name == "baseurl":
                yield url, f"{url.rstrip('/')}/repodata/repomd.xml"


def exports(resources: Iterable[Resource]) -> list[str]:
    """Return "server:/export options" of each NFS mount, as its unit has them."""
    listed = list(resources)
    wanted = {each["unit"] for each in listed if each["kind"] == "mount"}
    wanted -= {
        each["unit"] for each in listed if each["kind"] == "mount" and each["action"] == "unmount"
    }
    result = []
    for each in listed:
        if each["kind"] == "file" and PurePosixPath(each["path"]).name in wanted:
            unit = dict(_UNIT.findall(each.get("content") or ""))
            if unit.get("Type", "").startswith("nfs"):
                result.append(
                    f"{unit.get('What', '')} {unit.get('Options', '')}".replace("%%", "%")
                )
    return result


def requirements(text: str) -> Iterator[tuple[str, str, str]]:
    """Yield name, version and first hash of each pin."""
    for line in text.replace("\\\n", " ").splitlines():
        if pin := _PIN.match(line):
            digest = _HASH.search(pin[3])
            yield pin[1], pin[2], digest[1] if digest else ""


def _none(_resource: Resource) -> Iterator[Fetch]:
    yield from ()


def _repository(resource: Resource) -> Iterator[Fetch]:
    addresses = [url for url, _index in sources(resource)]
    for url in addresses:
        yield Fetch("repository", url, address=url)
    for key in resource["keys"]:
        yield Fetch("key", key["url"], address=key["url"], digest=key["fingerprint"])
    where = " or ".join(dict.fromkeys(addresses))
    for package in resource.get("packages") or ():
        version = package.get("version") or ""
        yield Fetch("package", package["name"], version, where if version else SYSTEM)


def _packages(resource: Resource) -> Iterator[Fetch]:
    yield from (Fetch("package", name, address=SYSTEM) for name in resource["names"])


def _transaction(resource: Resource) -> Iterator[Fetch]:
    pinned = resource.get("packages") or ()
    known = {item[key] for item in pinned for key in ("name", "spec")}
    stages = [
        *(resource.get("install") or ()),
        *(each["packages"] for each in resource.get("optional") or ()),
    ]
    for name in (name for stage in stages for name in stage):
        if name not in known:
            yield Fetch("package", name, address=SYSTEM)


def _image(resource: Resource) -> Iterator[Fetch]:
    if resource.get("state") != "absent":
        name, _at, digest = resource["reference"].partition("@")
        yield Fetch("image", name, resource.get("version") or "", name.partition("/")[0], digest)


def _wheels(resource: Resource) -> Iterator[Fetch]:
    if resource.get("state") != "absent":
        where = " or ".join(filter(None, (resource.get("wheels"), resource.get("index_url"))))
        for name, version, digest in requirements(resource.get("requirements") or ""):
            yield Fetch("wheel", name, version, where or "pip's own index", digest)


_KINDS: Mapping[str, Callable[[Resource], Iterator[Fetch]]] = {
    "repository": _repository,
    "packages": _packages,
    "transaction": _transaction,
    "image": _image,
    "wheels": _wheels,
}
