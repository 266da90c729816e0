# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which pages CI follows: a few at every run, and those that changed; `--all-pages` follows all.

A page changed if it differs from where this branch left main. On main itself, or where git does not
say, only what is not committed yet counts: the night follows every page.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Sequence

from docs.pages import DOCS

# The tutorial itself plans, verifies, rolls out and breaks a host. The others are the ways in
# beside it, which nothing else in CI walks: hosts that others have set up (ten seconds each), a
# controller with an older Ansible.
ALWAYS = (
    *("explain-a-plan", "look-at-a-host", "drain-a-host", "run-beside-an-older-ansible"),
    *("only-tuning", "only-replicas", "kubernetes-node", "slurm-node"),
)
# More would make CI too long: some forty seconds each.
MOST = 8
# What a page needs of another one.
AFTER = {"mount-weights": "publish-weights"}
MAIN = ("origin/main", "main")


def git(*words: str) -> list[str]:
    """Return the lines that a git command prints; none if it fails."""
    try:
        ran = subprocess.run(("git", *words), cwd=DOCS, capture_output=True, text=True, check=False)
    except OSError:
        return []
    return ran.stdout.splitlines() if ran.returncode == 0 else []


def changed(git: Callable[..., list[str]] = git) -> set[str]:
    """Return the names of the how-to pages that differ from where this branch left main."""
    bases = (base for ref in MAIN for base in git("merge-base", "HEAD", ref))
    base = next(bases, "HEAD")
    paths = git("diff", "--name-only", base, "--", ":/docs/how-to")
    return {path.rpartition("/")[2].removesuffix(".md") for path in paths}


def chosen(pages: Sequence[str], changed: set[str]) -> tuple[str, ...]:
    """Return which of these pages to follow, in their order."""
    wanted = [page for page in pages if page in changed][:MOST]
    wanted += [page for page in ALWAYS if page in pages]
    wanted += [AFTER[page] for page in wanted if AFTER.get(page) in pages]
    return tuple(page for page in pages if page in wanted)
