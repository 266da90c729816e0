#!/usr/bin/env python3
# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Build the files of a release into dist/: collection, wheel, sdist, SBOM and checksums; sign them.

The same commit gives the same bytes in any directory, at any time, under any umask and locale,
given the pinned tools and one Python. Who builds says so in the provenance and signs both with a
key of their own, given by --key or APIARY_RELEASE_KEY. Tagging and uploading stay with the
maintainers.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import release_collection
import release_sbom
import release_signature
import yaml
from release_signature import PROVENANCE, SUMS

ROOT = Path(__file__).resolve().parents[1]
PYTHON_BIN = Path(sys.executable).parent


class RefusedError(Exception):
    """Why no release is built, and what to do about it."""

    def __init__(self, subject: str, message: str, remedy: str) -> None:
        super().__init__(f"error: RELEASE: {subject}: {message}\n  remedy: {remedy}")


def git(root: Path, *arguments: str) -> str:
    """Return what git says."""
    done = subprocess.run(["git", "-C", root, *arguments], capture_output=True, text=True)
    if done.returncode != 0:
        raise RefusedError(str(root), f"git: {done.stderr.strip()}", "release from a git clone")
    return done.stdout


def version(root: Path) -> str:
    """Return the version, which is written in galaxy.yml and nowhere else."""
    return str(yaml.safe_load((root / "galaxy.yml").read_text(encoding="utf-8"))["version"])


def sections(changelog: str) -> dict[str, str]:
    """Return the text below each release's heading ("Unreleased", "1.2.0"), newest first."""
    parts = re.split(r"^## (.+)\n", changelog, flags=re.MULTILINE)[1:]
    headings = (heading.split()[0] for heading in parts[::2])
    return dict(zip(headings, (text.strip() for text in parts[1::2]), strict=True))


def check(root: Path) -> None:
    """Refuse to release what is not committed, not announced, or tagged as something else."""
    changed = git(root, "status", "--porcelain", "--untracked-files=all").splitlines()
    if changed:
        names = ", ".join(line[3:] for line in changed[:5]) + (", …" if len(changed) > 5 else "")
        raise RefusedError(
            "the tree", f"is not what is committed: {names}", "commit or remove these files"
        )
    now = version(root)
    said = sections((root / "CHANGELOG.md").read_text(encoding="utf-8"))
    if not said.get(now):
        raise RefusedError(
            "CHANGELOG.md",
            f"says nothing of {now}, the version in galaxy.yml",
            f"put what is below Unreleased below '## {now} - YYYY-MM-DD', or correct the version",
        )
    if said.get("Unreleased"):
        raise RefusedError(
            "CHANGELOG.md",
            "still has changes below Unreleased",
            f"move them below '## {now}', or raise the version in galaxy.yml",
        )
    tag = f"v{now}"
    if git(root, "tag", "--list", tag).strip():
        there = git(root, "rev-list", "-1", tag).strip()
        if there != git(root, "rev-parse", "HEAD").strip():
            raise RefusedError(
                tag, f"is already the tag of {there[:12]}", f"check out {tag}, or raise the version"
            )


def export(root: Path, to: Path) -> None:
    """Copy what git tracks or would track, with the file modes that everybody gets."""
    listed = git(root, "ls-files", "-z", "--cached", "--others", "--exclude-standard")
    for name in sorted(filter(None, listed.split("\0"))):
        source, target = root / name, to / name
        if not source.is_symlink() and not source.exists():
            continue  # deleted and not yet committed: a draft goes without it
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(source, target, follow_symlinks=False)
        if not source.is_symlink():
            target.chmod(0o755 if source.stat().st_mode & 0o100 else 0o644)


def build(root: Path, out: Path) -> list[Path]:
    """Build every file of the release into a directory and return them."""
    epoch = int(git(root, "log", "-1", "--format=%ct"))
    commit = git(root, "rev-parse", "HEAD").strip()
    out.mkdir(parents=True, exist_ok=True)
    # What an earlier build said of files that are no more.
    for old in (*out.glob("*.sig"), out / PROVENANCE):
        old.unlink(missing_ok=True)
    now = version(root)
    with tempfile.TemporaryDirectory(prefix="apiary-release-") as scratch:
        tree, raw = Path(scratch, "tree"), Path(scratch, "raw")
        export(root, tree)
        run(tree, epoch, sys.executable, "-m", "build", "--no-isolation", "--outdir", raw)
        run(tree, epoch, *release_collection.command(PYTHON_BIN, raw))
        (tarball,) = raw.glob("apiary-instinct-*.tar.gz")
        files = release_collection.normalise(tarball, out / tarball.name, epoch)
        made = [out / tarball.name]
        for path in (*raw.glob("*.whl"), raw / f"apiary-{now}.tar.gz"):
            made.append(Path(shutil.copyfile(path, out / path.name)))
        pins = (tree / "requirements/runtime.txt").read_text(encoding="utf-8")
        project = (tree / "pyproject.toml").read_text(encoding="utf-8")
        sbom = out / f"apiary-{now}.cdx.json"
        sbom.write_text(
            release_sbom.sbom(
                release_sbom.Release(now, commit, epoch, project, pins, files, checksums(made))
            ),
            encoding="utf-8",
        )
    made.append(sbom)
    sums = out / SUMS
    lines = (f"{digest}  {name}\n" for name, digest in checksums(made).items())
    sums.write_text("".join(lines), encoding="utf-8")
    return sorted([*made, sums])


