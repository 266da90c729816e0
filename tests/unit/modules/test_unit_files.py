# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

import json

import pytest
from ansible_collections.apiary.instinct.plugins.module_utils.replicas import unit_files, units
from ansible_collections.apiary.instinct.plugins.module_utils.resources import replicas

SERVICES = ["apiary-x-0.service", "apiary-x-1.service"]
PATTERN = r"apiary-x-[0-9]+\.service"


@pytest.fixture
def places(tmp_path):
    for name in ("system", "containers"):
        (tmp_path / name).mkdir()
    return unit_files.Places(str(tmp_path / "system"), str(tmp_path / "containers"))


def launch(unit, *gpus):
    return json.dumps({"unit": unit, "gpus": gpus})


def change(path, after, before=None, unit=SERVICES[0]):
    return units.FileChange(str(path), before, after, before and "0644", "0644", unit)


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("system/apiary-x-2.service", True),
        ("containers/apiary-x-2.container", True),
        ("system/apiary-x-extra-2.service", False),
        ("system/apiary-x-2.service.d", False),
        ("system/other.service", False),
        ("containers/apiary-x-2.network", False),
    ],
)
def test_only_units_of_this_deployment_are_found(tmp_path, places, name, found):
    (tmp_path / name).write_text("")
    services = unit_files.services_matching(places, PATTERN)
    assert services == (["apiary-x-2.service"] if found else [])


def test_a_host_without_directories_has_no_units():
    assert unit_files.services_matching(unit_files.Places("/no/a", "/no/b"), ".*") == []


@pytest.mark.parametrize(
    ("state", "taken"), [("active", True), ("activating", True), ("inactive", False)]
)
def test_a_gpu_of_another_deployment_is_taken_while_it_runs(tmp_path, state, taken):
    (tmp_path / "other").mkdir()
    (tmp_path / "other/replica-0.json").write_text(launch("apiary-other-0.service", "a", "b"))
    (tmp_path / "other/replica-1.json").write_text("not JSON")

    def systemctl(arguments):
        blocks = [f"Id={name}\nActiveState={state}\n" for name in arguments[3:]]
        return 0, "\n".join(blocks), ""

    files = [change(tmp_path / "x/replica-0.json", launch(SERVICES[0], "b", "c"))]
    found = unit_files.taken_gpus(str(tmp_path), files, SERVICES, [], systemctl)
    assert found == ({"b": "apiary-other-0.service"} if taken else {})
    # What the same run stops is no obstacle.
    stale = ["apiary-other-0.service"]
    assert unit_files.taken_gpus(str(tmp_path), files, SERVICES, stale, systemctl) == {}


@pytest.mark.parametrize(
    ("state", "before", "moved"),
    [
        ("active", ["a"], True),
        ("activating", ["a"], True),
        ("inactive", ["a"], False),
        ("active", ["b"], False),
        ("active", None, False),
    ],
)
def test_gpus_change_hands_between_replicas_that_are_up(state, before, moved):
    old = None if before is None else launch(SERVICES[0], *before)
    files = [change("/etc/apiary/x/replica-0.json", launch(SERVICES[0], "b"), old)]
    assert unit_files.handed_over(files, {SERVICES[0]: {"ActiveState": state}}) is moved


def test_a_unit_of_the_former_runtime_would_win_and_goes(tmp_path, places):
    (tmp_path / "system/apiary-x-0.service").write_text("native")
    files = [change(tmp_path / "containers/apiary-x-0.container", "quadlet")]
    (gone,) = unit_files.shadows(places, files, SERVICES)
    assert (gone.path, gone.unit) == (str(tmp_path / "system/apiary-x-0.service"), SERVICES[0])
    assert gone.changed


def test_a_unit_of_the_same_runtime_is_no_shadow(tmp_path, places):
    (tmp_path / "system/apiary-x-0.service").write_text("native")
    files = [change(tmp_path / "system/apiary-x-0.service", "native", "native")]
    assert unit_files.shadows(places, files, SERVICES) == []


