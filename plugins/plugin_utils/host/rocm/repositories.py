# SPDX-License-Identifier: GPL-3.0-or-later

"""AMD's repositories as files of the package manager: addresses, keys, pins, what contradicts."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from ...evidence.types import Evidence
from ...findings import Finding
from ..types import HostFile
from .target import Facts, Target, streams
from .types import Key, Package, Settings, is_current_stream, parse

PREFERENCES = "/etc/apt/preferences.d/apiary-rocm"
LIBRARIES = "/etc/ld.so.conf.d/apiary-rocm.conf"
# Names of our own: rpm takes files of AMD's names along when it removes amdgpu-install.
_REPO = "apiary-{}.repo"
_OPTIONAL = ("amdgraphics", "amdextras")
_MANAGED = "# Written by Apiary (role rocm); changes are undone at the next run.\n"


@dataclass(frozen=True)
class Repository:
    """One repository: its id, its address, and what an apt source names beside it."""

    id: str
    title: str
    url: str
    suite: str
    component: str
    key: Key


def repositories(target: Target) -> tuple[Repository, ...]:
    """Return the repositories that are wanted, the driver's first."""
    wanted = []
    settings, system, known = target.settings, target.system, streams()
    suite = system.edition.get("suite", "")
    if target.driver:
        facts = known["driver"]
        url = _address(target, facts, settings.driver_repository_url, target.driver.directory)
        key = _key(target, "amdgpu", facts["key"], facts["key"]["url"])
        wanted.append(
            Repository("amdgpu", f"AMD GPU driver {target.driver}", url, suite, "main", key)
        )
    facts = target.stream_facts
    url = _address(target, facts, settings.repository_url, target.rocm.directory)
    key_url = facts.get("keys", {}).get(target.rocm.series, facts["key"]["url"])
    key = _key(target, "amdrocm", facts["key"], key_url)
    shared = {(one.key.url, one.key.fingerprint): one.key for one in wanted}
    key = shared.get((key.url, key.fingerprint), key)
    suite = facts.get("suite", suite)
    wanted.append(
        Repository("rocm", f"AMD ROCm {target.rocm}", url, suite, facts["components"], key)
    )
    mirrors = {
        "graphics": settings.graphics_repository_url,
        "extras": settings.extras_repository_url,
    }
    for name, mirror in mirrors.items():
        more = facts.get(name)
        if more and _needed(target, more):
            directory = more.get("directories", {}).get(str(target.rocm), target.rocm.directory)
            url = _address(target, more, mirror, directory)
            title = f"AMD {name} {target.rocm}"
            wanted.append(Repository(f"amd{name}", title, url, suite, "main", key))
    return tuple(wanted)


def _needed(target: Target, more: Facts) -> bool:
    first = tuple(int(part) for part in more["first"].split("."))
    loads = target.settings.burn_in and "burn_in" in more
    return (
        target.system.family in more["paths"]
        and (loads or target.settings.profile in more["profiles"])
        and (target.rocm.major, target.rocm.minor) >= first
    )


def _address(target: Target, facts: Facts, mirror: str | None, directory: str) -> str:
    """Return the repository's address: AMD's, or a mirror's with AMD's own paths below it."""
    base = mirror or facts.get("urls", {}).get(target.rocm.series) or facts["url"]
    paths = facts.get("paths_of", {}).get(target.rocm.series) or facts["paths"]
    path: str = paths[target.system.family]
    return path.format(
        url=base.rstrip("/"),
        directory=directory,
        release=target.system.release,
        major=target.system.major,
        system=target.system.edition["directory"],
    )


def _key(target: Target, name: str, facts: Facts, url: str) -> Key:
    settings = target.settings
    address, fingerprint = settings.key_url, settings.key_fingerprint
    if name == "amdgpu":
        address, fingerprint = driver_key_url(settings), settings.driver_key_fingerprint
    binary = target.system.package_manager == "apt"
    return Key(
        url=address or url,
        path=_key_file(target, name),
        fingerprint=(fingerprint or facts["fingerprint"]).replace(" ", "").upper(),
        format="binary" if binary else "armored",
    )


def driver_key_url(settings: Settings) -> str | None:
    """Return where a mirror has the driver's key: with the userland's, where AMD has one for both.

    None is AMD's own address.
    """
    rocm = parse(settings.rocm_version)
    one_key = rocm is not None and not is_current_stream(rocm)
    mirrored = settings.driver_repository_url is not None and one_key
    return settings.driver_key_url or (settings.key_url if mirrored else None)


def mirror_findings(settings: Settings, host: str) -> Iterator[Finding]:
    """Report mirrors whose key is still fetched from AMD: without internet it can't be."""
    mirrors = [("rocm_repository_url", settings.repository_url, "rocm_key_url", settings.key_url)]
    if settings.driver:
        address = driver_key_url(settings)
        mirror = settings.driver_repository_url
        mirrors.append(("rocm_driver_repository_url", mirror, "rocm_driver_key_url", address))
    for variable, mirror, key, address in mirrors:
        if mirror is not None and address is None:
            message = f"found a mirror in {variable} and no {key}, expected the mirror's own copy"
            yield Finding("ROCM-KEY-ELSEWHERE", host, message, name=key)


