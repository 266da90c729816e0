# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A run that is killed before any of its effects is completed by the next one, kind by kind."""

import copy
import os
import shutil
import stat
import sys

import pytest
from ansible.module_utils.basic import AnsibleModule
from ansible_collections.apiary.instinct.plugins.module_utils.resources import configuration

from support.effects import killed_anywhere

SERVICE = "a.service"


class Place:
    """Files below a directory, and the units of a fake systemd."""

    def __init__(self, host):
        self.host = host

    def read(self):
        units = copy.deepcopy(self.host.units)
        found = {"units": {key: {**row, "reload": ""} for key, row in units.items()}}
        for path in sorted(self.host.root.rglob("*")):
            status = path.lstat()
            held = path.read_bytes() if path.is_file() else None
            found[str(path.relative_to(self.host.root))] = (stat.S_IMODE(status.st_mode), held)
        return found

    def restore(self, state):
        for path in self.host.root.iterdir():
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        self.host.units = copy.deepcopy(state["units"])
        for name, (mode, held) in ((key, row) for key, row in state.items() if key != "units"):
            path = self.host.root / name
            path.mkdir() if held is None else path.write_bytes(held)
            path.chmod(mode)

    def killed_anywhere(self, *resources, **more):
        return killed_anywhere(
            lambda: self.host.converge(*resources, **more),
            self.read,
            self.restore,
            str(self.host.root),
        )


@pytest.fixture
def place(host, monkeypatch):
    host.root.joinpath("etc").mkdir(parents=True)
    run = host.run_command

    def written(unit):
        folder = host.root / "etc/systemd/system"
        paths = [folder / unit, *(folder / f"{unit}.d").glob("*")]
        return {path.name: path.read_text() for path in paths if path.is_file()}

    def command(argv):
        # As the real one would be seen.
        sys.audit("subprocess.Popen", argv[0], argv, None, None)
        unit = host.units.get(argv[-1])
        if unit and argv[2] == "show":
            unit["reload"] = "no" if unit.get("read", {}) == written(argv[-1]) else "yes"
        code, out, err = run(argv)
        if unit and argv[2] == "show":
            out += f"UnitFileState={'enabled' if unit['enabled'] else 'disabled'}\n"
        if unit and argv[2:4] == ["disable", "--now"]:
            unit["active"] = "inactive"
        if "daemon-reload" in argv:
            for name, each in host.units.items():
                each["read"] = written(name)
        return code, out, err

    monkeypatch.setattr(host, "run_command", command)
    monkeypatch.setattr(AnsibleModule, "get_bin_path", lambda _self, name, *_rest: name)
    monkeypatch.setattr(configuration, "STAMPS", str(host.root / "stamps"))
    return Place(host)


def put(place, name, text, mode=0o644):
    path = place.host.root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(mode)
    return str(path)


def test_files_units_services_and_commands(place):
    unit = place.host.path(f"etc/systemd/system/{SERVICE}")
    conf = put(place, "etc/a.conf", "theirs\n", 0o600)
    gone = put(place, "etc/gone.conf", "x\n")
    place.killed_anywhere(
        {"kind": "file", "path": unit, "content": "[Service]\n"},
        {"kind": "file", "path": conf, "content": "ours\n", "keep_original": True},
        {"kind": "file", "path": gone},
        {"kind": "service", "name": SERVICE, "enabled": True, "state": "started"},
        {"kind": "command", "argv": ["take", conf], "after": [f"file {conf}"]},
    )
    assert "take" in "".join(place.host.commands) or place.host.commands == []


def test_directories(place):
    put(place, "etc/d/stray", "x\n")
    put(place, "etc/old/deep/file", "x\n")
    place.killed_anywhere(
        {"kind": "directory", "path": place.host.path("etc/d"), "mode": "0700", "purge": "s*"},
        {"kind": "directory", "path": place.host.path("etc/old"), "state": "absent"},
    )


def test_values_of_the_kernel(place):
    settings = [
        {"path": put(place, name, "1\n"), "value": "0"} for name in ("balancing", "reclaim")
    ]
    resource = {"kind": "live", "settings": settings, "remember": place.host.path("lib/live.json")}
    # The kernel takes a value whole; a file of this test may be torn.
    place.killed_anywhere(resource)
    place.killed_anywhere({**resource, "settings": [], "state": "absent"})
    assert (place.host.root / "balancing").read_text() == "1\n"


def test_settings_of_a_json_file(place, monkeypatch):
    resource = {
        "kind": "json_settings",
        "path": put(place, "etc/daemon.json", '{"dns": ["x"], "log": {"size": "1m"}}'),
        "remember": place.host.path("lib/daemon.json"),
        "settings": {"cdi": True, "log": {"size": "9m"}},
    }
    place.killed_anywhere(resource)
    place.killed_anywhere({**resource, "settings": {"cdi": True}})
    place.killed_anywhere({**resource, "settings": {}, "state": "absent"})
    assert not os.path.exists(resource["remember"])


@pytest.mark.parametrize("theirs", [None, "theirs\n"])
def test_the_configuration_of_a_service(place, theirs):
    main = place.host.path("etc/demo.conf")
    drop_in = place.host.path(f"etc/systemd/system/{SERVICE}.d/90-demo.conf")
    if theirs:
        put(place, "etc/demo.conf", theirs)
    place.host.unit(SERVICE)
    files = [
        {"path": drop_in, "content": "[Service]\n"},
        {"path": place.host.path("etc/apiary/keys.map"), "content": "k\n", "mode": "0600"},
        {"path": main, "content": "# Managed by Apiary\nkeys apiary/keys.map\n"},
    ]
    resource = {"kind": "configuration", "service": SERVICE, "main": main, "files": files}
    place.killed_anywhere(resource)
    files[1]["content"] = "another\n"
    place.killed_anywhere(resource)
    place.killed_anywhere({**resource, "state": "absent"})
    assert not os.path.exists(drop_in)


def test_files_that_a_service_reads_when_it_starts(place):
    path = put(place, "etc/kubelet", "theirs\n")
    place.host.unit(SERVICE, active="active")
    state = put(place, "state", "x\n")
    files = [{"path": path, "content": "ours\n"}, {"path": state}]
    resource = {"kind": "offline_files", "service": SERVICE, "files": files}

    def run():
        # Who decides has it restarted where a file differs.
        differs = os.path.exists(state) or (place.host.root / "etc/kubelet").read_text() != "ours\n"
        return place.host.converge({**resource, "restart": differs})

    killed_anywhere(run, place.read, place.restore, str(place.host.root))
