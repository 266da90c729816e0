# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Evidence of simulated hosts, collected from a generated /sys with no tools installed."""

import functools
import json
import tempfile

import simulated_sysfs
from ansible_collections.apiary.instinct.plugins.module_utils.evidence import gpu as evidence
from ansible_collections.apiary.instinct.plugins.plugin_utils.documents import knowledge


def absent(argv):
    """Answer for a tool that is not installed."""
    return None, b"", b"", "not found"


def simulate(root, *faults, options=()):
    """Generate the files of a host with these faults below root; return its bundle."""
    arguments = [item for fault in faults for item in ("--fault", fault)]
    assert simulated_sysfs.main(["generate", f"{root}/sys", *options, *arguments]) == 0
    return evidence.collect(knowledge("evidence.yml")["gpu"], absent, str(root))


def simulated_evidence(*faults, options=()):
    """Return the bundle of a host with these faults; it is the caller's to change."""
    return json.loads(_collected(faults, tuple(options)))


@functools.cache
def _collected(faults, options):
    with tempfile.TemporaryDirectory() as root:
        return json.dumps(simulate(root, *faults, options=options))
