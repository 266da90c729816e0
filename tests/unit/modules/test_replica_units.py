# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

import json
import os
import stat

import pytest
from ansible.module_utils.testing import patch_module_args
from ansible_collections.apiary.instinct.plugins.modules import replica_units

SERVICE, OTHER, TARGET = "apiary-x-0.service", "apiary-x-1.service", "apiary-x.target"


class Systemd:
    """The answers of systemctl to one module run, and what it was told."""

    def __init__(self, broken=()):
        self.told = []
        self.enabled, self.active, self.broken = set(), set(), set(broken)

    def run_command(self, command):
        if command[0] == "journalctl":
            return 0, "the engine's last words\n", ""
        verb, *rest = command[2:]
        names = rest[rest.index("--") + 1 :] if "--" in rest else []
        if verb == "show":
            blocks = (
                f"Id={name}\nActiveState={'active' if name in self.active else 'inactive'}\n"
                f"UnitFileState={'enabled' if name in self.enabled else 'disabled'}\n"
                "NeedDaemonReload=no\n"
                for name in names
            )
            return 0, "\n".join(blocks), ""
        self.told.append((verb, *names))
        if verb == "enable":
            self.enabled |= set(names)
        if verb in ("start", "restart"):
            self.active = (self.active | set(names)) - self.broken
            return (1 if self.broken & set(names) else 0), "", ""
        if verb == "disable":
            self.enabled -= set(names)
            self.active -= set(names)
        return 0, "", ""


@pytest.fixture
def run(tmp_path, capsys, monkeypatch):
    def run(systemd, content="[Service]\n", check=False, services=(SERVICE,), below=""):
        monkeypatch.setattr(
            replica_units.AnsibleModule,
            "run_command",
            lambda _module, line: systemd.run_command(line),
        )
        arguments = {
            "files": [
                {"path": str(tmp_path / below / name), "mode": "0644", "content": content}
                for name in (*services, TARGET)
            ],
            "services": list(services),
            "target": TARGET,
            "stale_pattern": r"apiary-x-[0-9]+\.service",
            "unit_directory": str(tmp_path),
            "_ansible_check_mode": check,
            "_ansible_remote_tmp": str(tmp_path / "tmp"),
        }
        with patch_module_args(arguments), pytest.raises(SystemExit):
            replica_units.main()
        return json.loads(capsys.readouterr().out)

    return run


def test_a_fresh_host_is_written_enabled_and_started(run, tmp_path):
    systemd = Systemd()
    result = run(systemd)
    assert result["changed"]
    assert (tmp_path / SERVICE).read_text() == "[Service]\n"
    assert stat.S_IMODE((tmp_path / SERVICE).stat().st_mode) == 0o644
    assert [told[0] for told in systemd.told] == [
        "daemon-reload",
        "enable",
        "reset-failed",
        "start",
    ]


def test_a_strict_umask_closes_nothing_to_the_service_user(run, tmp_path):
    before = os.umask(0o077)
    try:
        run(Systemd(), below="apiary/x")
    finally:
        os.umask(before)
    for path in ("apiary", "apiary/x"):
        assert stat.S_IMODE((tmp_path / path).stat().st_mode) == 0o755


def test_second_run_changes_nothing(run):
    systemd = Systemd()
    run(systemd)
    systemd.told.clear()
    result = run(systemd)
    assert not result["changed"]
    assert systemd.told == []


def test_check_mode_predicts_and_touches_nothing(run, tmp_path):
    systemd = Systemd()
    result = run(systemd, check=True)
    assert result["changed"]
    assert result["started"] == [SERVICE, TARGET]
    assert f"start: {SERVICE} {TARGET}\n" in result["diff"][0]["prepared"]
    assert result["diff"][1]["after"] == "[Service]\n"
    assert systemd.told == []
    assert not (tmp_path / SERVICE).exists()


def test_units_of_an_earlier_plan_go(run, tmp_path):
    (tmp_path / "apiary-x-1.service").write_text("old\n")
    systemd = Systemd()
    result = run(systemd)
    assert result["removed"] == ["apiary-x-1.service"]
    assert not (tmp_path / "apiary-x-1.service").exists()
    assert systemd.told[0] == ("disable", "apiary-x-1.service")


def test_a_changed_unit_is_restarted(run):
    systemd = Systemd()
    run(systemd)
    systemd.told.clear()
    assert run(systemd, content="[Service]\nNice=1\n")["restarted"] == [SERVICE]
    assert ("restart", SERVICE) in systemd.told


def test_a_unit_whose_turn_never_came_is_left_to_the_next_run(run, tmp_path):
    """Unit 0 fails to restart: unit 1 must still differ on disk, or nobody would restart it."""
    systemd = Systemd()
    run(systemd, services=[SERVICE, OTHER])
    systemd.broken = {SERVICE}
    assert run(systemd, content="[Service]\nNice=1\n", services=[SERVICE, OTHER])["failed"]
    assert (tmp_path / OTHER).read_text() == "[Service]\n"
    systemd.broken = set()
    again = run(systemd, content="[Service]\nNice=1\n", services=[SERVICE, OTHER])
    assert again["restarted"] == [OTHER]


def test_a_replica_that_does_not_start_ends_with_its_last_words(run):
    result = run(Systemd(broken=[SERVICE]))
    assert result["failed"]
    assert "REPLICA-START-FAILED" in result["msg"]
    assert "the engine's last words" in result["msg"]
