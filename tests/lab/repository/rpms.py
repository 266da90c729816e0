# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Stub packages and signed repositories for dnf."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterable
from pathlib import Path

from labkit.console import run
from repository.debs import write_tree
from repository.signing import Signer
from repository.stub import Stub

# What rpm calls a script of a package; an upgrade removes the old version after the new one came.
SCRIPTLETS = (("%post", "configure", "postinst"), ("%preun", "remove", "prerm"))


def rpm_named(name: str, kernel: str) -> tuple[str, str]:
    """Return name and version-release of what is NAME-KERNEL to dnf, whatever the kernel."""
    start, version, release = f"{name}-{kernel.removesuffix('.x86_64')}".rsplit("-", 2)
    return start, f"{version}-{release}"


def _body(stub: Stub, name: str) -> str:
    return stub.scripts[name].partition("\n")[2]


def requirements(depends: str) -> list[str]:
    """Return dependencies in rpm's words."""
    return [
        re.sub(r"\s*\(=\s*([^)]*)\)", r" = \1", word.strip())
        for word in depends.split(",")
        if word.strip() and word.strip() != "kmod"
    ]


def spec(stub: Stub, tree: Path) -> str:
    """Return the spec file of a package whose files lie ready in a tree."""
    version, _dash, release = stub.version.partition("-")
    lines = [
        f"Name: {stub.name}",
        f"Version: {version}",
        f"Release: {release or '1'}",
        "Summary: stub for the lab, not AMD's",
        "License: GPL-3.0-or-later",
        "BuildArch: x86_64",
        *([f"Epoch: {stub.epoch}"] if stub.epoch else []),
        *(f"Requires: {word}" for word in requirements(stub.depends)),
        # A script wants its shell, which is no package of rpm's on the lab's hosts.
        *(["Provides: /bin/sh"] if stub.scripts else []),
        "%description\nA stub.",
        f"%install\nmkdir -p %{{buildroot}}\ncp -a {tree}/. %{{buildroot}}/",
        # As dpkg calls them, for both are the same scripts.
        *(
            f"{part}\nset -- {word}\n{_body(stub, name)}"
            for part, word, name in SCRIPTLETS
            if name in stub.scripts
        ),
        "%files",
        *stub.files,
        *stub.links,
    ]
    return "\n".join(lines) + "\n"


def publish(target: Path, stubs: Iterable[Stub], signer: Signer) -> None:
    """Write signed packages and signed metadata into a repository directory."""
    target.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        top = Path(scratch)
        for stub in stubs:
            tree = top / f"tree-{stub.name}-{stub.version}"
            tree.mkdir()
            write_tree(stub, tree)
            path = top / f"{stub.name}.spec"
            path.write_text(spec(stub, tree))
            # A stub is no program: nothing is stripped, and no shebang is a dependency.
            run(
                [
                    *("rpmbuild", "-bb", "--quiet", "--target", "x86_64"),
                    *("--define", f"_topdir {top}", "--define", f"_rpmdir {top}/rpms"),
                    *("--define", "__os_install_post %{nil}", "--define", "_build_id_links none"),
                    *("--define", "debug_package %{nil}", "--undefine", "__find_requires"),
                    *("--define", "__requires_exclude ^/.*$", path),
                ]
            )
        built = sorted((top / "rpms").rglob("*.rpm"))
        defines = [
            *("--define", f"_gpg_name {signer.name}"),
            *("--define", f"_gpg_path {signer.home}"),
            *("--define", "__gpg /usr/bin/gpg"),
        ]
        run(["rpmsign", *defines, "--addsign", *built])
        for package in built:
            package.rename(target / package.name)
    run(["createrepo_c", "--quiet", target])
    signer.detach(target / "repodata/repomd.xml", target / "repodata/repomd.xml.asc")
    signer.export(target / "repodata/repomd.xml.key")
