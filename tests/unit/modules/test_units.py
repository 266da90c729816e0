# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

import pytest
from ansible_collections.apiary.instinct.plugins.module_utils import units

SERVICES = ["apiary-x-0.service", "apiary-x-1.service"]
TARGET = "apiary-x.target"
SERVING = {
    name: {"ActiveState": "active", "UnitFileState": "enabled", "NeedDaemonReload": "no"}
    for name in [*SERVICES, TARGET]
}


def change(name, before="old", after="new"):
    return units.FileChange(f"/etc/systemd/system/{name}", before, after, "0644", "0644")


def plan(files=(), stale=(), states=SERVING):
    return units.plan_units(list(files), list(stale), SERVICES, TARGET, states)


def test_what_serves_as_planned_is_left_alone():
    assert not plan([change(SERVICES[0], "same", "same")]).changed


def test_a_fresh_host_gets_everything_enabled_and_started_together():
    changes = plan([change(name, None) for name in [*SERVICES, TARGET]], states={})
    assert changes.enable == [*SERVICES, TARGET]
    assert changes.start == [*SERVICES, TARGET]
    assert changes.restart == []
    assert changes.reload


def test_only_the_replica_whose_unit_changed_is_restarted():
    changes = plan([change(SERVICES[1]), change(SERVICES[0], "same", "same")])
    assert (changes.restart, changes.start, changes.reload) == ([SERVICES[1]], [], True)


def test_a_replica_that_is_still_starting_begins_anew_with_its_new_unit():
    states = {**SERVING, SERVICES[0]: {**SERVING[SERVICES[0]], "ActiveState": "activating"}}
    changes = plan([change(SERVICES[0])], states=states)
    assert (changes.restart, changes.start) == ([SERVICES[0]], [])


def test_replicas_that_exchange_devices_are_stopped_together():
    def unit(*names):
        return "".join(f"DeviceAllow=/dev/dri/by-path/{name} rw\n" for name in names)

    files = [
        change(SERVICES[0], unit("a"), unit("a", "b")),
        change(SERVICES[1], unit("b"), unit("c")),
    ]
    changes = plan(files)
    assert (changes.move, changes.restart) == (SERVICES, [])


def test_a_new_launcher_interrupts_nobody():
    changes = plan([units.FileChange("/usr/libexec/apiary/launch", "old", "new", "0755", "0755")])
    assert not changes.changed


def test_a_failed_replica_is_started_again():
    states = {**SERVING, SERVICES[0]: {**SERVING[SERVICES[0]], "ActiveState": "failed"}}
    assert plan(states=states).start == [SERVICES[0]]


def test_a_running_unit_that_differs_from_its_file_is_restarted():
    """As after a run that wrote the file and was cut off before the restart."""
    states = {**SERVING, SERVICES[0]: {**SERVING[SERVICES[0]], "NeedDaemonReload": "yes"}}
    assert plan(states=states).restart == [SERVICES[0]]


def test_directories_are_opened_whatever_the_umask_made_of_them(tmp_path):
    inner = tmp_path / "apiary/x"
    inner.mkdir(parents=True)
    (tmp_path / "apiary").chmod(0o700)
    inner.chmod(0o755)
    files = [units.FileChange(str(inner / "plan.json"), None, "{}", None, "0644")]
    found = units.compare_directories(files)
    assert [(item.path, item.changed) for item in found] == [
        (str(tmp_path / "apiary"), True),
        (str(inner), False),
    ]


@pytest.mark.parametrize(
    ("state", "taken"), [("active", True), ("activating", True), ("inactive", False)]
)
def test_a_gpu_of_another_deployment_is_taken_while_it_runs(tmp_path, state, taken):
    allowed = "DeviceAllow=/dev/dri/by-path/pci-0000:05:00.0-render rw\n"
    (tmp_path / "apiary-other-0.service").write_text(allowed)
    (tmp_path / SERVICES[0]).write_text(allowed)

    def systemctl(arguments):
        blocks = [f"Id={name}\nActiveState={state}\n" for name in arguments[3:]]
        return 0, "\n".join(blocks), ""

    files = [change(SERVICES[0], allowed, allowed)]
    found = units.taken_devices(str(tmp_path), files, SERVICES, [], systemctl)
    device = "/dev/dri/by-path/pci-0000:05:00.0-render"
    assert found == ({device: "apiary-other-0.service"} if taken else {})


def test_a_unit_edited_behind_systemds_back_is_reloaded():
    states = {**SERVING, TARGET: {**SERVING[TARGET], "NeedDaemonReload": "yes"}}
    assert plan(states=states).reload


def test_units_of_an_earlier_layout_are_stopped():
    changes = plan(stale=["apiary-x-2.service"])
    assert changes.remove == ["apiary-x-2.service"]
    assert changes.reload


@pytest.mark.parametrize(
    ("name", "stale"),
    [
        ("apiary-x-2.service", True),
        ("apiary-x-0.service", False),
        ("apiary-x-extra-0.service", False),
        ("apiary-x-2.service.d", False),
        ("other.service", False),
    ],
)
def test_only_units_of_this_deployment_are_stale(tmp_path, name, stale):
    (tmp_path / name).write_text("")
    found = units.stale_units(str(tmp_path), r"apiary-x-[0-9]+\.service", [*SERVICES, TARGET])
    assert found == ([name] if stale else [])


def test_states_of_units_known_and_unknown():
    def systemctl(arguments):
        assert arguments[-2:] == SERVICES
        return (
            0,
            f"Id={SERVICES[0]}\nActiveState=active\n\nId={SERVICES[1]}\nActiveState=inactive\n",
            "",
        )

    states = units.unit_states(systemctl, SERVICES)
    assert [states[name]["ActiveState"] for name in SERVICES] == ["active", "inactive"]


def test_a_changed_mode_alone_shows_in_the_diff(tmp_path):
    path = tmp_path / "launch"
    path.write_text("x")
    path.chmod(0o600)
    (found,) = units.compare_files([{"path": str(path), "content": "x", "mode": "0755"}])
    assert found.changed
    assert found.diff()["before"] == "# mode 0600\nx"
    assert found.diff()["after"] == "# mode 0755\nx"
