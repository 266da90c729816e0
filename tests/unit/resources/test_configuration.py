# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A service's configuration: checked aside, put in place, taken by the service, or restored."""

import stat
from functools import partial
from pathlib import Path

import pytest
from ansible.module_utils.basic import AnsibleModule
from ansible_collections.apiary.instinct.plugins.module_utils.resources import (
    configuration,
    file,
    service_uptake,
    types,
)
from ansible_collections.apiary.instinct.plugins.module_utils.resources.configuration import (
    fingerprint,
    read_by,
    uptake,
)
from ansible_collections.apiary.instinct.plugins.modules import converge

from support.modules import run_module

OURS = "# Managed by Apiary\n"


class Systemd:
    """systemd and a service's own program, as far as the kind runs them."""

    def __init__(self, root, run):
        self.root, self._run = root, run
        self.properties = {"ActiveState": "inactive", "UnitFileState": "disabled"}
        self.properties["LoadState"] = "loaded"
        self.commands, self.fails, self.refuses, self.read = [], (), "", []

    def path(self, name):
        return str(self.root / name)

    def run_command(self, argv):
        if argv[0] == "judge":
            text = Path(argv[-1]).read_text()
            key = Path(text.split("keys ")[-1].strip())
            self.read.append(key)
            assert key.exists()
            refuses = self.refuses and self.refuses in text
            return (1, "", f"{argv[-1]}: no\n") if refuses else (0, "", "")
        if argv[0] == "journalctl":
            return 0, "what the journal has\n", ""
        verb = argv[2]
        if verb == "show":
            return 0, "".join(f"{key}={value}\n" for key, value in self.properties.items()), ""
        self.commands.append(" ".join(word for word in argv[2:] if word != "--"))
        if verb in self.fails:
            return 1, "", "failed\n"
        if verb in ("start", "restart"):
            self.properties["ActiveState"] = "active"
        if verb == "enable":
            self.properties["UnitFileState"] = "enabled"
        if verb == "disable":
            self.properties |= {"ActiveState": "inactive", "UnitFileState": "disabled"}
        return 0, "", ""

    def converge(self, text=OURS, key="letters", check_mode=False, more=(), **options):
        """Run converge for the service; return its result."""
        self.commands.clear()
        keys = {"path": self.path("keys.map"), "content": "@secret:key@\n", "secrets": ["key"]}
        main = {"path": self.path("demo.conf"), "content": f"{text}keys {keys['path']}\n"}
        resource = {
            "kind": "configuration",
            "service": "demo.service",
            "main": main["path"],
            "check": ["judge", "-c"],
            "files": [{**keys, "mode": "0600"}, main, *more],
            **options,
        }
        return self._run(check_mode=check_mode, resources=[resource], secrets={"key": key})


@pytest.fixture
def service(capsys, tmp_path, monkeypatch):
    """A service whose files lie below a directory."""
    systemd = Systemd(tmp_path, partial(run_module, converge, capsys))
    run = lambda _module, argv, **_options: systemd.run_command(argv)  # noqa: E731
    monkeypatch.setattr(AnsibleModule, "run_command", run)
    monkeypatch.setattr(AnsibleModule, "get_bin_path", lambda _self, name, *_rest: name)
    monkeypatch.setattr(configuration, "STAMPS", str(tmp_path / "stamps"))
    monkeypatch.setattr(types, "DUE", str(tmp_path / "due"))
    monkeypatch.setattr(file, "ORIGINALS", str(tmp_path / "originals"))
    return systemd


def steps(result):
    return [step for report in result["resources"] for step in report["steps"]]


def test_a_service_is_configured_and_started_once(service):
    assert steps(service.converge()) == ["enable demo.service", "start demo.service"]
    assert service.commands == ["enable demo.service", "start demo.service"]
    assert stat.S_IMODE((service.root / "keys.map").stat().st_mode) == 0o600
    assert (service.root / "keys.map").read_text() == "letters\n"
    assert service.converge()["changed"] is False
    assert service.commands == []


def test_check_mode_reports_all_and_does_nothing(service):
    result = service.converge(check_mode=True)
    assert result["diff"][-1]["prepared"] == "enable demo.service\nstart demo.service\n"
    assert not (service.root / "demo.conf").exists()
    assert service.commands == []


def test_a_diff_of_a_secret_says_only_that_it_changes(service):
    service.converge(key="first-secret")
    result = service.converge(key="second-secret")
    assert steps(result) == ["reload demo.service"]
    assert "another secret" in str(result["diff"])
    assert "first-secret" not in str(result)
    assert "second-secret" not in str(result)


def test_a_secret_that_was_not_passed_is_refused(service):
    result = service.converge(key="")
    assert result["findings"][0]["code"] == "HOST-RESOURCES"
    assert not (service.root / "demo.conf").exists()


def test_a_change_reloads_and_a_file_that_nobody_reads_does_not(service):
    service.converge()
    note = {"path": service.path("note.json"), "content": "{}"}
    assert service.converge(more=[note])["changed"]
    assert service.commands == []
    service.converge(text=OURS + "more\n", more=[note])
    assert service.commands == ["reload demo.service"]


