# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What has to outlast a power cut is on the disk, file and name, whoever writes it."""

import fcntl
import json
import os
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest
from ansible_collections.apiary.instinct.plugins.module_utils import durable
from ansible_collections.apiary.instinct.plugins.module_utils.replicas import releases
from ansible_collections.apiary.instinct.plugins.module_utils.resources import file, mount, types
from ansible_collections.apiary.instinct.plugins.module_utils.router import haproxy
from ansible_collections.apiary.instinct.plugins.plugin_utils.fleet.ledger import Ledger

from apiary.rollout.store import Store

STATE = (
    "1\n# be_id be_name srv_id srv_name srv_addr srv_op_state srv_admin_state srv_port\n"
    "4 x 1 gpu-001-0 10.0.0.1 2 8 8000\n"
)
CONFIGURATION = "backend x\n    server gpu-001-0 10.0.0.1:8000 check\n"


class Disk:
    """In which order things were written, synced and named."""

    def __init__(self, monkeypatch):
        self.events = []
        self._real = {name: getattr(os, name) for name in ("fsync", "rename", "replace", "link")}
        monkeypatch.setattr(os, "fsync", self.fsync)
        for name in ("rename", "replace", "link"):
            monkeypatch.setattr(os, name, self.naming(name))

    def fsync(self, handle):
        self.events.append(("sync", os.readlink(f"/proc/self/fd/{handle}")))
        return self._real["fsync"](handle)

    def naming(self, name):
        def named(source, target, **options):
            self.events.append(("name", os.fspath(source), os.fspath(target)))
            return self._real[name](source, target, **options)

        return named

    def assert_durable(self, path):
        """A file's content is synced before it has its name, its directory after."""
        path = os.path.realpath(path)
        (place,) = (
            number
            for number, event in enumerate(self.events)
            if event[0] == "name" and event[2] == path
        )
        source = self.events[place][1]
        assert ("sync", source) in self.events[:place]
        assert ("sync", os.path.dirname(path)) in self.events[place:]


@pytest.fixture
def disk(monkeypatch):
    return Disk(monkeypatch)


@pytest.fixture
def module():
    """An AnsibleModule as far as files need one, on a host without SELinux."""
    return SimpleNamespace(
        selinux_context=lambda _path: [None],
        selinux_default_context=lambda _path: [None],
        set_context_if_different=lambda *_arguments: False,
    )


def write_unit(place, module, _monkeypatch):
    path = place / "apiary-x-0.service"
    file.write(module, str(path), "[Service]\n", "0644")
    return path


def write_original(place, _module, monkeypatch):
    monkeypatch.setattr(file, "ORIGINALS", str(place / "originals"))
    file.keep_original("/etc/fstab", "mine\n")
    return place / "originals/etc/fstab"


def write_fstab(place, module, monkeypatch):
    monkeypatch.setattr(file, "ORIGINALS", str(place / "originals"))
    monkeypatch.setattr(mount, "FSTAB", str(place / "fstab"))
    (place / "fstab").write_text("x:/y /srv/models nfs rw 0 0\n")
    host = SimpleNamespace(module=module)
    resource = {"automounts": [], "fstab": True, "path": "/srv/models"}
    mount._release(host, resource)
    return place / "fstab"


def take_lock(place, _module, _monkeypatch):
    path = place / "rollout/x.lock"
    assert releases.take_lock(str(path), {"owner": "ann", "out": ["u"]}, fresh=True)
    return path


def renew_lock(place, module, monkeypatch):
    path = take_lock(place, module, monkeypatch)
    disk = os.fsync.__self__
    disk.events.clear()
    assert releases.take_lock(str(path), {"owner": "ann", "out": []}, fresh=False)
    return path


def save_states(place, _module, _monkeypatch):
    (place / "haproxy.cfg").write_text(CONFIGURATION)
    path = place / "server-state"
    haproxy.save(lambda _command: STATE, True, str(place / "haproxy.cfg"), str(path))
    assert "gpu-001-0" in path.read_text()
    return path


def save_ledger(place, _module, _monkeypatch):
    Store(place).save_ledger(Ledger("gpu-001"))
    (path,) = place.rglob("gpu-001.json")
    return path


WRITERS = (
    write_unit,
    write_original,
    write_fstab,
    take_lock,
    renew_lock,
    save_states,
    save_ledger,
)


@pytest.mark.parametrize("writer", WRITERS, ids=lambda one: one.__name__)
def test_it_is_on_the_disk_before_anybody_goes_on(tmp_path, disk, module, monkeypatch, writer):
    disk.assert_durable(writer(tmp_path, module, monkeypatch))
    assert not list(tmp_path.rglob(".apiary-*"))


