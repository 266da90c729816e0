# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""An `ssh` whose files are those of a home of the test: OpenSSH asks passwd for it, not HOME."""

import os
import shutil


def use_home(home, monkeypatch):
    """Have `ssh` read HOME/.ssh/config alone, and HOME/.ssh/known_hosts unless that says other."""
    folder = home / ".ssh"
    folder.mkdir(exist_ok=True)
    (folder / "whole").write_text(
        f"Include {folder}/config\nHost *\n UserKnownHostsFile {folder}/known_hosts\n"
    )
    programs = home / "programs"
    programs.mkdir()
    ssh = programs / "ssh"
    ssh.write_text(f'#!/bin/sh\nexec {shutil.which("ssh")} -F {folder}/whole "$@"\n')
    ssh.chmod(0o755)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
