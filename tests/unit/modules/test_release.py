# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

import json
import os
import stat
import time

import pytest
from ansible_collections.apiary.instinct.plugins.module_utils.replicas import releases
from ansible_collections.apiary.instinct.plugins.module_utils.resources import release
from ansible_collections.apiary.instinct.plugins.modules import converge, rollout_info

from support.modules import run_module

UNIT, TARGET = "apiary-x-0.service", "apiary-x.target"
UNITS = {"services": [UNIT], "target": TARGET, "stale_pattern": "apiary-x-[0-9]+"}


def plan(version="0.33.0"):
    return json.dumps(
        {
            "deployment": {
                "name": "x",
                "engine": {"name": "vllm", "version": version, "image": None},
                "model": {"name": "a/b", "path": "/srv/models/a/b"},
            },
            "replicas": [{"unit": UNIT, "port": 8000, "gpus": ["0000:05:00.0"]}],
        }
    )


def files(content="[Service]\n", version="0.33.0"):
    return [
        {
            "path": f"/etc/systemd/system/{UNIT}",
            "mode": "0644",
            "content": content,
            "unit": UNIT,
        },
        {"path": "/etc/apiary/x/replica-0.env", "mode": "0640", "content": "A=1\n", "unit": None},
        {
            "path": "/etc/apiary/x/plan.json",
            "mode": "0644",
            "content": plan(version),
            "unit": None,
        },
    ]


@pytest.fixture
def run(tmp_path, capsys, monkeypatch):
    seconds = iter(range(1_790_000_000, 1_790_000_999))
    told = time.strftime
    # A second goes by from one run to the next.
    monkeypatch.setattr(
        release.time,
        "strftime",
        lambda form, *_when: told(form, time.gmtime(next(seconds))),
    )

    def run(content="[Service]\n", check_mode=False, **more):
        """Converge one release; return its links and what the module said."""
        resource = {"kind": "release", "deployment": "x", "directory": str(tmp_path), **more}
        texts = {}
        if "release" not in more:
            requested = more.get("files", files(content))
            texts = {item["path"]: item["content"] for item in requested}
            resource["files"] = [
                {key: value for key, value in item.items() if key != "content"}
                for item in requested
            ]
            resource["units"] = UNITS
        monkeypatch.setattr(release, "read", texts.get)
        result = run_module(converge, capsys, check_mode, resources=[resource])
        (report,) = result["resources"] or [{}]
        return {"current": None, "previous": None, **links(tmp_path), **report, **result}

    return run


def links(tmp_path):
    found = {}
    for name in ("current", "previous"):
        if os.path.islink(tmp_path / "x" / name):
            found[name] = os.readlink(tmp_path / "x" / name)
    return found