def test_every_file_of_a_release_is_on_the_disk_before_its_name(tmp_path, disk):
    text = json.dumps({"deployment": {"name": "x"}, "replicas": []})
    files = [{"path": "/etc/apiary/x/plan.json", "mode": "0644", "content": text}]
    name = "20260101T000000Z-0123abcd"
    releases.write_release(str(tmp_path), {"id": name}, files)
    releases.switch(str(tmp_path), "current", name)
    named = next(n for n, event in enumerate(disk.events) if event[-1] == str(tmp_path / name))
    written = {event[2].rpartition("/")[2] for event in disk.events[:named] if event[0] == "name"}
    assert written == {"plan.json", "release.json"}
    assert sum(event[0] == "sync" for event in disk.events[:named]) == 4
    assert ("sync", str(tmp_path)) in disk.events[named:]


def systemctl(place, monkeypatch, *words):
    """Run it on a host without one, whose units are in a directory."""
    monkeypatch.setattr(types, "LINKS", [str(place), f"{place}/*.wants", f"{place}/*.requires"])
    host = types.Host(SimpleNamespace(run_command=lambda *_argv, **_options: (0, "", "")))
    return host.systemctl(*words)


def test_links_that_start_units_are_synced(tmp_path, disk, monkeypatch):
    folders = [tmp_path / f"multi-user.target.{kind}" for kind in ("wants", "requires")]
    for folder in folders:
        folder.mkdir()
    systemctl(tmp_path, monkeypatch, "start", "--", "a.service")
    assert disk.events == []
    systemctl(tmp_path, monkeypatch, "enable", "--", "a.service")
    assert disk.events == [("sync", str(folder)) for folder in (tmp_path, *folders)]


def test_links_that_cannot_be_synced_end_no_run(tmp_path, monkeypatch):
    """A directory goes with the last of its links, whoever removes that."""
    (tmp_path / "a.target.wants").mkdir()

    def gone(path):
        raise FileNotFoundError(path)

    monkeypatch.setattr(types, "sync_directory", gone)
    assert systemctl(tmp_path, monkeypatch, "disable", "--", "a.service") == (0, "")


def test_writers_at_the_same_time_do_not_disturb_each_other(tmp_path):
    path = tmp_path / "run.json"
    texts = [f"{letter * 4000}\n" for letter in "abcd"]
    wrong = []

    def write(text):
        try:
            for _time in range(50):
                durable.write_durably(str(path), text)
                if path.read_text() not in texts:
                    wrong.append("torn")
        except OSError as failure:
            wrong.append(failure)

    threads = [threading.Thread(target=write, args=(text,)) for text in texts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert [one.name for one in tmp_path.iterdir()] == ["run.json"]


def test_a_writer_awaits_whoever_looks_at_its_file(tmp_path, monkeypatch):
    """Else it would write without the lock, and whoever looks would take the file for left."""
    held, real = [], (durable.tempfile.mkstemp, fcntl.flock)

    def looked_at(**options):
        handle, path = real[0](**options)
        held.append(os.open(path, os.O_RDONLY))
        real[1](held[0], fcntl.LOCK_EX)
        return handle, path

    def flock(stream, flags):
        if not flags & fcntl.LOCK_NB:
            os.close(held.pop())
        real[1](stream, flags)

    def is_locked(path):
        while held:
            os.close(held.pop())
        with open(path) as stream, pytest.raises(BlockingIOError):
            real[1](stream, fcntl.LOCK_EX | fcntl.LOCK_NB)

    monkeypatch.setattr(durable.tempfile, "mkstemp", looked_at)
    monkeypatch.setattr(durable.fcntl, "flock", flock)
    durable.write_durably(str(tmp_path / "a"), "text\n", prepare=is_locked)
    assert (tmp_path / "a").read_text() == "text\n"


def test_what_a_killed_writer_left_goes_and_a_living_ones_stays(tmp_path):
    path = tmp_path / "a.service"
    (tmp_path / ".apiary-a.service.dead").write_text("half")
    (tmp_path / ".apiary-b.service.other").write_text("half")
    (tmp_path / ".apiary-a.service.new").touch()
    durable.write_durably(
        str(path), "ours\n", prepare=lambda _path: durable.write_durably(str(path), "theirs\n")
    )
    assert path.read_text() == "ours\n"
    left = sorted(one.name for one in tmp_path.iterdir())
    assert left == [".apiary-a.service.new", ".apiary-b.service.other", "a.service"]


def test_a_file_that_is_there_stays(tmp_path):
    path = tmp_path / "x.lock"
    durable.write_durably(str(path), "first\n", exclusive=True)
    with pytest.raises(FileExistsError):
        durable.write_durably(str(path), "second\n", exclusive=True)
    assert path.read_text() == "first\n"
    assert list(tmp_path.iterdir()) == [path]


def test_a_full_disk_leaves_what_was_there(tmp_path, monkeypatch):
    path = tmp_path / "a"
    durable.write_durably(str(path), "before\n", 0o640)
    assert path.stat().st_mode & 0o777 == 0o640

    def full(_handle):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        durable.write_durably(str(path), "after\n")
    assert [one.read_text() for one in Path(tmp_path).iterdir()] == ["before\n"]
