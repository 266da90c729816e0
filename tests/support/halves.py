# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""On a simulated host: run apt-get and kill it in the middle of its work, and dpkg with it.

Where that is depends on no clock: dpkg calls a hook when it has done what it was first told (it has
unpacked, and configured nothing), and a package's script calls dkms.
"""

from __future__ import annotations

import os
import subprocess
from functools import partial

HERE = os.path.dirname(os.path.abspath(__file__))
DIE, INSTEAD = os.path.join(HERE, "die"), os.path.join(HERE, "instead")
# apt first, for it would go on without dpkg.
TEXT = """#!/bin/sh
pid=$$
below=
while [ "$pid" -gt 1 ]; do
  read -r name < "/proc/$pid/comm"
  if [ "$name" = apt-get ]; then kill -9 "$pid" $below; fi
  below="$pid $below"
  pid=$(sed -n 's/^PPid:[[:space:]]*//p' "/proc/$pid/status")
done
echo "nobody to kill" >&2
exit 1
"""
WAYS = {
    "unpacked": f"DPkg::Options::=--post-invoke={DIE}",
    "in a script": f"DPkg::Path={INSTEAD}:/usr/sbin:/usr/bin:/sbin:/bin",
}


def halves(argv):
    """Return the ways in which a command is left half done, by name."""
    if os.path.basename(argv[0]) != "apt-get" or not {"install", "purge"} & set(argv):
        return {}
    return {name: partial(_half, option) for name, option in WAYS.items()}


def _half(option, argv, environment):
    os.makedirs(INSTEAD, exist_ok=True)
    for path in (DIE, os.path.join(INSTEAD, "dkms")):
        with open(path, "w", encoding="utf-8") as stream:
            stream.write(TEXT)
        os.chmod(path, 0o755)  # noqa: S103 - dpkg's scripts run it
    quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL}
    done = subprocess.run([*argv, "-o", option], env=environment, check=False, **quiet)
    # No script calls dkms in every command: then it is whole.
    assert done.returncode in (-9, 0), done
