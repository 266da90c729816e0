# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

import pytest
from ansible_collections.apiary.instinct.plugins.module_utils.replicas import units

SERVICES = ["apiary-x-0.service", "apiary-x-1.service"]
TARGET = "apiary-x.target"
SERVING = {
    name: {"ActiveState": "active", "UnitFileState": "enabled", "NeedDaemonReload": "no"}
    for name in [*SERVICES, TARGET]
}


def change(name, before="old", after="new", path=None):
    unit = name if name in SERVICES else None
    path = path or f"/etc/systemd/system/{name}"
    return units.FileChange(path, before, after, "0644", "0644", unit)


def plan(files=(), stale=(), states=SERVING, **more):
    return units.plan_units(list(files), SERVICES, TARGET, states, list(stale), **more)


def test_what_serves_as_planned_is_left_alone():
    assert plan([change(SERVICES[0], "same", "same")]).steps() == ()


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


@pytest.mark.parametrize("name", ["replica-1.env", "replica-1.json"])
def test_a_replica_whose_document_changed_is_restarted_alone(name):
    changes = plan([change(SERVICES[1], path=f"/etc/apiary/x/{name}")])
    assert (changes.restart, changes.start, changes.reload) == ([SERVICES[1]], [], False)


def test_a_mode_alone_interrupts_nobody():
    name = SERVICES[0]
    one = units.FileChange(f"/etc/systemd/system/{name}", "a", "a", "0600", "0644", name)
    assert plan([one]).restart == []


def test_replicas_whose_devices_change_hands_are_stopped_together():
    changes = plan([change(name) for name in SERVICES], handed_over=True)
    assert (changes.move, changes.restart) == (SERVICES, [])


def test_a_generated_unit_is_not_enabled():
    """`systemctl enable` refuses it; its .container file has the [Install] section."""
    states = {SERVICES[0]: {"ActiveState": "active", "UnitFileState": "generated"}}
    path = "/etc/containers/systemd/apiary-x-0.container"
    assert plan([change(SERVICES[0], path=path)], states=states).enable == []


def test_a_new_launcher_interrupts_nobody():
    changes = plan([units.FileChange("/usr/libexec/apiary/launch", "old", "new", "0755", "0755")])
    assert changes.steps() == ()


def test_a_failed_replica_is_started_again():
    states = {**SERVING, SERVICES[0]: {**SERVING[SERVICES[0]], "ActiveState": "failed"}}
    assert plan(states=states).start == [SERVICES[0]]


def test_what_is_due_is_restarted():
    """As after a run that was cut off before the restart, or when a secret changed."""
    assert plan(due=frozenset(SERVICES[:1])).restart == SERVICES[:1]


def test_a_drop_in_behind_systemds_back_interrupts_nobody():
    """A package that brings a drop-in for all services must not restart every replica."""
    states = {**SERVING, SERVICES[0]: {**SERVING[SERVICES[0]], "NeedDaemonReload": "yes"}}
    assert (plan(states=states).restart, plan(states=states).reload) == ([], True)


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


def test_only_the_directory_of_secrets_is_closed(tmp_path):
    path = str(tmp_path / "apiary/x/credentials/KEY")
    found = units.compare_directories(
        [units.FileChange(path, None, "s", None, "0600", None, secret=True)]
    )
    assert [(item.path, item.mode_after) for item in found] == [
        (str(tmp_path / "apiary"), "0755"),
        (str(tmp_path / "apiary/x"), "0755"),
        (str(tmp_path / "apiary/x/credentials"), "0700"),
    ]


def test_of_others_directories_only_the_missing_count(tmp_path):
    (tmp_path / "there").mkdir(mode=0o700)
    files = [
        units.FileChange(str(tmp_path / name / "x.container"), None, "x", None, "0644")
        for name in ("there", "missing")
    ]
    assert [item.path for item in units.compare_directories(files)] == [str(tmp_path / "missing")]


@pytest.mark.parametrize(
    ("before", "after", "shown"),
    [
        (None, "s3cret", ("", "a secret\n")),
        ("s3cret", "s4cret", ("a secret\n", "another secret\n")),
        ("s3cret", None, ("a secret\n", "")),
    ],
)
def test_the_diff_tells_of_a_secret_and_never_shows_it(before, after, shown):
    diff = units.FileChange("/x", before, after, before and "0600", after and "0600", None, True)
    assert (diff.diff()["before"], diff.diff()["after"]) == shown


def test_a_unit_edited_behind_systemds_back_is_reloaded():
    states = {**SERVING, TARGET: {**SERVING[TARGET], "NeedDaemonReload": "yes"}}
    assert plan(states=states).reload


def test_units_of_an_earlier_layout_are_stopped():
    changes = plan(stale=["apiary-x-2.service"])
    assert changes.remove == ["apiary-x-2.service"]
    assert changes.reload


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
