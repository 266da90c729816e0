# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What is collected is what is decided on: the two know nothing of each other."""

import pytest
from ansible_collections.apiary.instinct.plugins.plugin_utils.documents import knowledge
from ansible_collections.apiary.instinct.plugins.plugin_utils.evidence.types import sources
from ansible_collections.apiary.instinct.plugins.plugin_utils.host.host_tuning import (
    catalogue,
    sysctl,
)

from support.host.collected import collected as evidence_of
from support.host.tuning import host, idle_states, tuned

# A limit's drop-in is compared where it lies; the others say what an earlier run did.
PLANNED = [
    file.path
    for state in ("present", "absent")
    for file in tuned(state=state, profile="full").files
    if ".service.d/" not in file.path
]


@pytest.fixture
def collected(tmp_path):
    """Return what the collector finds of some paths, each file holding its own path."""

    def collect(*paths):
        for path in paths:
            (tmp_path / path[1:]).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / path[1:]).write_text(path)
        ran = []

        def run(argv):
            ran.append(argv)
            return 1, b"", b"", None

        return evidence_of(["tuning"], run, str(tmp_path))["files"], ran

    return collect


def test_everything_that_a_host_is_built_of_is_collected(collected):
    gpus = "/sys/bus/pci/"  # of the scope gpu
    paths = [path for path in host().files if not path.startswith(gpus)]
    found, _ran = collected(*paths, *idle_states("POLL", "C2"))
    assert set(paths) <= set(found)


def test_every_file_of_ours_is_read_again(collected):
    found, _ran = collected(*PLANNED)
    assert set(PLANNED) <= set(found)


@pytest.mark.parametrize("one", [s for s in catalogue.settings() if "sysctl" in s.facts])
def test_every_sysctl_is_read(collected, one):
    path = sysctl.path_of(one.facts["sysctl"])
    assert path in collected(path)[0]


def test_every_service_with_limits_is_asked_for(collected):
    _found, ran = collected()
    asked = {word for argv in ran for word in argv}
    assert {unit for s in catalogue.settings() for unit in s.facts.get("units", ())} <= asked


def test_other_boot_loaders_are_noticed(collected):
    paths = [
        p for each in knowledge("host/tuning_bootloaders.yml")["others"].values() for p in each
    ]
    assert set(paths) <= set(collected(*paths)[0])


def test_grub_cfg_is_never_read_whole():
    """It may hold the hash of GRUB's password."""
    assert not [path for path in sources(["tuning"])["files"] if "grub.cfg" in path]
