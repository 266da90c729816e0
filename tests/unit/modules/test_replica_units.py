# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

import json
import os
import stat

import pytest
from ansible.module_utils.testing import patch_module_args
from ansible_collections.apiary.instinct.plugins.module_utils.replicas import unit_apply
from ansible_collections.apiary.instinct.plugins.modules import (
    replica_absent,
    replica_secrets,
    replica_units,
)

SERVICE, OTHER, TARGET = "apiary-x-0.service", "apiary-x-1.service", "apiary-x.target"


class Systemd:
    """The answers of systemctl to one module run, and what it was told."""

    def __init__(self, broken=()):
        self.told = []
        self.enabled, self.active, self.broken = set(), set(), set(broken)
        self.runs, self.cut_at = {}, None

    def run_command(self, command):
        if command[0] == "journalctl":
            # As --reverse has it.
            assert "--reverse" in command
            return 0, "the engine's last words\nwhat it said before\n", ""
        verb, *rest = command[2:]
        names = rest[rest.index("--") + 1 :] if "--" in rest else []
        if verb == "show":
            blocks = (
                f"Id={name}\nActiveState={'active' if name in self.active else 'inactive'}\n"
                f"UnitFileState={'enabled' if name in self.enabled else 'disabled'}\n"
                f"NeedDaemonReload=no\nInvocationID={self.runs.get(name, '')}\n"
                for name in names
            )
            return 0, "\n".join(blocks), ""
        if verb == self.cut_at:
            raise KeyboardInterrupt
        self.told.append((verb, *names))
        if verb == "enable":
            self.enabled |= set(names)
        if verb == "start":
            self.runs |= {name: len(self.told) for name in names}
            self.active = (self.active | set(names)) - self.broken
            return (1 if self.broken & set(names) else 0), "", ""
        if verb == "disable":
            self.enabled -= set(names)
        if verb in ("disable", "stop"):
            self.active -= set(names)
        return 0, "", ""


def told(systemd, *verbs):
    return [words for words in systemd.told if words[0] in verbs]


@pytest.fixture
def warned(monkeypatch):
    """What modules warn of: in a controller's process it does not come with their result."""
    texts = []
    monkeypatch.setattr(replica_units.AnsibleModule, "warn", lambda _self, text: texts.append(text))
    return texts


