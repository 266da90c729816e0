# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Steps at mount points: what is done, in which order, and what is only told."""

import os
import stat
import sys

import pytest
from ansible.module_utils.basic import AnsibleModule
from ansible_collections.apiary.instinct.plugins.module_utils.resources import file, mount, types
from ansible_collections.apiary.instinct.plugins.modules import converge

from support.effects import watched
from support.modules import run_module

UNIT = "srv-models.mount"


class World:
    """systemd, the kernel's mounts and their readahead, as far as the module meets them."""

    def __init__(self, path):
        self.path = str(path)
        self.mounted, self.readahead = 0, 128
        self.enabled = self.stale = self.broken = self.busy = False
        self.required_by = []
        self.told = []

    def run_command(self, _module, argv):
        sys.audit("subprocess.Popen", argv[0], argv, None, None)
        if argv[0] == "umount":
            self.told.append("umount")
            if self.busy:
                return 32, "", "umount: target is busy"
            self.mounted -= 1
            return 0, "", ""
        if argv[0] == "journalctl":
            return 0, "mount.nfs: access denied by server\n", ""
        verb = argv[2]
        if verb == "show" and "--property=RequiredBy,ConsistsOf" in argv:
            return 0, " ".join(self.required_by) + "\n", ""
        if verb == "show":
            broken = self.broken and argv[-1].endswith(".mount")
            state = "failed" if broken else "active" if self.mounted else "inactive"
            return (
                0,
                f"ActiveState={state}\nResult=success\n"
                f"UnitFileState={'enabled' if self.enabled else 'disabled'}\n"
                f"NeedDaemonReload={'yes' if self.stale else 'no'}\n",
                "",
            )
        self.told.append(" ".join([verb, *[word for word in argv[3:] if word != "--"]]))
        if verb == "start" and argv[-1].endswith(".mount") and not self.broken:
            # Seen from here, the directory must be closed by now.
            self.closed = stat.S_IMODE(os.stat(self.path).st_mode) == 0
            self.mounted += 1
            self.readahead = 128
        if verb == "stop" and not self.busy and argv[-1].endswith(".mount"):
            self.mounted = max(self.mounted - 1, 0)
        if verb == "enable":
            self.enabled = True
        if verb == "daemon-reload":
            self.stale = False
        return 0, "", ""


@pytest.fixture
def world(tmp_path, monkeypatch):
    made = World(tmp_path / "srv/models")
    monkeypatch.setattr(
        AnsibleModule,
        "run_command",
        lambda module, argv, **_options: made.run_command(module, argv),
    )
    monkeypatch.setattr(types, "DUE", str(tmp_path / "due"))
    monkeypatch.setattr(mount, "mounts_at", lambda path: made.mounted)
    monkeypatch.setattr(
        mount, "readahead_of", lambda path: made.readahead if made.mounted else None
    )
    monkeypatch.setattr(mount.readahead, "device_of", lambda path: "0:50")

    def set_readahead(_device, kib):
        made.readahead = kib

    monkeypatch.setattr(mount.readahead, "set_readahead", set_readahead)
    monkeypatch.setattr(mount, "FSTAB", str(tmp_path / "fstab"))
    monkeypatch.setattr(mount, "UNITS", str(tmp_path / "units"))
    monkeypatch.setattr(file, "ORIGINALS", str(tmp_path / "originals"))
    (tmp_path / "units").mkdir()
    yield made
    if os.path.isdir(made.path):
        mount.reopen(made.path)


def step(world, action="mount", **more):
    return {
        "path": world.path,
        "unit": UNIT,
        "action": action,
        "readahead_kib": 15360,
        **more,
    }


def run(capsys, *steps, check_mode=False, timeout=1):
    resources = [{"kind": "mount", "timeout_seconds": timeout, **each} for each in steps]
    result = run_module(converge, capsys, check_mode, resources=resources)
    result["steps"] = [step for each in result["resources"] for step in each["steps"]]
    return result


def test_a_mount_point_is_closed_then_mounted_enabled_and_read_ahead(world, capsys):
    told = run(capsys, step(world))
    assert told["changed"]
    assert world.closed
    assert (world.mounted, world.enabled, world.readahead) == (1, True, 15360)
    assert told["resources"][0]["findings"] == []


def test_second_run_changes_nothing(world, capsys):
    run(capsys, step(world))
    world.told.clear()
    assert not run(capsys, step(world, "keep"))["changed"]
    assert world.told == []


def test_check_mode_tells_every_step_and_takes_none(world, capsys):
    reasons = ["vers is 4.1, not 4.2"]
    told = run(
        capsys,
        step(world, "remount", reasons=reasons, automounts=["srv-models.automount"], fstab=True),
        check_mode=True,
    )
    assert told["steps"] == [
        f"take {world.path} out of /etc/fstab",
        "remove srv-models.automount",
        f"remount {world.path} (vers is 4.1, not 4.2)",
        f"enable {UNIT}",
        f"read 15360 KiB ahead on {world.path}",
    ]
    assert told["diff"][0]["prepared"].count("\n") == 5
    assert world.told == []


def test_a_lost_readahead_is_set_without_a_remount(world, capsys):
    world.mounted, world.enabled = 1, True
    told = run(capsys, step(world, "keep"))
    assert told["steps"] == [f"read 15360 KiB ahead on {world.path}"]
    assert world.readahead == 15360
    assert not any(word.startswith(("stop", "start")) for word in world.told)


def test_all_that_lies_on_each_other_is_unmounted(world, capsys):
    world.mounted = 3
    run(capsys, step(world, "remount"))
    assert world.told.count("umount") == 2
    assert world.mounted == 1


