# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A service's configuration: judged aside, put in place, taken, or brought back."""

import stat
from functools import partial
from pathlib import Path

import pytest
from ansible_collections.apiary.instinct.plugins.module_utils import service_config as pure
from ansible_collections.apiary.instinct.plugins.module_utils.replicas.units import FileChange
from ansible_collections.apiary.instinct.plugins.modules import service_config

from support.modules import run_module

OURS = "# Managed by Apiary\n"


class Systemd:
    """systemd and a service's own program, as far as the module asks them."""

    def __init__(self, directory):
        self.directory = directory
        self.properties = {"ActiveState": "inactive", "UnitFileState": "disabled"}
        self.properties["LoadState"] = "loaded"
        self.commands = []
        self.fails = ()
        self.refuses = ""

    def run(self, argv, **_options):
        if argv[0] == "judge":
            text = Path(argv[-1]).read_text()
            return (
                (1, "", f"{argv[-1]}: no\n")
                if self.refuses and self.refuses in text
                else (0, "", "")
            )
        if argv[0] == "journalctl":
            return 0, "what the journal has\n", ""
        command = argv[2:]
        if command[0] == "show":
            return 0, "".join(f"{key}={value}\n" for key, value in self.properties.items()), ""
        self.commands.append(" ".join(command))
        if command[0] in self.fails:
            return 1, "", "failed\n"
        if command[0] in ("start", "restart"):
            self.properties["ActiveState"] = "active"
        if command[0] == "enable":
            self.properties["UnitFileState"] = "enabled"
        if command[0] == "disable":
            self.properties |= {"ActiveState": "inactive", "UnitFileState": "disabled"}
        return 0, "", ""


@pytest.fixture
def service(capsys, tmp_path, monkeypatch):
    """The module over a service whose files lie below a directory."""
    systemd = Systemd(tmp_path)
    module = service_config.AnsibleModule
    monkeypatch.setattr(module, "run_command", lambda _self, argv, **options: systemd.run(argv))
    monkeypatch.setattr(module, "get_bin_path", lambda _self, name, *_rest: name)
    monkeypatch.setattr(pure, "STAMPS", str(tmp_path / "stamps"))
    monkeypatch.setattr(pure, "ORIGINALS", str(tmp_path / "originals"))
    monkeypatch.setattr(service_config.host_files, "ORIGINALS", str(tmp_path / "originals"))
    run = partial(
        run_module,
        service_config,
        capsys,
        service="demo.service",
        main=str(tmp_path / "demo.conf"),
        check=["judge", "-c"],
    )
    return systemd, run


def files(systemd, text=OURS, key="letters", **more):
    key_file = systemd.directory / "keys.map"
    main = {"path": str(systemd.directory / "demo.conf"), "content": f"{text}keys {key_file}\n"}
    return {"files": [main], "secrets": [{"path": str(key_file), "content": key}], **more}


def test_a_service_is_configured_and_started_once(service):
    systemd, run = service
    told = run(**files(systemd))
    assert told["action"] == "start"
    assert systemd.commands == ["enable demo.service", "start demo.service"]
    assert stat.S_IMODE((systemd.directory / "keys.map").stat().st_mode) == 0o600
    systemd.commands.clear()
    assert run(**files(systemd))["changed"] is False
    assert systemd.commands == []


def test_check_mode_tells_all_and_does_nothing(service):
    systemd, run = service
    told = run(**files(systemd), check_mode=True)
    assert told["changed"]
    assert told["diff"][0]["prepared"] == "enable: demo.service\nstart: demo.service\n"
    assert not (systemd.directory / "demo.conf").exists()
    assert systemd.commands == []


def test_of_a_secret_the_diff_says_only_that_it_changes(service):
    systemd, run = service
    run(**files(systemd, key="first-secret"))
    told = run(**files(systemd, key="second-secret"))
    assert told["action"] == "reload"
    assert "secret, new" in str(told["diff"])
    assert "first-secret" not in str(told)
    assert "second-secret" not in str(told)


def test_a_change_reloads_and_a_file_that_nobody_reads_does_not(service):
    systemd, run = service
    run(**files(systemd))
    systemd.commands.clear()
    other = {"path": str(systemd.directory / "note.json"), "content": "{}"}
    both = files(systemd)
    both["files"].append(other)
    assert run(**both)["written"] == [other["path"]]
    assert systemd.commands == []
    run(**files(systemd, text=OURS + "more\n"))
    assert systemd.commands == ["reload demo.service"]