@pytest.fixture
def run(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(unit_apply, "DUE", str(tmp_path / "due"))

    def run(systemd, content="[Service]\n", check=False, services=(SERVICE,), below="", **more):
        """``content`` is that of all units, or of each by its name."""
        monkeypatch.setattr(
            replica_units.AnsibleModule,
            "run_command",
            lambda _module, line: systemd.run_command(line),
        )
        arguments = {
            "files": [
                {
                    "path": str(tmp_path / below / name),
                    "mode": "0644",
                    "content": content if isinstance(content, str) else content[name],
                    **({} if name == TARGET else {"unit": name}),
                }
                for name in (*services, TARGET)
            ],
            "services": list(services),
            "target": TARGET,
            "stale_pattern": r"apiary-x-[0-9]+\.service",
            "unit_directory": str(tmp_path),
            "quadlet_directory": str(tmp_path / "quadlets"),
            **more,
            "_ansible_check_mode": check,
            "_ansible_remote_tmp": str(tmp_path / "tmp"),
        }
        ended = KeyboardInterrupt if systemd.cut_at else SystemExit
        with patch_module_args(arguments), pytest.raises(ended):
            replica_units.main()
        told = capsys.readouterr().out
        return json.loads(told) if told else None

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


def test_what_is_stopped_can_be_left_stopped(run, tmp_path):
    systemd = Systemd()
    outcome = run(systemd, start=False)
    assert (outcome["changed"], outcome["started"]) == (True, [])
    assert told(systemd, "start", "restart") == []
    assert not systemd.active


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
    assert told(systemd, "stop", "start") == [("stop", SERVICE), ("start", SERVICE)]


@pytest.mark.parametrize("change", ["restart", "move", "remove"])
def test_replicas_that_serve_are_not_interrupted_unless_allowed(run, warned, tmp_path, change):
    """Of two replicas that are up one would restart, both exchange GPUs, or one go."""
    systemd = Systemd()
    home = tmp_path / "etc/apiary/x"

    def files(services, gpus):
        units = [(tmp_path / name, "[Service]\n", name) for name in services]
        told = [
            (home / f"replica-{place}.json", document(name, gpus[place]), name)
            for place, name in enumerate(services)
        ]
        return [
            *[
                {"path": str(path), "mode": "0644", "content": text, "unit": name}
                for path, text, name in units + told
            ],
            {"path": str(home / "plan.json"), "mode": "0644", "content": "{}"},
            {"path": str(tmp_path / TARGET), "mode": "0644", "content": "[Unit]\n"},
        ]

    def document(name, gpu):
        return json.dumps({"unit": name, "gpus": [gpu]})

    both = (SERVICE, OTHER)
    run(systemd, services=both, files=files(both, ["0", "1"]), restart=False)
    services = (SERVICE,) if change == "remove" else both
    wanted = files(services, ["1", "0"] if change == "move" else ["0", "1"])
    if change == "restart":
        wanted[0]["content"] += "Nice=1\n"
    named = {"restart": SERVICE, "move": f"{SERVICE}, {OTHER}", "remove": OTHER}[change]
    systemd.told.clear()
    before = {path: path.read_text() for path in tmp_path.rglob("*") if path.is_file()}
    shown = run(systemd, services=services, files=wanted, restart=False, check=True)
    assert shown["changed"]
    assert f"REPLICA-SERVES: {named}: " in str(warned)
    refused = run(systemd, services=services, files=wanted, restart=False)
    assert refused["failed"]
    assert f"error: REPLICA-SERVES: {named}: " in refused["msg"]
    assert "playbooks/rollout.yml" in refused["msg"]
    assert "replicas_restart=true" in refused["msg"]
    assert systemd.told == []
    assert {path: path.read_text() for path in tmp_path.rglob("*") if path.is_file()} == before
    assert not run(systemd, services=services, files=wanted).get("failed")
    assert told(systemd, "stop", "disable")


def test_what_does_not_serve_is_changed_without_being_allowed_to_restart(run):
    systemd = Systemd()
    assert run(systemd, restart=False)["started"]
    systemd.active.clear()
    assert run(systemd, content="[Service]\nNice=1\n", restart=False)["started"]
    assert not run(systemd, content="[Service]\nNice=1\n", restart=False)["changed"]


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
    assert result["msg"].endswith("what it said before\nthe engine's last words")


@pytest.mark.parametrize("cut_at", ["daemon-reload", "stop", "start"])
def test_a_run_cut_off_between_file_and_restart_is_made_good(run, tmp_path, cut_at):
    systemd = Systemd()
    run(systemd)
    systemd.cut_at = cut_at
    run(systemd, content="[Service]\nNice=1\n")
    systemd.cut_at = None
    systemd.told.clear()
    asked = run(systemd, content="[Service]\nNice=1\n", check=True)
    assert asked["changed"]
    # Stopped already, it needs a start only.
    assert [SERVICE] in (asked["restarted"], asked["started"])
    done = run(systemd, content="[Service]\nNice=1\n")
    assert (done["restarted"], done["started"]) == (asked["restarted"], asked["started"])
    assert SERVICE in systemd.active
    assert ("start", SERVICE) in systemd.told
    assert not run(systemd, content="[Service]\nNice=1\n")["changed"]


def test_a_cut_off_run_is_no_matter_when_the_replica_started_anew_since(run):
    systemd = Systemd()
    run(systemd)
    systemd.cut_at = "stop"
    run(systemd, content="[Service]\nNice=1\n")
    systemd.cut_at = None
    systemd.runs[SERVICE] = "another"
    assert not run(systemd, content="[Service]\nNice=1\n")["changed"]


def test_only_the_replicas_whose_turn_it_is_are_touched(run, tmp_path):
    systemd = Systemd()
    run(systemd, services=[SERVICE, OTHER])
    (tmp_path / "apiary-x-2.service").write_text("stale\n")
    new = {SERVICE: "new\n", OTHER: "new\n", TARGET: "new\n"}
    first = run(systemd, content=new, services=[SERVICE, OTHER], only=[OTHER])
    assert (first["restarted"], first["removed"]) == ([OTHER], [])
    assert (tmp_path / SERVICE).read_text() == "[Service]\n"
    assert (tmp_path / TARGET).read_text() == "[Service]\n"
    assert (tmp_path / "apiary-x-2.service").exists()
    rest = run(systemd, content=new, services=[SERVICE, OTHER])
    assert (rest["restarted"], rest["removed"]) == ([SERVICE], ["apiary-x-2.service"])
    assert not run(systemd, content=new, services=[SERVICE, OTHER])["changed"]


def test_only_starts_what_does_not_run_and_not_the_target(run):
    systemd = Systemd()
    result = run(systemd, services=[SERVICE, OTHER], only=[OTHER])
    assert result["started"] == [OTHER]
    assert systemd.active == {OTHER}


def test_only_names_services(run):
    assert run(Systemd(), only=["apiary-y-0.service"])["failed"]


def test_what_is_outdated_is_restarted(run):
    systemd = Systemd()
    run(systemd)
    assert run(systemd, outdated=[SERVICE])["restarted"] == [SERVICE]


def test_a_change_of_runtime_stops_removes_and_starts(run, tmp_path):
    systemd = Systemd()
    run(systemd)
    systemd.told.clear()
    path = tmp_path / "quadlets/apiary-x-0.container"
    quadlet = {"path": str(path), "mode": "0644", "content": "[Container]\n", "unit": SERVICE}
    target = {"path": str(tmp_path / TARGET), "mode": "0644", "content": "[Service]\n"}
    result = run(systemd, files=[quadlet, target])
    assert result["restarted"] == [SERVICE]
    assert [told[0] for told in systemd.told] == [
        *("stop", "disable", "daemon-reload", "reset-failed", "start"),
    ]
    assert path.read_text() == "[Container]\n"
    assert not (tmp_path / SERVICE).exists()
    assert not run(systemd, files=[quadlet, target])["changed"]


@pytest.fixture
def give(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(unit_apply, "DUE", str(tmp_path / "due"))

    def give(systemd, values, check=False, names=("KEY",), **more):
        monkeypatch.setattr(
            replica_secrets.AnsibleModule,
            "run_command",
            lambda _module, line: systemd.run_command(line),
        )
        arguments = {
            "directory": str(tmp_path / "apiary/x/credentials"),
            "names": list(names),
            "values": values,
            "services": [SERVICE, OTHER],
            **more,
            "_ansible_check_mode": check,
            "_ansible_diff": True,
            "_ansible_remote_tmp": str(tmp_path / "tmp"),
        }
        with patch_module_args(arguments), pytest.raises(SystemExit):
            replica_secrets.main()
        told = capsys.readouterr().out
        assert not any(value in told for value in values.values())
        return json.loads(told)

    return give


def test_secrets_are_written_for_root_alone_and_shown_nowhere(give, tmp_path):
    result = give(Systemd(), {"KEY": "planted-key-1"})
    path = tmp_path / "apiary/x/credentials/KEY"
    assert path.read_text() == "planted-key-1"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert stat.S_IMODE(path.parent.parent.stat().st_mode) == 0o755
    assert (result["written"], result["outdated"]) == ([str(path)], [])
    assert not give(Systemd(), {"KEY": "planted-key-1"})["changed"]


def test_check_mode_tells_of_a_secret_and_writes_none(give, tmp_path):
    result = give(Systemd(), {"KEY": "planted-key-1"}, check=True)
    assert result["changed"]
    assert not (tmp_path / "apiary").exists()


def test_a_changed_secret_restarts_what_runs_with_the_old_one(run, give):
    systemd = Systemd()
    give(systemd, {"KEY": "planted-key-1"})
    run(systemd)
    assert give(systemd, {"KEY": "planted-key-2"}, check=True)["outdated"] == [SERVICE]
    assert not run(systemd, check=True)["changed"]
    assert give(systemd, {"KEY": "planted-key-2"})["outdated"] == [SERVICE]
    # Without being told: the mark says so, whatever became of the run that wrote the secret.
    assert run(systemd)["restarted"] == [SERVICE]
    assert not run(systemd)["changed"]


def test_another_secret_is_not_given_to_what_serves_unless_allowed(run, give, warned, tmp_path):
    systemd = Systemd()
    give(systemd, {"KEY": "planted-key-1"}, restart=False)
    run(systemd)
    refused = give(systemd, {"KEY": "planted-key-2"}, restart=False)
    assert f"REPLICA-SERVES: {SERVICE}: " in refused["msg"]
    assert (tmp_path / "apiary/x/credentials/KEY").read_text() == "planted-key-1"
    give(systemd, {"KEY": "planted-key-2"}, check=True, restart=False)
    assert f"REPLICA-SERVES: {SERVICE}: " in str(warned)
    assert not run(systemd)["changed"]


def test_a_missing_secret_changes_nothing(give, tmp_path):
    assert "REPLICA-SECRET-MISSING" in give(Systemd(), {})["msg"]
    assert not (tmp_path / "apiary").exists()


@pytest.fixture
def remove(tmp_path, capsys, monkeypatch):
    def remove(systemd, check=False, **more):
        monkeypatch.setattr(
            replica_absent.AnsibleModule,
            "run_command",
            lambda _module, line: systemd.run_command(line),
        )
        arguments = {
            "deployment": "x",
            "root": str(tmp_path),
            **more,
            "_ansible_check_mode": check,
            "_ansible_remote_tmp": str(tmp_path / "tmp"),
        }
        with patch_module_args(arguments), pytest.raises(SystemExit):
            replica_absent.main()
        return json.loads(capsys.readouterr().out)

    return remove


def test_a_deployment_is_stopped_and_taken_away(remove, tmp_path):
    for path in (
        f"etc/systemd/system/{SERVICE}",
        f"etc/systemd/system/{TARGET}",
        "etc/apiary/x/credentials/KEY",
        "usr/libexec/apiary/apiary_launch/main.py",
        "var/cache/apiary-x-0/home/kernel",
    ):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text("")
    systemd = Systemd()
    asked = remove(systemd, check=True)
    assert asked["changed"]
    assert systemd.told == []
    done = remove(systemd)
    assert done["removed"] == asked["removed"]
    assert systemd.told[0] == ("stop", SERVICE, TARGET)
    assert ("disable", SERVICE, TARGET) in systemd.told
    left = sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file())
    assert left == ["var/cache/apiary-x-0/home/kernel"]
    assert not remove(Systemd())["changed"]
    assert remove(Systemd(), caches=True)["removed"] == [str(tmp_path / "var/cache/apiary-x-0")]