def test_a_remount_loses_the_readahead_and_check_mode_knows(world, capsys):
    world.mounted, world.enabled, world.readahead = 1, True, 15360
    told = run(capsys, step(world, "remount"), check_mode=True)
    assert told["steps"][-1] == f"read 15360 KiB ahead on {world.path}"


def test_replicas_that_stop_with_the_mount_start_with_it(world, capsys):
    world.mounted, world.required_by = 1, ["apiary-x-0.service", "apiary-x-1.service"]
    run(capsys, step(world, "remount"))
    last = "start --no-block apiary-x-0.service apiary-x-1.service"
    assert world.told.index(f"start --no-block {UNIT}") < world.told.index(last)


@pytest.mark.parametrize("trouble", ["broken", "busy"])
def test_replicas_that_stopped_for_a_remount_that_fails_start_all_the_same(world, capsys, trouble):
    """They wait for the mount; stopped, they would until somebody comes."""
    world.mounted, world.required_by = 1, ["apiary-x-0.service"]
    setattr(world, trouble, True)
    assert run(capsys, step(world, "remount"))["failed"]
    assert world.told[-1] == "start --no-block apiary-x-0.service"


def test_what_is_in_use_is_not_unmounted(world, capsys):
    world.mounted, world.busy = 1, True
    told = run(capsys, step(world, "remount"))
    assert told["failed"]
    assert told["msg"].startswith(f"error: WEIGHTS-BUSY: {world.path}: ")
    assert "fuser -vm" in told["msg"]


def test_a_server_that_refuses_is_quoted(world, capsys):
    world.broken = True
    told = run(capsys, step(world))
    assert told["msg"].startswith("error: WEIGHTS-MOUNT")
    assert "access denied by server" in told["msg"]
    # It may answer after the next boot.
    assert world.enabled
    assert "remedy: " in told["msg"]


def test_files_below_a_mount_are_told(world, capsys):
    os.makedirs(os.path.join(world.path, "old"))
    told = run(capsys, step(world))
    assert [(found["code"], found["severity"]) for found in told["findings"]] == [
        ("WEIGHTS-HIDDEN", "warning")
    ]


def test_fstab_and_automount_go_and_are_kept(world, capsys, tmp_path):
    fstab = tmp_path / "fstab"
    fstab.write_text(f"# mine\nUUID=1 / ext4 rw 0 1\nx:/y {world.path}/ nfs rw 0 0\n")
    unit = tmp_path / "units/srv-models.automount"
    unit.write_text("[Automount]\n")
    (tmp_path / "units/a.wants").mkdir()
    (tmp_path / "units/a.wants/srv-models.automount").symlink_to(unit)
    run(capsys, step(world, fstab=True, automounts=["srv-models.automount"]))
    assert fstab.read_text() == "# mine\nUUID=1 / ext4 rw 0 1\n"
    assert not unit.exists()
    assert list((tmp_path / "units/a.wants").iterdir()) == []
    assert world.path in (tmp_path / f"originals{fstab}").read_text()
    assert (tmp_path / f"originals{unit}").is_file()
    assert world.told.index("stop srv-models.automount") < world.told.index("daemon-reload")


def test_absent_unmounts_forgets_and_opens_the_directory(world, capsys, tmp_path):
    run(capsys, step(world))
    wants = tmp_path / "units/remote-fs.target.wants"
    wants.mkdir()
    (wants / UNIT).symlink_to("/gone")
    told = run(capsys, step(world, "unmount", readahead_kib=None))
    assert told["steps"] == [f"unmount {world.path}", f"disable {UNIT}"]
    assert (world.mounted, list(wants.iterdir()), os.path.exists(world.path)) == (0, [], False)
    assert not run(capsys, step(world, "unmount", readahead_kib=None))["changed"]


def test_a_changed_unit_is_loaded(world, capsys):
    world.mounted, world.enabled, world.readahead, world.stale = 1, True, 15360, True
    told = run(capsys, step(world, "keep"))
    assert told["steps"] == ["reload systemd"]
    assert not world.stale


@pytest.mark.parametrize(
    ("line", "stays"),
    [
        ("x:/y /srv/models nfs rw 0 0", False),
        ("x:/y\t/srv/models/\tnfs\trw", False),
        ("# x:/y /srv/models nfs rw 0 0", True),
        ("x:/y /srv/models2 nfs rw 0 0", True),
        ("x:/y /srv/models/sub nfs rw 0 0", True),
        ("", True),
    ],
)
def test_only_entries_of_the_path_leave_fstab(line, stays):
    other = "UUID=1 / ext4\n"
    found = mount.without(f"{line}\n{other}", "/srv/models")
    assert found == (f"{line}\n{other}" if stays else other)


def test_what_a_remount_stopped_is_started_also_after_it_was_killed(world, capsys):
    world.mounted, world.required_by = 1, ["apiary-x-0.service"]
    effects, _dead = watched(lambda: run(capsys, step(world, "remount")))
    (stop,) = (k for k, (words, _can) in enumerate(effects, 1) if f"stop -- {UNIT}" in words)
    world.mounted = 1
    _effects, dead = watched(lambda: run(capsys, step(world, "remount")), before=stop + 1)
    assert dead
    world.told.clear()
    # Nothing is mounted any more, so that it is decided anew.
    assert f"start what needs {world.path}" in run(capsys, step(world))["steps"]
    assert "start --no-block apiary-x-0.service" in world.told
    assert not run(capsys, step(world, "keep"))["changed"]