def test_a_refused_configuration_changes_nothing(service):
    systemd, run = service
    run(**files(systemd))
    systemd.commands.clear()
    systemd.refuses = "wrong"
    for check_mode in (True, False):
        told = run(**files(systemd, text=OURS + "wrong\n"), check_mode=check_mode)
        assert "ROUTER-CONFIG" in told["msg"]
        assert f"{systemd.directory / 'demo.conf'}: no" in told["msg"]
    assert "wrong" not in (systemd.directory / "demo.conf").read_text()
    assert systemd.commands == []


def test_the_judge_sees_the_new_files_together_and_they_are_gone_afterwards(tmp_path):
    key = FileChange(str(tmp_path / "keys.map"), None, "new key", None, "0600")
    main = FileChange(str(tmp_path / "main"), None, f"read {key.path}\n", None, "0644")
    seen = []

    def run(argv):
        text = Path(argv[-1]).read_text()
        seen.append(text.split()[1])
        assert Path(seen[0]).read_text() == "new key"
        return 0, "", ""

    assert pure.judge([key, main], ["judge"], main.path, run) is None
    assert not (tmp_path / "keys.map").exists()
    with pytest.raises(FileNotFoundError):
        Path(seen[0]).read_text()


def test_a_reload_that_fails_brings_the_former_files_back(service):
    systemd, run = service
    run(**files(systemd))
    systemd.fails = ("reload",)
    told = run(**files(systemd, text=OURS + "port taken\n"))
    assert "ROUTER-RELOAD" in told["msg"]
    assert "what the journal has" in told["msg"]
    assert "port taken" not in (systemd.directory / "demo.conf").read_text()
    systemd.fails = ()
    assert run(**files(systemd))["changed"] is False


def test_a_run_that_ended_before_its_reload_is_made_up_for(service):
    systemd, run = service
    run(**files(systemd))
    systemd.commands.clear()
    # So the module leaves it between writing and reloading.
    (systemd.directory / "stamps/demo.service.config").write_text("taking")
    assert run(**files(systemd))["action"] == "reload"
    assert systemd.commands == ["reload demo.service"]
    assert run(**files(systemd))["changed"] is False


def test_somebody_elses_configuration_is_kept_and_comes_back(service):
    systemd, run = service
    main = systemd.directory / "demo.conf"
    main.write_text("theirs\n")
    systemd.properties |= {"ActiveState": "active"}
    assert run(**files(systemd))["action"] == "restart"
    run(**files(systemd, text=OURS + "more\n", key="another"))
    kept = [path for path in (systemd.directory / "originals").rglob("*") if path.is_file()]
    assert [path.name for path in kept] == ["demo.conf"]
    told = run(**files(systemd), state="absent")
    assert told["action"] == "disable and stop"
    assert main.read_text() == "theirs\n"
    assert not (systemd.directory / "keys.map").exists()
    systemd.commands.clear()
    assert run(**files(systemd), state="absent")["changed"] is False
    assert systemd.commands == []


def test_what_is_not_ours_is_left_alone(service):
    systemd, run = service
    (systemd.directory / "demo.conf").write_text("theirs\n")
    systemd.properties |= {"ActiveState": "active", "UnitFileState": "enabled"}
    assert run(**files(systemd), state="absent")["changed"] is False
    assert (systemd.directory / "demo.conf").read_text() == "theirs\n"
    assert systemd.commands == []


@pytest.mark.parametrize(
    ("active", "taken", "was_ours", "step"),
    [
        ("inactive", "", True, "start"),
        ("failed", "", False, "start"),
        ("active", "", True, None),
        ("active", "the same", True, None),
        ("active", "taking", True, "reload"),
        ("active", "taking", False, "restart"),
    ],
)
def test_what_the_service_is_told_follows_from_what_it_took(active, taken, was_ours, step):
    changes = [FileChange("/etc/main", OURS, OURS, "0644", "0644")]
    if taken == "the same":
        taken = pure.fingerprint(changes, "/etc/main")
    steps = pure.plan_steps(changes, "/etc/main", {"ActiveState": active}, taken, was_ours)
    assert steps.take == step