def run(tree: Path, epoch: int, *command: str | Path) -> None:
    """Run a build tool in the exported tree; nothing of this machine shows in what it makes."""
    keep = {key: value for key, value in os.environ.items() if not key.startswith("ANSIBLE_")}
    own = {"SOURCE_DATE_EPOCH": str(epoch), "TZ": "UTC", "LC_ALL": "C.UTF-8", "PYTHONHASHSEED": "0"}
    done = subprocess.run(
        [str(word) for word in command],
        cwd=tree,
        env=keep | own,
        umask=0o022,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    if done.returncode != 0:
        subject = " ".join(Path(word).name for word in map(str, command[:3]))
        raise RefusedError(subject, done.stdout.strip(), "make the tool work, then try again")


def checksums(paths: list[Path]) -> dict[str, str]:
    """Return the SHA-256 of each file by its name, sorted."""
    return {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(paths, key=lambda path: path.name)
    }


def seal(root: Path, made: list[Path], key: Path, builder: str, began: float) -> list[Path]:
    """Write the provenance of the files that were made, sign it and the sums; return the files."""
    out = made[0].parent
    strangers = {path.name for path in out.iterdir()} - {path.name for path in made}
    if strangers:
        raise RefusedError(
            str(out), f"has other files as well: {', '.join(sorted(strangers))}", "remove them"
        )
    commit = git(root, "rev-parse", "HEAD").strip()
    epoch = int(git(root, "log", "-1", "--format=%ct"))
    built = release_signature.Build(version(root), commit, epoch, builder, began, time.time())
    subjects = checksums([path for path in made if path.name != SUMS])
    provenance = out / PROVENANCE
    materials = release_signature.materials(root, commit)
    provenance.write_text(release_signature.statement(built, subjects, materials), encoding="utf-8")
    signatures = [release_signature.sign(path, key) for path in (out / SUMS, provenance)]
    return sorted([*made, provenance, *signatures])


def given_key(root: Path, key: str | None) -> Path:
    """Return the key to sign with."""
    if not key:
        raise RefusedError(
            "the key",
            "none is given, and a release is signed",
            "make release KEY=FILE, or APIARY_RELEASE_KEY; `make build` builds without one",
        )
    path = Path(key).expanduser()
    release_signature.usable(path, root)
    return path


def main(arguments: list[str] | None = None) -> int:
    """Check, build, sign and list the release; return the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, default=ROOT / "dist", help="directory (dist)")
    parser.add_argument("--draft", action="store_true", help="build the tree as it is, unchecked")
    parser.add_argument(
        "--key",
        default=os.environ.get("APIARY_RELEASE_KEY"),
        help="what signs: an SSH key's file, or the public one of a key in ssh-agent",
    )
    parser.add_argument(
        "--builder",
        default=os.environ.get("APIARY_RELEASE_BUILDER"),
        help="who builds, a URI (mailto: and git's user.email)",
    )
    options = parser.parse_args(arguments)
    began = time.time()
    try:
        if not options.draft:
            check(ROOT)
            key = given_key(ROOT, options.key)
            builder = options.builder or f"mailto:{git(ROOT, 'config', 'user.email').strip()}"
        made = build(ROOT, options.out)
        if not options.draft:
            made = seal(ROOT, made, key, builder, began)
    except RefusedError as refused:
        print(refused, file=sys.stderr)
        return 1
    except release_signature.SigningError as refused:
        print(RefusedError(refused.subject, str(refused), "give another key"), file=sys.stderr)
        return 1
    for path in made:
        print(f"{path.stat().st_size:>10}  {path}")
    if not options.draft:
        tag = f"v{version(ROOT)}"
        print(f"Next, by a maintainer: git tag --sign {tag}, push and upload.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