@pytest.fixture
def info(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(
        rollout_info.AnsibleModule,
        "run_command",
        lambda _module, _line: (0, f"Id={UNIT}\nActiveState=active\n", ""),
    )

    def info(**more):
        told = {
            "directory": str(tmp_path),
            "plan_directory": str(tmp_path / "etc"),
            "lock_directory": str(tmp_path / "locks"),
            "deployment": "x",
            **more,
        }
        return run_module(rollout_info, capsys, **told)

    return info


def names(tmp_path):
    return sorted(os.listdir(tmp_path / "x"))


def test_a_release_has_every_file_with_its_mode(run, tmp_path):
    done = run()
    assert done["changed"]
    assert done["previous"] is None
    place = tmp_path / "x" / done["current"]
    env = place / "files/etc/apiary/x/replica-0.env"
    assert env.read_text() == "A=1\n"
    assert stat.S_IMODE(env.stat().st_mode) == 0o640
    assert stat.S_IMODE((tmp_path / "x").stat().st_mode) == 0o700
    told = json.loads((place / "release.json").read_text())
    assert told["schema"] == "apiary.release/v1"
    assert told["engine"] == "vllm 0.33.0"
    assert told["model"] == "/srv/models/a/b"
    assert told["replicas"] == [{"unit": UNIT, "port": 8000}]
    assert os.readlink(tmp_path / "x/current") == done["current"]


def test_the_same_content_is_the_same_release(run, tmp_path):
    first = run()
    again = run()
    assert not again["changed"]
    assert again["current"] == first["current"]
    assert names(tmp_path) == [first["current"], "current"]


def test_the_order_of_the_files_does_not_count(run):
    run()
    assert not run(files=files()[::-1])["changed"]


def test_a_new_release_makes_the_old_one_the_previous(run, tmp_path):
    first, second = run(), run("[Service]\nNice=1\n")
    assert second["previous"] == first["current"]
    assert os.readlink(tmp_path / "x/previous") == first["current"]
    assert first["current"] < second["current"]


def test_content_of_an_earlier_release_is_that_release_again(run, tmp_path):
    first, second = run(), run("[Service]\nNice=1\n")
    back = run()
    assert back["changed"]
    assert (back["current"], back["previous"]) == (first["current"], second["current"])
    assert len(names(tmp_path)) == 4


def test_the_last_five_are_kept(run, tmp_path):
    made = [run(f"{number}\n")["current"] for number in range(7)]
    assert names(tmp_path) == [*made[2:], "current", "previous"]


def test_what_the_links_name_is_kept_in_any_case(run, tmp_path):
    made = [run(f"{number}\n")["current"] for number in range(4)]
    run(release=made[0], keep=1)
    assert set(names(tmp_path)) == {made[0], made[3], "current", "previous"}


def test_check_mode_says_the_same_and_touches_nothing(run, tmp_path):
    run()
    before = names(tmp_path)
    shown = run("[Service]\nNice=1\n", check_mode=True)
    assert names(tmp_path) == before
    assert shown["changed"]
    done = run("[Service]\nNice=1\n")
    # All but the second in which it was made.
    shown, done = (one["diff"][0]["after"].replace("Z-", "Z") for one in (shown, done))
    assert len(shown) == len(done)
    assert not run("[Service]\nNice=1\n", check_mode=True)["changed"]


def test_check_mode_on_a_fresh_host(run, tmp_path):
    assert run(check_mode=True)["changed"]
    assert not (tmp_path / "x").exists()


def test_an_interrupted_write_leaves_nothing_half(run, tmp_path, monkeypatch):
    first = run()
    real = os.rename
    monkeypatch.setattr(os, "rename", lambda *_paths: (_ for _ in ()).throw(OSError(28, "full")))
    broken = run("[Service]\nNice=1\n")
    assert broken["failed"]
    assert "RELEASE-UNWRITABLE" in broken["msg"]
    assert os.readlink(tmp_path / "x/current") == first["current"]
    assert any(name.startswith(".new-") for name in names(tmp_path))
    monkeypatch.setattr(os, "rename", real)
    assert run()["changed"]  # what was left is cleared away
    assert names(tmp_path) == [first["current"], "current"]


def test_a_run_that_died_before_the_links_is_taken_up(run, tmp_path, monkeypatch):
    first = run()
    with monkeypatch.context() as patch:
        patch.setattr(
            releases, "switch", lambda *_words: (_ for _ in ()).throw(OSError(5, "died", "x"))
        )
        assert run("[Service]\nNice=1\n")["failed"]
    done = run("[Service]\nNice=1\n")
    assert done["previous"] == first["current"]
    assert len(names(tmp_path)) == 4


def test_a_directory_without_its_record_is_no_release(run, tmp_path):
    first = run()
    (tmp_path / "x" / first["current"] / "release.json").unlink()
    done = run()
    assert done["changed"]
    assert (tmp_path / "x" / done["current"] / "release.json").exists()


@pytest.mark.parametrize("path", ["etc/x", "/etc/../x", "/etc//x"])
def test_a_path_that_leads_elsewhere_is_refused(run, path, tmp_path):
    done = run(files=[{"path": path, "mode": "0644", "content": ""}])
    assert "RELEASE-PATH" in done["msg"]
    assert not [one for one in names(tmp_path) if not one.startswith(".new-")]


def test_a_plan_that_is_none_is_refused(run):
    done = run(files=[{"path": "/etc/apiary/x/plan.json", "mode": "0644", "content": "{}"}])
    assert "RELEASE-PLAN" in done["msg"]


def test_a_kept_release_is_made_current_by_its_hash(run):
    first, second = run(), run("[Service]\nNice=1\n")
    back = run(release=first["current"].rpartition("-")[2])
    assert (back["current"], back["previous"]) == (first["current"], second["current"])
    assert not run(release=first["current"])["changed"]


def test_a_release_comes_back_as_it_went_in(run, info):
    first = run()
    run("[Service]\nNice=1\n", files=files("[Service]\nNice=1\n", "0.32.0"))
    found = info(release="previous")["release"]
    assert found["files"] == files()
    assert found["units"] == UNITS
    assert found["id"] == first["current"]


def test_a_rollback_done_twice_does_not_go_forward_again(run, info):
    first, second = run(), run("[Service]\nNice=1\n")
    assert info(release="rollback")["release"]["id"] == first["current"]
    run(release="previous")
    told = info(release="rollback")
    assert told["release"] is None
    assert (told["current"], told["previous"]) == (first["current"], second["current"])


def test_a_damaged_release_is_not_used(run, info, tmp_path):
    done = run()
    kept = tmp_path / "x" / done["current"] / "files/etc/apiary/x/replica-0.env"
    kept.write_text("A=2\n")
    assert "RELEASE-DAMAGED" in info(release="current")["msg"]
    kept.unlink()
    assert "RELEASE-DAMAGED" in info(release="current")["msg"]


@pytest.mark.parametrize(
    ("name", "code"), [("previous", "RELEASE-NONE"), ("0badc0de", "RELEASE-UNKNOWN")]
)
def test_a_release_that_is_not_kept_is_named(run, info, name, code):
    done = run()
    told = info(release=name)
    assert code in told["msg"]
    assert done["current"] in told["msg"]


def test_a_host_without_releases(info):
    told = info()
    assert told["releases"] == []
    assert told["current"] is None
    assert told["plan"] is None
    assert told["lock"] is None
    assert "RELEASE-NONE" in info(release="rollback")["msg"]


def test_what_runs_is_told(info, tmp_path):
    place = tmp_path / "etc/x"
    place.mkdir(parents=True)
    (place / "plan.json").write_text(plan())
    told = info()
    assert (told["serving"], told["stopped"]) == ([UNIT], [])
    assert told["plan"]["replicas"][0]["port"] == 8000


@pytest.mark.parametrize("state", ["inactive", "failed", "activating", "deactivating"])
def test_only_what_is_down_without_a_fault_was_stopped(info, tmp_path, monkeypatch, state):
    place = tmp_path / "etc/x"
    place.mkdir(parents=True)
    (place / "plan.json").write_text(plan())
    answer = (0, f"Id={UNIT}\nActiveState={state}\n", "")
    monkeypatch.setattr(rollout_info.AnsibleModule, "run_command", lambda _module, _line: answer)
    told = info()
    assert (told["serving"], told["stopped"]) == ([], [UNIT] if state == "inactive" else [])


@pytest.mark.parametrize("text", ["{", "[]", "{}"])
def test_a_plan_that_cannot_be_read_is_none(info, tmp_path, text):
    place = tmp_path / "etc/x"
    place.mkdir(parents=True)
    (place / "plan.json").write_text(text)
    assert info()["plan"] is None


@pytest.fixture
def stamped(tmp_path, run, monkeypatch):
    """Record some content at a time of the host's clock."""

    def stamped(content, stamp):
        monkeypatch.setattr(release.time, "strftime", lambda _form, *_when: stamp)
        return run(content)

    return stamped


def test_a_clock_that_was_set_back_does_not_turn_releases_around(stamped, info, run):
    first = stamped("one\n", "20270101T000000Z")["current"]
    second = stamped("two\n", "20260101T000000Z")
    assert second["previous"] == first
    assert info()["releases"] == [first, second["current"]]
    back = info(release="rollback")["release"]
    assert back["id"] == first
    run(release=first)
    assert info(release="rollback")["release"] is None
    assert not run(release=first)["changed"]


def test_what_is_removed_is_the_oldest_whatever_the_clock_said(stamped, info):
    names = [
        stamped(f"{year}\n", f"{year}0101T000000Z")["current"]
        for year in (2030, 2029, 2028, 2027, 2026, 2025, 2024)
    ]
    assert info()["releases"] == names[-5:]


def test_releases_of_an_earlier_version_come_first(stamped, info, tmp_path):
    names = [stamped(f"{n}\n", f"2027010{n}T000000Z")["current"] for n in (1, 2)]
    for name in names:
        path = tmp_path / "x" / name / "release.json"
        document = json.loads(path.read_text())
        del document["number"]
        path.chmod(0o600)
        path.write_text(json.dumps(document))
    assert info(release="rollback")["release"]["id"] == names[0]
    third = stamped("3\n", "20260101T000000Z")["current"]
    assert info()["releases"] == [*names, third]
    assert info(release="rollback")["release"]["id"] == names[1]