def key_findings(target: Target) -> tuple[Finding, ...]:
    """Refuse fingerprints that can't be one."""
    return tuple(
        Finding(
            "ROCM-KEY-REQUIRED",
            one.id,
            f"found fingerprint {one.key.fingerprint!r}, expected 40 hexadecimal digits",
            url=one.key.url,
        )
        for one in repositories(target)
        if not re.fullmatch(r"[0-9A-F]{40}", one.key.fingerprint)
    )


def wanted_files(target: Target, packages: tuple[Package, ...]) -> tuple[HostFile, ...]:
    """Return the repository files, the pins and the linker's paths."""
    render = _deb822 if target.system.package_manager == "apt" else _repo
    files = [HostFile(_file(target, one.id), render(one)) for one in repositories(target)]
    if target.system.package_manager == "apt":
        files.append(HostFile(PREFERENCES, _preferences(target, packages)))
    directories = target.stream_facts.get("libraries", {}).get(target.settings.profile)
    text = _MANAGED + "".join(f"{path}\n" for path in directories) if directories else None
    files.append(HostFile(LIBRARIES, text))
    return tuple(files)


def own_paths(target: Target) -> tuple[str, ...]:
    """Return every file that this role may have written, keys among them."""
    return (
        *(_file(target, name) for name in ("amdgpu", "rocm", *_OPTIONAL)),
        *([PREFERENCES] if target.system.package_manager == "apt" else []),
        LIBRARIES,
        *(_key_file(target, name) for name in ("amdgpu", "amdrocm")),
    )


def _file(target: Target, name: str) -> str:
    form = "{}.sources" if target.system.package_manager == "apt" else _REPO
    return f"{target.system.family_facts['repositories']}/{form.format(name)}"


def _key_file(target: Target, name: str) -> str:
    form = "{}.gpg" if target.system.package_manager == "apt" else "RPM-GPG-KEY-{}"
    return f"{target.system.family_facts['keys']}/{form.format(name)}"


def stale_files(target: Target, evidence: Evidence) -> tuple[str, ...]:
    """Return files that name the same repositories, or pin them: amdgpu-install's and older ones.

    Of a file that names other repositories, too, nothing is taken away.
    """
    known = streams()["stale"]
    address = re.compile(known["addresses"])
    own = {file.path for file in wanted_files(target, ())}
    # What an earlier profile, or rocm_burn_in, had this role write.
    names = {*known["names"], *(_file(target, name) for name in _OPTIONAL)}
    stale = []
    for path, text in sorted(evidence.files.items()):
        if path in own or path.startswith("/opt/"):
            continue
        if path in names or _names_only(path, text, address):
            stale.append(path)
    return tuple(stale)


def _names_only(path: str, text: str, address: re.Pattern[str]) -> bool:
    """Say whether all repositories of a file are AMD's; commented lines count for nothing."""
    if not path.endswith((".list", ".sources", ".repo")) or path == "/etc/apt/sources.list":
        return False
    named = [
        word
        for line in text.splitlines()
        if re.match(r"\s*(?:deb|deb-src|URIs|baseurl)\b", line)
        for word in line.split()
        if "://" in word
    ]
    return bool(named) and all(address.search(word) for word in named)


def _deb822(one: Repository) -> str:
    return _MANAGED + "".join(
        f"{field}: {value}\n"
        for field, value in (
            ("X-Repolib-Name", one.title),
            ("Types", "deb"),
            ("URIs", one.url),
            ("Suites", one.suite),
            ("Components", one.component),
            ("Architectures", "amd64"),
            ("Signed-By", one.key.path),
        )
    )


def _repo(one: Repository) -> str:
    return _MANAGED + (
        f"[{one.id}]\n"
        f"name={one.title}\n"
        f"baseurl={one.url}\n"
        "enabled=1\n"
        "priority=50\n"
        "gpgcheck=1\n"
        f"gpgkey=file://{one.key.path}\n"
    )


def _preferences(target: Target, packages: tuple[Package, ...]) -> str:
    """Prefer AMD's packages to the distribution's of the same name, and pin the versions.

    1001 is what apt goes back to an older version for.
    """
    origins = [target.stream_facts["origin"]]
    if target.driver:
        origins.append(streams()["driver"]["origin"])
    parts = [
        f"Package: *\nPin: release o={origin}\nPin-Priority: 600\n"
        for origin in dict.fromkeys(origins)
    ]
    # Of what else is installed the text must not depend: it would change with the first run.
    names = (*streams()["driver"]["packages"], *target.packages())
    pinned: dict[str, list[str]] = {}
    for package in packages:
        if package.version and package.name in names:
            pinned.setdefault(package.version, []).append(package.name)
    if target.stream == "therock":
        pins = target.stream_facts["extras"]["pins"] if target.settings.burn_in else []
        pinned[target.userland_glob()] = [f"amdrocm*{target.rocm.series}*", *pins]
    parts += [
        f"Package: {' '.join(names)}\nPin: version {_pin(version)}\nPin-Priority: 1001\n"
        for version, names in pinned.items()
    ]
    return _MANAGED + "\n" + "\n".join(parts)


def _pin(version: str) -> str:
    """Return a glob in apt's words: a beginning with a star behind it, or a regular expression.

    apt takes a glob that begins with a star, and matches nothing by it.
    """
    if not version.startswith("*"):
        return version
    return "/" + version.strip("*").replace(".", r"\.") + "/"
