# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the decisions read is what hosts are asked for: nothing less, nothing more."""

import fnmatch
import shlex
import stat

import pytest
from ansible_collections.apiary.instinct.plugins.module_utils.evidence import gpu as evidence
from ansible_collections.apiary.instinct.plugins.plugin_utils.documents import (
    from_document,
    knowledge,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.evidence.types import (
    CommandOutput,
    Evidence,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.host.facts import os_release
from ansible_collections.apiary.instinct.plugins.plugin_utils.host.rocm import Settings
from ansible_collections.apiary.instinct.plugins.plugin_utils.host.rocm.host import read
from ansible_collections.apiary.instinct.plugins.plugin_utils.host.rocm.repositories import (
    own_paths,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.host.rocm.target import (
    complete,
    streams,
    system_of,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.host.rocm.types import parse

from support.host.collected import collected
from support.host.rocm import SYSTEMS, Machine

SCOPE = knowledge("evidence.yml")["scopes"]["rocm"]


class Asked(dict):
    """A mapping that remembers which names it was asked for."""

    def __init__(self):
        super().__init__()
        self.names = set()

    def get(self, name, default=None):
        self.names.add(name)
        return super().get(name, default)

    def __contains__(self, name):
        self.names.add(name)
        return super().__contains__(name)


def test_every_command_is_run_for_someone_who_reads_it():
    asked = Asked()
    # Whether a key is enrolled matters only there.
    asked["secure_boot"] = CommandOutput(("mokutil",), 0, "SecureBoot enabled\n", "", 0.0)
    read(Evidence("gpu-001", "2026-11-21T00:00:00Z", "2", asked))
    assert asked.names == SCOPE["commands"].keys()


def is_collected(path):
    """Whether a host would be asked for this file."""
    return any(fnmatch.fnmatchcase(path, pattern) for pattern in SCOPE["files"])


@pytest.mark.parametrize("system", SYSTEMS)
def test_every_file_that_is_written_is_the_roles_own(system):
    machine = Machine(system)
    known = system_of(os_release(machine.evidence()))
    settings = from_document(Settings, {}, "settings")
    target = complete(settings, known, read(machine.evidence()), parse("7.2.4"))
    written = {*own_paths(target)}
    for release, profile in (("7.2.4", "full"), ("10.0.0", "full")):
        plan = machine.plan(rocm_version=release, profile=profile)
        written |= {one.path for one in (*plan.files, *plan.keys)}
    assert written == {*own_paths(target)}


def test_leftovers_of_amds_helpers_are_read():
    assert [path for path in streams()["stale"]["names"] if not is_collected(path)] == []


def test_the_host_is_read_as_it_stands(tmp_path):
    """The collector on a directory and a machine of its own: what it gathers is understood."""
    for path, text in {
        "etc/os-release": "ID=debian\nVERSION_ID=12\n",
        "sys/module/amdgpu/initstate": "live\n",
        "sys/module/amdgpu/version": "6.16.13\n",
        "sys/bus/pci/devices/0000:05:00.0/modalias": "pci:v00001002d000074A5sv00001002sd000074A5"
        "bc12sc00i00\n",
        "etc/apt/sources.list.d/x.list": "deb https://me:secret@repo.radeon.com/amdgpu/6.4 a b\n",
    }.items():
        file = tmp_path / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    told = collected(["rocm"], lambda _argv: (0, "", "", None), str(tmp_path))
    assert "secret" not in str(told)
    state = read(from_document(Evidence, told, "evidence"))
    assert [gpu.model for gpu in state.gpus] == ["MI325X"]
    assert state.loaded.version == "6.16.13"


def test_find_prints_what_is_read(tmp_path):
    """The commands with a format of their own, run for real on files of this machine."""
    kernel = tmp_path / "vmlinuz-6.8.0"
    kernel.write_text("x")
    kernel.chmod(stat.S_IRUSR | stat.S_IWUSR)
    forms = SCOPE["commands"]
    for name, pattern in (("initial_ramdisks", "init*"), ("device_nodes", None)):
        argv = shlex.split(forms[name])
        paths = [word for word in argv if word.startswith("/")]
        argv = [argv[0], str(tmp_path), *argv[1 + len(paths) :]]
        if pattern:
            argv[argv.index(pattern)] = "vmlinuz*"
        code, out, _err, _problem = evidence.run_command(argv)
        words = out.decode().splitlines()[-1].split()
        assert code == 0
        assert words[0] == str(kernel)
        if name == "device_nodes":
            assert words[1] == "600"
            assert len(words) == 4
        else:
            assert float(words[1]) > 0
