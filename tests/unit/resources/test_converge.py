# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Converge: two passes, order, dependants in check mode, refusals, failures, aborted runs."""

import os

import pytest
from ansible_collections.apiary.instinct.plugins.module_utils.resources import converge as framework


class Killed(BaseException):
    """What ends a run without a word."""


@pytest.fixture
def service(host):
    """A unit's file, the unit, and a command that follows another file."""
    unit = host.path("etc/systemd/system/a.service")
    config = host.path("etc/a.conf")
    return [
        {"kind": "file", "path": unit, "content": "[Service]\n", "role": "r"},
        {"kind": "file", "path": config, "content": "a = 1\n", "role": "r"},
        {"kind": "command", "argv": ["take", "it"], "after": [f"file {config}"], "role": "r"},
        {
            "kind": "service",
            "name": "a.service",
            "enabled": True,
            "state": "started",
            "restart_after": [f"file {unit}", f"file {config}"],
            "role": "r",
        },
    ]


EVERYTHING = ["take it", "daemon-reload", "enable -- a.service", "start -- a.service"]


def test_a_second_run_changes_nothing(host, service):
    first = host.converge(*service)
    assert sorted(host.commands) == sorted(EVERYTHING)
    assert first["changed"]
    assert host.converge(*service)["resources"] == []
    assert host.commands == []
    assert not any((host.root / "due").iterdir())


def test_check_mode_reports_what_a_run_then_does(host, service):
    checked = host.check(*service)
    assert host.commands == []
    assert not (host.root / "etc").exists()
    applied = host.converge(*service)
    assert checked["resources"] == applied["resources"]
    assert [report["role"] for report in checked["resources"]] == ["r"] * 4


def test_a_change_restarts_what_follows_it(host, service):
    host.converge(*service)
    service[1]["content"] = "a = 2\n"
    assert host.converge(*service)["changed"]
    assert host.commands == ["take it", "restart -- a.service"]


def test_a_unit_that_nothing_brings_refuses_the_list_before_anything_is_changed(host, service):
    wrong = {"kind": "service", "name": "other.service", "enabled": True}
    result = host.converge(*service, wrong)
    assert result["failed"]
    assert not result["changed"]
    assert [item["code"] for item in result["findings"]] == ["HOST-UNIT"]
    assert not (host.root / "etc").exists()
    checked = host.check(*service, wrong)
    assert checked["failed"]
    assert [report["resource"] for report in checked["resources"]][-2:] == [
        "service a.service",
        "service other.service",
    ]


def test_a_failure_reports_what_was_done_and_what_was_not_tried(host, service):
    host.failing["take it"] = (3, "", "no room")
    result = host.converge(*service)
    assert result["failed"]
    assert result["changed"]
    assert [report["resource"].split()[0] for report in result["resources"]] == ["file", "file"]
    assert result["failed_resource"] == "command take it"
    assert result["not_tried"] == ["service a.service"]
    assert "HOST-COMMAND: take it: ended with 3: no room" in result["msg"]
    assert "  not tried: service a.service" in result["msg"]
    assert host.commands == ["daemon-reload", "take it"]
    del host.failing["take it"]
    host.converge(*service)
    assert host.commands == ["take it", "enable -- a.service", "start -- a.service"]


@pytest.mark.parametrize("killed_at", range(30))
def test_a_run_that_was_killed_is_completed_by_the_next(host, service, monkeypatch, killed_at):
    host.converge(*service)
    service[0]["content"] += "# new\n"
    service[1]["content"] = "a = 2\n"
    steps = iter(range(killed_at))
    effects = []

    def killing(function):
        def stepping(*arguments, **options):
            for instant in ("before", "after"):
                if next(steps, None) is None:
                    raise Killed
                if instant == "before":
                    result = function(*arguments, **options)
            effects.append(function.__name__)
            return result

        return stepping

    with monkeypatch.context() as patched:
        for name in ("rename", "unlink"):
            patched.setattr(os, name, killing(getattr(os, name)))
        patched.setattr(framework.Host, "mark", killing(framework.Host.mark))
        patched.setattr(host, "run_command", _killed_at_effects(host, killing))
        try:
            host.converge(*service)
            killed = False
        except Killed:
            killed = True
    if not killed:
        assert killed_at >= 2 * len(effects)
    done = list(host.commands)
    # As systemd itself says it of a unit whose file was written since.
    unread = (host.root / "etc/systemd/system/a.service").read_text() != "[Service]\n"
    host.units["a.service"]["reload"] = "yes" if unread and "daemon-reload" not in done else "no"
    host.converge(*service)
    assert (host.root / "etc/a.conf").read_text() == "a = 2\n"
    for command in ("take it", "daemon-reload", "restart -- a.service"):
        assert command in done + host.commands
    assert host.converge(*service)["changed"] is False


def _killed_at_effects(host, killing):
    stepping = killing(host.run_command)

    def run(argv):
        looking = argv[0] == "systemctl" and argv[2] in ("show", "is-enabled")
        return host.__class__.run_command(host, argv) if looking else stepping(argv)

    return run


@pytest.mark.parametrize(
    ("resources", "message"),
    [
        ([{"kind": "wish"}], "wish: is no kind of resource"),
        ([{"kind": "file"}], "missing required arguments: path"),
        ([{"kind": "file", "path": "/a", "colour": "red"}], "colour"),
        ([{"kind": "file", "path": "/a"}] * 2, "file /a: is listed twice"),
        ([{"kind": "file", "path": "/a", "content": "x" * 1048577}], "expected at most 1048576"),
        ([{"kind": "file", "path": "/a", "secret": "token"}], "its secret token was not passed"),
    ],
)
def test_a_wrong_list_is_one_finding(host, resources, message):
    result = host.converge(*resources)
    assert [item["code"] for item in result["findings"]] == ["HOST-RESOURCES"]
    assert message in result["msg"]
    assert not result.get("changed")


def test_a_secret_is_written_and_never_shown(host):
    path = host.path("etc/token")
    resource = {"kind": "file", "path": path, "secret": "token", "mode": "0600"}
    result = host.converge(resource, secrets={"token": "hunter2-and-more"})
    assert (host.root / "etc/token").read_text() == "hunter2-and-more"
    assert os.stat(path).st_mode & 0o777 == 0o600
    assert result["diff"][0]["after"] == "a secret\n"
    assert "hunter2" not in str(result)
    assert result["invocation"] == {}
