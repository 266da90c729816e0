# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Find the machine's own package mirror, so that the lab host is made of the same distribution."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from .console import error

# rocm-smi is in Debian's main and in Ubuntu's universe.
COMPONENTS = {"debian": ("main",), "ubuntu": ("main", "universe")}


OFF = ("no", "false", "without", "off", "disable")  # apt's spellings


@dataclass(frozen=True)
class Source:
    """One enabled binary package source of apt: a URI with one suite."""

    uri: str
    suite: str
    components: tuple[str, ...]
    signed_by: str | None = None


@dataclass(frozen=True)
class Mirror:
    """What debootstrap needs to make a root filesystem of this machine's release."""

    distribution: str
    suite: str
    uri: str
    components: tuple[str, ...]
    keyring: str | None = None


def parse_os_release(text: str) -> dict[str, str]:
    """Return the fields of an os-release file, unquoted."""
    fields = (line.split("=", 1) for line in text.splitlines() if re.match(r"[A-Z_]+=", line))
    return {key: value.strip().strip("\"'") for key, value in fields}


def parse_list(text: str) -> Iterator[Source]:
    """Yield the sources of a one-line-style file (sources.list(5), ``*.list``)."""
    pattern = re.compile(r"deb\s+(?:\[(?P<options>[^]]*)\]\s+)?(?P<uri>\S+)\s+(?P<rest>.+)")
    for line in text.splitlines():
        match = pattern.match(line.split("#", 1)[0].strip())
        if match:
            options = dict(o.split("=", 1) for o in (match["options"] or "").split() if "=" in o)
            suite, *components = match["rest"].split()
            yield Source(match["uri"], suite, tuple(components), options.get("signed-by"))


def parse_deb822(text: str) -> Iterator[Source]:
    """Yield the sources of a deb822-style file (sources.list(5), ``*.sources``)."""
    lines = (line for line in text.splitlines() if not line.startswith("#"))
    for paragraph in re.split(r"\n\s*\n", "\n".join(lines)):
        fields: dict[str, str] = {}
        key = ""
        for line in paragraph.splitlines():
            if line[:1].isspace() and key:
                fields[key] += " " + line.strip()
            elif ":" in line:
                name, value = line.split(":", 1)
                key = name.lower()
                fields[key] = value.strip()
        if "deb" not in fields.get("types", "").split() or fields.get("enabled") in OFF:
            continue
        # A key may also stand in the field itself; only a path is of use to debootstrap.
        signed_by = fields.get("signed-by", "")
        keyring = signed_by if signed_by.startswith("/") else None
        for uri in fields.get("uris", "").split():
            for suite in fields.get("suites", "").split():
                yield Source(uri, suite, tuple(fields.get("components", "").split()), keyring)


def read_sources(apt: Path = Path("/etc/apt")) -> list[Source]:
    """Return every enabled source of this machine, in apt's own order."""
    found: list[Source] = []
    for path in [apt / "sources.list", *sorted((apt / "sources.list.d").glob("*"))]:
        if not path.is_file():
            continue
        if path.suffix == ".list":
            found.extend(parse_list(path.read_text(errors="replace")))
        elif path.suffix == ".sources":
            found.extend(parse_deb822(path.read_text(errors="replace")))
    return found


def choose_mirror(os_release: dict[str, str], sources: Iterable[Source]) -> Mirror:
    """Return the mirror of this machine's own release, or refuse where there is none."""
    distribution = os_release.get("ID", "")
    suite = os_release.get("VERSION_CODENAME", "")
    if distribution not in COMPONENTS or not suite:
        raise error(
            "LAB-DISTRIBUTION",
            os_release.get("PRETTY_NAME", "this machine"),
            "the lab host is made from the machine's own packages, of Debian or Ubuntu only",
        )
    listed = list(sources)
    # Third parties use the suite's name and "main" too, but only a distribution has updates.
    updated = {source.uri for source in listed if source.suite == f"{suite}-updates"}
    for source in sorted(listed, key=lambda source: source.uri not in updated):
        uri = _resolve(source.uri)
        if source.suite == suite and "main" in source.components and uri:
            return Mirror(distribution, suite, uri, COMPONENTS[distribution], source.signed_by)
    raise error(
        "LAB-MIRROR",
        "/etc/apt",
        f"no package source offers the component main of the suite {suite}",
    )


def _resolve(uri: str) -> str | None:
    """Return a URI that debootstrap understands: cloud images use apt's mirror lists."""
    if uri.startswith("mirror+file:"):
        path = Path(urlsplit(uri.removeprefix("mirror+")).path)
        lines = path.read_text().splitlines() if path.is_file() else []
        entries = [line.split()[0] for line in lines if line.strip() and line[0] != "#"]
        return next((entry for entry in entries if entry.startswith("http")), None)
    return uri if uri.startswith(("http://", "https://", "file:")) else None