def test_what_the_plan_no_longer_has_is_left_over(tmp_path, places):
    home = tmp_path / "x"
    home.mkdir()
    for index in range(4):
        (home / f"replica-{index}.json").write_text(launch(f"apiary-x-{index}.service", "a"))
        (home / f"replica-{index}.env").write_text("A=1\n")
    (home / "plan.json").write_text("{}")
    (home / "notes.txt").write_text("an administrator's")
    (tmp_path / "system/apiary-x-3.service").write_text("old")
    # Replica 0 is in a container from now on, 1 stays; 2 is stale and nobody removes it, 3 goes.
    files = [
        change(home / "replica-0.json", "{}"),
        change(home / "replica-1.json", "{}"),
        change(home / "replica-1.env", ""),
    ]
    stale = ["apiary-x-3.service"]
    gone = unit_files.leftovers(places, str(home), files, stale)
    assert sorted(item.path for item in gone) == sorted(
        [
            str(tmp_path / "system/apiary-x-3.service"),
            str(home / "replica-0.env"),
            str(home / "replica-3.env"),
            str(home / "replica-3.json"),
        ]
    )


def test_a_secret_without_a_value_keeps_its_file(tmp_path):
    (tmp_path / "KEY").write_text("old")
    (tmp_path / "KEY").chmod(0o600)
    changes, wrong = unit_files.secret_changes(str(tmp_path), "x", ["KEY"], {})
    assert ([item.changed for item in changes], wrong) == ([False], [])


def test_an_open_secret_file_is_closed(tmp_path):
    (tmp_path / "KEY").write_text("old")
    (tmp_path / "KEY").chmod(0o644)
    ((change,), _wrong) = unit_files.secret_changes(str(tmp_path), "x", ["KEY"], {"KEY": "old"})
    assert (change.changed, change.mode_after) == (True, "0600")


def test_a_secret_that_is_named_no_longer_goes(tmp_path):
    (tmp_path / "OLD").write_text("old")
    (change,), wrong = unit_files.secret_changes(str(tmp_path), "x", [], {})
    assert (change.after, change.secret, wrong) == (None, True, [])


@pytest.mark.parametrize(
    ("names", "values", "code"),
    [
        (["KEY"], {}, "REPLICA-SECRET-MISSING"),
        (["KEY"], {"KEY": ""}, "REPLICA-SECRET-VALUE"),
        (["KEY"], {"KEY": None}, "REPLICA-SECRET-VALUE"),
        (["KEY"], {"KEY": "\n"}, "REPLICA-SECRET-VALUE"),
        (["KEY"], {"KEY": "x\n\n"}, "REPLICA-SECRET-VALUE"),
        (["KEY"], {"KEY": "x\ry"}, "REPLICA-SECRET-VALUE"),
        (["KEY"], {"KEY": "x\x7f"}, "REPLICA-SECRET-VALUE"),
        (["KEY"], {"KEY": "x\x85y"}, "REPLICA-SECRET-VALUE"),
        (["KEY"], {"KEY": "x\u20ac"}, "REPLICA-SECRET-VALUE"),
        (["KEY"], {"KEY": "x\0y"}, "REPLICA-SECRET-VALUE"),
        (["KEY"], {"KEY": 12345678}, "REPLICA-SECRET-VALUE"),
    ],
)
def test_what_is_wrong_with_secrets_is_a_finding(tmp_path, names, values, code):
    _changes, wrong = unit_files.secret_changes(str(tmp_path), "x", names, values)
    assert [finding.code for finding in wrong] == [code]


@pytest.mark.parametrize(
    ("before", "after", "turn"),
    [
        ("old", ["old", "new"], "same"),
        ("old\nnew", "new", "accepted"),
        ("old\nnew", ["new", "old"], "accepted"),
        ("old", "new", "other"),
        (None, ["new"], "other"),
    ],
)
def test_keys_may_be_several_and_routers_show_the_first(tmp_path, before, after, turn):
    if before is not None:
        (tmp_path / "VLLM_API_KEY").write_text(before)
    values = {"VLLM_API_KEY": after}
    ((change,), wrong) = unit_files.secret_changes(str(tmp_path), "x", [*values], values)
    assert (change.after, wrong) == ("\n".join([after] if isinstance(after, str) else after), [])
    assert unit_files.turn_of(change) == turn


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("VLLM_API_KEY", []),
        ("VLLM_API_KEY", ["good", ""]),
        ("VLLM_API_KEY", ["good", "two words"]),
        ("VLLM_API_KEY", ["good", "-flag"]),
        ("VLLM_API_KEY", ["good", 7]),
        ("VLLM_API_KEY", ["good", "x\ny"]),
        ("HF_TOKEN", ["one", "two"]),  # only engines' keys are several
    ],
)
def test_lists_that_are_no_keys_are_refused(tmp_path, name, value):
    _changes, wrong = unit_files.secret_changes(str(tmp_path), "x", [name], {name: value})
    assert [finding.code for finding in wrong] == ["REPLICA-SECRET-VALUE"]
    assert "good" not in wrong[0].message


