# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A clone of what this checkout has, and what `make release` builds of it, once for all tests."""

import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent
sys.path.insert(0, str(ROOT / "tools"))

import release  # noqa: E402 - tools/ is on the path only from here on

WHO = {
    f"GIT_{role}_{what}": value
    for role in ("AUTHOR", "COMMITTER")
    for what, value in (("NAME", "x"), ("EMAIL", "x@example.org"), ("DATE", "1700000000 +0000"))
}


def run(*command, cwd, umask=-1, **environment):
    """Run a command with nothing of this checkout in its environment; return its stdout."""
    clean = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("ANSIBLE_", "PYTHON", "MOLECULE", "GIT_"))
    }
    # The editable checkout is on sys.path and must not answer for what is installed.
    clean |= {"ANSIBLE_COLLECTIONS_SCAN_SYS_PATH": "false", "PATH": f"{BIN}:{clean['PATH']}"}
    clean |= environment
    done = subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env={name: value for name, value in clean.items() if value is not None},
        umask=umask,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def commit(directory):
    """Make a directory a git repository with one commit of fixed author and time."""
    run("git", "init", "--quiet", "--initial-branch=main", cwd=directory)
    run("git", "add", "--all", cwd=directory)
    run("git", "commit", "--quiet", "--message=all", cwd=directory, **WHO)


@pytest.fixture(scope="session")
def released(tmp_path_factory):
    """A repository with all that this checkout has, committed; and its release, in dist/."""
    base = tmp_path_factory.getbasetemp()
    # With xdist, every worker has a directory of its own below the run's.
    shared = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "released"
    with open(f"{shared}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (shared / "dist/SHA256SUMS").exists():
            release.export(ROOT, shared)
            commit(shared)
            run(sys.executable, "tools/release.py", "--draft", cwd=shared, umask=0o022)
    return shared


@pytest.fixture(scope="session")
def tarball(released):
    """The collection as released."""
    (built,) = released.glob("dist/apiary-instinct-*.tar.gz")
    return built


@pytest.fixture(scope="session")
def wheel(released):
    """The wheel as released."""
    (built,) = released.glob("dist/apiary-*.whl")
    return built
