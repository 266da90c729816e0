# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""One call says what several modules would change, and a refusal of one ends no other."""

import os
import pwd

import pytest
from ansible_collections.apiary.instinct.plugins.modules import (
    host_check,
    host_files,
    live_settings,
)

from support.modules import run_module


@pytest.fixture
def ask(capsys):
    def ask(*steps, **more):
        asked = [
            {"concern": concern, "module": module, "arguments": arguments}
            for concern, module, arguments in steps
        ]
        return run_module(host_check, capsys, steps=asked, **more)["steps"]

    return ask


@pytest.fixture
def systemd(monkeypatch):
    """Units by name with what is-enabled and ActiveState say."""
    units = {}

    def run_command(_module, argv, **_options):
        name = argv[-1]
        enabled, active = units.get(name, ("", "inactive"))
        if "is-enabled" in argv:
            return (0 if enabled in ("enabled", "static", "alias") else 1), enabled + "\n", ""
        return 0, active + "\n", ""

    monkeypatch.setattr(host_check.AnsibleModule, "run_command", run_command)
    return units


def services(*wanted):
    return "tuning", "services", {"services": list(wanted)}


def test_each_module_says_what_it_says_itself_in_check_mode(ask, capsys, tmp_path):
    (tmp_path / "value").write_text("1\n")
    (tmp_path / "file").write_text("old\n")
    live = {
        "settings": [{"path": str(tmp_path / "value"), "value": "0"}],
        "remember": str(tmp_path / "memory"),
    }
    files = {"files": [{"path": str(tmp_path / "file"), "content": "new\n", "mode": "0644"}]}
    told = ask(("tuning", "live_settings", live), ("tuning", "host_files", files))
    for answer, module, arguments in zip(
        told, (live_settings, host_files), (live, files), strict=True
    ):
        alone = run_module(module, capsys, check_mode=True, **arguments)
        assert answer["changed"] is alone["changed"] is True
        assert answer["diff"] == alone["diff"]
    assert (tmp_path / "value").read_text() == "1\n"
    assert (tmp_path / "file").read_text() == "old\n"


def test_what_is_right_changes_nothing(ask, tmp_path):
    (tmp_path / "file").write_text("right\n")
    (tmp_path / "file").chmod(0o644)
    files = {"files": [{"path": str(tmp_path / "file"), "content": "right\n"}]}
    (told,) = ask(("rocm", "host_files", files))
    assert not told["changed"]
    assert told["diff"] == []


def test_a_refusal_ends_no_other_step(ask, tmp_path):
    absent = {
        "settings": [{"path": str(tmp_path / "absent"), "value": "0"}],
        "remember": str(tmp_path / "memory"),
    }
    files = {"files": [{"path": str(tmp_path / "file"), "content": "new\n"}]}
    first, second = ask(("tuning", "live_settings", absent), ("tuning", "host_files", files))
    assert "HOST-LIVE-SETTING" in first["failure"]
    assert not first["changed"]
    assert second["failure"] is None
    assert second["changed"]


def test_arguments_that_a_module_would_not_take_are_a_failure(ask):
    (told,) = ask(("tuning", "live_settings", {"settings": []}))
    assert "remember" in told["failure"]


def test_secrets_come_apart_and_are_in_no_answer(ask, tmp_path):
    resource = {"kind": "file", "path": str(tmp_path / "key"), "secret": "API_KEY"}
    secrets = {"replicas:x": {"API_KEY": "hunter-two-is-long"}}
    (told,) = ask(("replicas:x", "converge", {"resources": [resource]}), secrets=secrets)
    assert told["changed"]
    assert "hunter-two" not in repr(told)
    (lacking,) = ask(("replicas:y", "converge", {"resources": [resource]}), secrets=secrets)
    assert lacking["findings"]


def test_units_go_by_the_rules_of_ansible_s_own_module(ask, systemd):
    systemd["a.service"] = ("enabled", "active")
    systemd["b.service"] = ("disabled", "failed")
    systemd["c.service"] = ("alias", "deactivating")
    (told,) = ask(
        services(
            {"name": "a.service", "enabled": True, "state": "started"},
            {"name": "b.service", "enabled": True, "state": "started"},
            {"name": "c.service", "enabled": True, "state": "stopped"},
            {"name": "a.service", "enabled": False, "state": "restarted"},
        )
    )
    assert told["steps"] == [
        "enable b.service",
        "start b.service",
        "enable c.service",
        "stop c.service",
        "disable a.service",
        "restart a.service",
    ]


def test_a_right_unit_is_left_alone(ask, systemd):
    systemd["a.service"] = ("enabled", "activating")
    (told,) = ask(services({"name": "a.service", "enabled": True, "state": "started"}))
    assert (told["changed"], told["steps"]) == (False, [])


def test_a_user_is_compared_by_home_and_shell(ask):
    me = pwd.getpwuid(os.getuid())
    right = {"name": me.pw_name, "home": me.pw_dir, "shell": me.pw_shell}
    same, other, absent = ask(
        ("replicas:x", "user", right),
        ("replicas:x", "user", {**right, "home": "/elsewhere"}),
        ("replicas:x", "user", {"name": "no-such-user-here"}),
    )
    assert not same["changed"]
    assert other["steps"] == [f"have /elsewhere as home of {me.pw_name}"]
    assert absent["steps"] == ["create the user no-such-user-here"]


def test_a_program_that_is_not_there_ends_no_other_step(ask, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    files = {"files": [{"path": str(tmp_path / "file"), "content": "new\n"}]}
    first, second = ask(
        services({"name": "a.service", "enabled": True}), ("tuning", "host_files", files)
    )
    assert "No such file" in first["failure"]
    assert second["changed"]


def test_a_look_that_meets_what_nobody_expects_ends_no_other_step(ask, tmp_path):
    files = {"files": [{"path": str(tmp_path / "file"), "content": "new\n"}]}
    setting = {"settings": [{"path": str(tmp_path / "bytes"), "value": "0"}]}
    (tmp_path / "bytes").write_bytes(b"\xff\n")
    first, second = ask(
        ("tuning", "live_settings", {**setting, "remember": str(tmp_path / "memory")}),
        ("tuning", "host_files", files),
    )
    assert first["failure"].startswith("live_settings: ")
    assert second["changed"]