def test_a_refused_secret_is_not_shown(tmp_path):
    _changes, (finding,) = unit_files.secret_changes(
        str(tmp_path), "x", ["KEY"], {"KEY": "planted\x07value"}
    )
    assert "planted" not in str(finding)


@pytest.mark.parametrize("end", ["", "\n", "\r\n"])
def test_the_line_end_of_a_file_is_no_part_of_a_secret(tmp_path, end):
    (change,), wrong = unit_files.secret_changes(
        str(tmp_path), "x", ["KEY"], {"KEY": "x\u00e4 y" + end}
    )
    assert (change.after, wrong) == ("x\u00e4 y", [])


def grow(root, *paths):
    for path in paths:
        where = root / path
        where.parent.mkdir(parents=True, exist_ok=True)
        where.write_text("")


def test_all_of_a_deployment_is_found_and_nothing_of_others(tmp_path):
    grow(
        tmp_path,
        "etc/systemd/system/apiary-x-0.service",
        "etc/systemd/system/apiary-x.target",
        "etc/systemd/system/apiary-x-0.service.d/mine.conf",
        "etc/systemd/system/apiary.slice",
        "etc/systemd/system/apiary-xy-0.service",
        "etc/containers/systemd/apiary-x-1.container",
        "etc/apiary/x/plan.json",
        "etc/apiary/xy/plan.json",
        "var/lib/apiary/releases/x/current",
        "var/cache/apiary-x-0/home/kernel",
        "var/cache/apiary-xy-0/home/kernel",
        "usr/libexec/apiary/launch",
        "usr/libexec/apiary/weights-check",
    )
    found = replicas.remains_of(str(tmp_path), "x", caches=False)
    assert found.units == ["apiary-x-0.service", "apiary-x-1.service", "apiary-x.target"]
    relative = [path[len(str(tmp_path)) + 1 :] for path in found.paths]
    assert relative == [
        "etc/systemd/system/apiary-x-0.service",
        "etc/containers/systemd/apiary-x-1.container",
        "etc/systemd/system/apiary-x.target",
        "etc/apiary/x",
        "var/lib/apiary/releases/x",
    ]
    with_caches = replicas.remains_of(str(tmp_path), "x", caches=True).paths
    assert set(with_caches) - set(found.paths) == {str(tmp_path / "var/cache/apiary-x-0")}


def test_the_last_deployment_takes_the_supervisor_along(tmp_path):
    grow(tmp_path, "etc/systemd/system/apiary-x-0.service", "etc/systemd/system/apiary.slice")
    grow(tmp_path, "usr/libexec/apiary/launch", "usr/libexec/apiary/weights-check")
    grow(tmp_path, "usr/libexec/apiary/container", "usr/libexec/apiary/seccomp.json")
    found = replicas.remains_of(str(tmp_path), "x", caches=False).paths
    for name in ("launch", "container", "seccomp.json"):
        assert str(tmp_path / "usr/libexec/apiary" / name) in found
    assert str(tmp_path / "etc/systemd/system/apiary.slice") in found
    assert str(tmp_path / "usr/libexec/apiary/weights-check") not in found


def test_caches_that_stay_are_closed_to_the_next_owner_of_their_number(tmp_path, monkeypatch):
    grow(tmp_path, "var/cache/apiary-x-0/home/kernel", "var/cache/apiary-xy-0/home/kernel")
    assert replicas.remains_of(str(tmp_path), "x", caches=False).kept == ()
    monkeypatch.setattr(replicas.os, "getuid", lambda: 4711)
    kept = replicas.remains_of(str(tmp_path), "x", caches=False).kept
    assert kept == (str(tmp_path / "var/cache/apiary-x-0"),)
    assert replicas.remains_of(str(tmp_path), "x", caches=True).kept == ()


def test_nothing_is_found_where_nothing_is(tmp_path):
    remains = replicas.remains_of(str(tmp_path), "x", caches=True)
    assert (remains.units, remains.paths) == ([], [])