def test_owned_files_that_are_not_listed_are_removed(service):
    (service.root / "rules").mkdir()
    (service.root / "rules/old.yml").write_text("old")
    (service.root / "rules/other.txt").write_text("somebody's")
    new = {"path": service.path("rules/new.yml"), "content": "new"}
    service.converge(more=[new], owned=[service.path("rules/*.yml")])
    assert sorted(path.name for path in (service.root / "rules").iterdir()) == [
        "new.yml",
        "other.txt",
    ]
    service.converge(more=[new], owned=[service.path("rules/*.yml")], state="absent")
    assert [path.name for path in (service.root / "rules").iterdir()] == ["other.txt"]


def test_a_refused_configuration_changes_nothing(service):
    service.converge()
    service.refuses = "wrong"
    for check_mode in (True, False):
        result = service.converge(text=OURS + "wrong\n", check_mode=check_mode)
        assert result["findings"][0]["code"] == "ROUTER-CONFIG"
        assert f"{service.path('demo.conf')}: no" in result["msg"]
    assert "wrong" not in (service.root / "demo.conf").read_text()
    assert service.commands == []
    # The new files are seen together, aside, and are gone afterwards.
    assert service.read
    assert not any(path.exists() for path in service.read)


def test_a_reload_that_fails_restores_the_former_files(service):
    service.converge()
    service.fails = ("reload",)
    result = service.converge(text=OURS + "port taken\n")
    assert result["findings"][0]["code"] == "ROUTER-RELOAD"
    assert "what the journal has" in result["msg"]
    assert "port taken" not in (service.root / "demo.conf").read_text()
    service.fails = ()
    assert service.converge()["changed"] is False


def test_a_configuration_that_the_service_does_not_confirm_is_restored(service, monkeypatch):
    service.converge(confirm_url="")
    monkeypatch.setattr(service_uptake, "CONFIRM_SECONDS", 0)
    answers = {"confirm_url": "http://127.0.0.1:9/api", "area": "MONITORING"}
    result = service.converge(text=OURS + "more\n", **answers)
    assert result["findings"][0]["code"] == "MONITORING-RELOAD"
    assert "more" not in (service.root / "demo.conf").read_text()


def test_a_run_that_was_cut_off_before_its_reload_is_completed(service):
    service.converge()
    # So a run leaves it between writing and reloading.
    (service.root / "stamps/demo.service.config").write_text("taking")
    service.converge()
    assert service.commands == ["daemon-reload", "reload demo.service"]
    assert service.converge()["changed"] is False


def test_somebody_elses_configuration_is_kept_and_comes_back(service):
    main = service.root / "demo.conf"
    main.write_text("theirs\n")
    service.properties |= {"ActiveState": "active"}
    service.converge()
    assert service.commands == ["enable demo.service", "restart demo.service"]
    service.converge(text=OURS + "more\n", key="another")
    kept = [path for path in (service.root / "originals").rglob("*") if path.is_file()]
    assert [path.name for path in kept] == ["demo.conf"]
    service.converge(state="absent")
    assert service.commands == ["disable --now demo.service"]
    assert main.read_text() == "theirs\n"
    assert not (service.root / "keys.map").exists()
    assert service.converge(state="absent")["changed"] is False
    assert service.commands == []


def test_what_is_not_ours_is_left_alone(service):
    (service.root / "demo.conf").write_text("theirs\n")
    service.properties |= {"ActiveState": "active", "UnitFileState": "enabled"}
    assert service.converge(state="absent")["changed"] is False
    assert (service.root / "demo.conf").read_text() == "theirs\n"
    assert service.commands == []


ETC = "/etc/prometheus/apiary"
MAIN, RULES = f"{ETC}/prometheus.yml", f"{ETC}/rules/alerts.yml"
FLAGS = "/etc/systemd/system/prometheus.service.d/50-apiary.conf"
TEXTS = {FLAGS: "flags", RULES: "rules", MAIN: "rule_files: [rules/alerts.yml]"}


def changes(*changed):
    """All files, of which these differ from what the host has."""
    return [
        file.FileChange(path, "former" if path in changed else text, text, "0644", "0644")
        for path, text in TEXTS.items()
    ]


def verb(*changed, taken="", restarts=frozenset({FLAGS}), ours=True, active="active"):
    return uptake(changes(*changed), MAIN, {"ActiveState": active}, taken, ours, restarts)


def test_a_file_that_is_named_from_the_main_ones_directory_is_read():
    assert [item.path for item in read_by(changes(), MAIN)] == [RULES, MAIN]


@pytest.mark.parametrize(
    ("changed", "expected"),
    [((), None), ((RULES,), "reload"), ((MAIN,), "reload"), ((FLAGS,), "restart")],
)
def test_options_cost_a_restart_and_rules_a_reload(changed, expected):
    assert verb(*changed) == expected


def test_without_a_reload_every_file_costs_a_restart():
    assert verb(RULES, restarts=None) == "restart"
    assert verb(restarts=None) is None


def test_what_the_service_took_decides_what_it_is_told():
    before = fingerprint(changes(), MAIN, frozenset({FLAGS}))
    assert verb(taken=before) is None
    assert verb(taken="taking") == "restart"
    rules, flags = before.split()
    assert verb(taken=f"{rules} other") == "restart"
    assert verb(taken=f"other {flags}") == "reload"
    assert verb(taken=f"other {flags}", ours=False) == "restart"
    assert verb(active="failed") == "start"


def test_a_service_without_such_files_has_one_digest():
    assert " " not in fingerprint(changes(), MAIN)
