# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whatever way apt is configured, the lab finds the machine's own mirror, or says why not."""

from __future__ import annotations

from pathlib import Path

import pytest

from labkit.apt_sources import (
    Mirror,
    Source,
    choose_mirror,
    parse_deb822,
    parse_list,
    parse_os_release,
    read_sources,
)
from labkit.console import ApiaryError

BOOKWORM = parse_os_release('ID=debian\nVERSION_CODENAME=bookworm\nPRETTY_NAME="Debian 12"\n')
NOBLE = parse_os_release("ID=ubuntu\nVERSION_CODENAME='noble'\n")

DEBIAN_SOURCES = """\
# written by the installer
Types: deb deb-src
URIs: http://mirror.example/debian
Suites: bookworm bookworm-updates
Components: main contrib
# a comment inside
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg

Types: deb
URIs: http://mirror.example/debian-security
Suites: bookworm-security
Components: main
"""

UBUNTU_SOURCES = """\
Types: deb
URIs: http://mirror.example/ubuntu/
Suites: noble noble-updates noble-backports
Components: main restricted universe
 multiverse
Signed-By: /usr/share/keyrings/ubuntu-archive-keyring.gpg
"""

# The third party comes first, with the release's suite and a component called main.
THIRD_PARTY = """\
Types: deb
URIs: https://thirdparty.example/apt
Suites: bookworm noble
Components: main
Signed-By:
 -----BEGIN PGP PUBLIC KEY BLOCK-----
 .
 -----END PGP PUBLIC KEY BLOCK-----
"""


@pytest.mark.parametrize(
    ("os_release", "text", "mirror"),
    [
        pytest.param(
            BOOKWORM,
            f"{THIRD_PARTY}\n{DEBIAN_SOURCES}",
            Mirror(
                "debian",
                "bookworm",
                "http://mirror.example/debian",
                ("main",),
                "/usr/share/keyrings/debian-archive-keyring.gpg",
            ),
            id="debian, after a third party's",
        ),
        pytest.param(
            NOBLE,
            f"{THIRD_PARTY}\n{UBUNTU_SOURCES}",
            Mirror(
                "ubuntu",
                "noble",
                "http://mirror.example/ubuntu/",
                ("main", "universe"),
                "/usr/share/keyrings/ubuntu-archive-keyring.gpg",
            ),
            id="ubuntu, after a third party's",
        ),
    ],
)
def test_the_mirror_is_the_distributions_own(
    os_release: dict[str, str], text: str, mirror: Mirror
) -> None:
    assert choose_mirror(os_release, parse_deb822(text)) == mirror


@pytest.mark.parametrize(
    ("line", "source"),
    [
        (
            "deb http://mirror.example/debian bookworm main contrib",
            Source("http://mirror.example/debian", "bookworm", ("main", "contrib")),
        ),
        (
            "deb [ arch=amd64 signed-by=/k.gpg ] http://mirror.example/debian bookworm main # own",
            Source("http://mirror.example/debian", "bookworm", ("main",), "/k.gpg"),
        ),
        ("# deb http://mirror.example/debian bookworm main", None),
        ("deb-src http://mirror.example/debian bookworm main", None),
        ("", None),
    ],
)
def test_one_line_sources(line: str, source: Source | None) -> None:
    assert list(parse_list(line)) == ([source] if source else [])


def test_a_disabled_source_is_not_one() -> None:
    assert not list(parse_deb822(DEBIAN_SOURCES.split("\n\n")[0] + "\nEnabled: no\n"))


def test_a_source_package_source_is_not_one() -> None:
    text = "Types: deb-src\nURIs: http://mirror.example/debian\nSuites: bookworm\nComponents: main"
    assert not list(parse_deb822(text))


def test_files_are_read_as_apt_does(tmp_path: Path) -> None:
    parts = tmp_path / "sources.list.d"
    parts.mkdir()
    (tmp_path / "sources.list").write_text("deb http://a.example bookworm main\n")
    (parts / "debian.sources").write_text(DEBIAN_SOURCES)
    (parts / "old.list.disabled").write_text("deb http://b.example bookworm main\n")
    assert [source.uri for source in read_sources(tmp_path)] == [
        "http://a.example",
        "http://mirror.example/debian",
        "http://mirror.example/debian",
        "http://mirror.example/debian-security",
    ]


def test_a_mirror_list_of_a_cloud_image_is_followed(tmp_path: Path) -> None:
    mirrors = tmp_path / "debian.list"
    mirrors.write_text("# nearest first\nhttp://near.example/debian\tpriority:1\n")
    source = Source(f"mirror+file:{mirrors}", "bookworm", ("main",))
    assert choose_mirror(BOOKWORM, [source]).uri == "http://near.example/debian"


@pytest.mark.parametrize(
    ("os_release", "sources", "code"),
    [
        pytest.param({"ID": "rhel", "VERSION_CODENAME": "x"}, [], "LAB-DISTRIBUTION", id="rhel"),
        pytest.param({"ID": "debian"}, [], "LAB-DISTRIBUTION", id="no codename"),
        pytest.param({}, [], "LAB-DISTRIBUTION", id="no os-release"),
        pytest.param(BOOKWORM, [], "LAB-MIRROR", id="no sources"),
        pytest.param(
            BOOKWORM,
            [Source("http://a.example", "trixie", ("main",))],
            "LAB-MIRROR",
            id="another release",
        ),
        pytest.param(
            BOOKWORM,
            [Source("cdrom:[Debian]/", "bookworm", ("main",))],
            "LAB-MIRROR",
            id="a disc",
        ),
    ],
)
def test_refusals(os_release: dict[str, str], sources: list[Source], code: str) -> None:
    with pytest.raises(ApiaryError) as refusal:
        choose_mirror(os_release, sources)
    assert refusal.value.findings[0].code == code
