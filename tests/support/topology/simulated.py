# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Evidence of simulated hosts, collected from a generated /sys with no tools installed."""

import subprocess
import sys
from pathlib import Path

from ansible_collections.apiary.instinct.plugins.module_utils.evidence import gpu as evidence

SIMULATOR = Path(__file__).parents[2] / "lab/simulated_sysfs.py"


def absent(argv):
    """Answer for a tool that is not installed."""
    return None, b"", b"", "not found"


def simulated_evidence(root, *faults, options=()):
    """Return the bundle of a host with these faults; its files are generated below root."""
    arguments = [item for fault in faults for item in ("--fault", fault)]
    command = [sys.executable, SIMULATOR, "generate", root / "sys", *options, *arguments]
    subprocess.run(command, check=True)
    return evidence.collect(run=absent, root=str(root))
