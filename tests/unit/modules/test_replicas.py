# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The kind replicas: units and secrets of a deployment, and their absence."""

import copy
import json
import os
import shutil
import stat
import sys
from pathlib import Path

import pytest
from ansible.module_utils.testing import patch_module_args
from ansible_collections.apiary.instinct.plugins.module_utils.replicas import apply
from ansible_collections.apiary.instinct.plugins.module_utils.resources import types
from ansible_collections.apiary.instinct.plugins.modules import converge
from ansible_collections.apiary.instinct.plugins.plugin_utils.adapters import completed

from support.effects import killed_anywhere

SERVICE, OTHER, TARGET = "apiary-x-0.service", "apiary-x-1.service", "apiary-x.target"


class Systemd:
    """The answers of systemctl to one module run, and what it was told."""

    def __init__(self, broken=(), generated=None):
        self.told = []
        # The file of a unit that systemd has only after it has read it.
        self.generated, self.loaded = generated, False
        self.enabled, self.active, self.broken = set(), set(), set(broken)
        self.mended = set()
        self.runs, self.cut_at = {}, None
        # What the supervisor says at each of the first starts, which come to nothing.
        self.refusals = []

    def run_command(self, command, **_options):
        if command[0] == "journalctl":
            # As --reverse has it.
            assert "--reverse" in command
            refusal = self.refusals.pop(0) if self.refusals else ""
            if not self.refusals:
                self.broken -= self.mended
            return 0, f"the engine's last words\nwhat it said before\n{refusal}\n", ""
        verb, *rest = command[2:]
        names = rest[rest.index("--") + 1 :] if "--" in rest else []
        if verb == "show":
            blocks = (
                f"Id={name}\nLoadState={self.load_state(name)}\n"
                f"ActiveState={'active' if name in self.active else 'inactive'}\n"
                f"UnitFileState={'enabled' if name in self.enabled else 'disabled'}\n"
                f"NeedDaemonReload=no\nInvocationID={self.runs.get(name, '')}\n"
                for name in names
            )
            return 0, "\n".join(blocks), ""
        if verb == self.cut_at:
            raise KeyboardInterrupt
        self.told.append((verb, *names))
        self.loaded = self.loaded or verb == "daemon-reload"
        if verb == "enable":
            self.enabled |= set(names)
        if verb == "start":
            self.runs |= {name: str(len(self.told)) for name in names}
            self.active = (self.active | set(names)) - self.broken
            return (1 if self.broken & set(names) else 0), "", ""
        if verb == "disable":
            self.enabled -= set(names)
        if verb in ("disable", "stop"):
            self.active -= set(names)
        return 0, "", ""

    def load_state(self, name):
        unread = self.generated and name == SERVICE and not self.loaded
        return "not-found" if unread else "loaded"


def told(systemd, *verbs):
    return [words for words in systemd.told if words[0] in verbs]


@pytest.fixture
def bring(tmp_path, capsys, monkeypatch):
    """Converge one resource; return its report, with what the module failed with."""
    monkeypatch.setattr(apply, "DUE", str(tmp_path / "due"))
    monkeypatch.setattr(types, "DUE", str(tmp_path / "reloads"))

    def bring(systemd, check=False, values=None, **resource):
        monkeypatch.setattr(
            converge.AnsibleModule,
            "run_command",
            lambda _module, line, **_options: systemd.run_command(line),
        )
        arguments = {
            "resources": [
                {"kind": "replicas", "deployment": "x", "root": str(tmp_path), **resource}
            ],
            "secrets": values or {},
            "_ansible_check_mode": check,
            "_ansible_remote_tmp": str(tmp_path / "tmp"),
        }
        ended = KeyboardInterrupt if systemd.cut_at else SystemExit
        with patch_module_args(arguments), pytest.raises(ended):
            converge.main()
        printed = capsys.readouterr().out
        assert not any(value in printed for value in (values or {}).values())
        if not printed:
            return None
        result = completed(json.loads(printed), "converge")
        (report,) = result["resources"] or [{}]
        return {"findings": [], **report, **report.get("result", {}), **result}

    return bring


@pytest.fixture
def system(tmp_path):
    folder = tmp_path / "etc/systemd/system"
    folder.mkdir(parents=True)
    return folder


@pytest.fixture
def run(bring, system):
    def run(systemd, content="[Service]\n", check=False, services=(SERVICE,), below="", **more):
        """``content`` is that of all units, or of each by its name."""
        resource = {
            "files": [
                {
                    "path": str(system / below / name),
                    "mode": "0644",
                    "content": content if isinstance(content, str) else content[name],
                    **({} if name == TARGET else {"unit": name}),
                }
                for name in (*services, TARGET)
            ],
            "services": list(services),
            "target": TARGET,
            "stale_pattern": r"apiary-x-[0-9]+\.service",
            **more,
        }
        return bring(systemd, check, **resource)

    return run


def test_a_fresh_host_is_written_enabled_and_started(run, system):
    systemd = Systemd()
    result = run(systemd)
    assert result["changed"]
    assert (system / SERVICE).read_text() == "[Service]\n"
    assert stat.S_IMODE((system / SERVICE).stat().st_mode) == 0o644
    assert [words[0] for words in systemd.told] == [
        "daemon-reload",
        "enable",
        "reset-failed",
        "start",
    ]


def test_a_strict_umask_closes_nothing_to_the_service_user(run, system):
    before = os.umask(0o077)
    try:
        run(Systemd(), below="apiary/x")
    finally:
        os.umask(before)
    for path in ("apiary", "apiary/x"):
        assert stat.S_IMODE((system / path).stat().st_mode) == 0o755


def test_second_run_changes_nothing(run):
    systemd = Systemd()
    run(systemd)
    systemd.told.clear()
    result = run(systemd)
    assert not result["changed"]
    assert systemd.told == []


def test_what_is_stopped_can_be_left_stopped(run):
    systemd = Systemd()
    outcome = run(systemd, start=False)
    assert (outcome["changed"], outcome["started"]) == (True, [])
    assert told(systemd, "start", "restart") == []
    assert not systemd.active


def test_check_mode_predicts_and_touches_nothing(run, system):
    systemd = Systemd()
    result = run(systemd, check=True)
    assert result["changed"]
    assert result["started"] == [SERVICE, TARGET]
    assert f"start: {SERVICE} {TARGET}" in result["steps"]
    assert result["diff"][0]["after"] == "[Service]\n"
    assert systemd.told == []
    assert not (system / SERVICE).exists()


def test_units_of_an_earlier_plan_go(run, system):
    (system / "apiary-x-1.service").write_text("old\n")
    systemd = Systemd()
    result = run(systemd)
    assert result["removed"] == ["apiary-x-1.service"]
    assert not (system / "apiary-x-1.service").exists()
    assert systemd.told[0] == ("disable", "apiary-x-1.service")


def test_a_changed_unit_is_restarted(run):
    systemd = Systemd()
    run(systemd)
    systemd.told.clear()
    assert run(systemd, content="[Service]\nNice=1\n")["restarted"] == [SERVICE]
    assert told(systemd, "stop", "start") == [("stop", SERVICE), ("start", SERVICE)]


@pytest.mark.parametrize("change", ["restart", "move", "remove"])
def test_replicas_that_serve_are_not_interrupted_unless_allowed(run, system, tmp_path, change):
    """Of two replicas that are up one would restart, both exchange GPUs, or one go."""
    systemd = Systemd()
    home = tmp_path / "etc/apiary/x"

    def files(services, gpus):
        units = [(system / name, "[Service]\n", name) for name in services]
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
            {"path": str(system / TARGET), "mode": "0644", "content": "[Unit]\n"},
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
    assert [(one["code"], one["severity"], one["subject"]) for one in shown["findings"]] == [
        ("REPLICA-SERVES", "warning", named)
    ]
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


def test_a_unit_whose_turn_never_came_is_left_to_the_next_run(run, system):
    """Unit 0 fails to restart: unit 1 must still differ on disk, or nobody would restart it."""
    systemd = Systemd()
    run(systemd, services=[SERVICE, OTHER])
    systemd.broken = {SERVICE}
    assert run(systemd, content="[Service]\nNice=1\n", services=[SERVICE, OTHER])["failed"]
    assert (system / OTHER).read_text() == "[Service]\n"
    systemd.broken = set()
    again = run(systemd, content="[Service]\nNice=1\n", services=[SERVICE, OTHER])
    assert again["restarted"] == [OTHER]


def test_a_replica_that_does_not_start_ends_with_its_last_words(run):
    result = run(Systemd(broken=[SERVICE]))
    assert result["failed"]
    assert "REPLICA-START-FAILED" in result["msg"]
    assert "what it said before\nthe engine's last words" in result["msg"]


ABSENT = "error: REPLICA-WEIGHTS: apiary-x-0.service: /srv/models/m has no config.json"


def test_weights_whose_mount_is_not_there_yet_are_waited_for(run):
    systemd = Systemd(broken=[SERVICE])
    absent = "error: WEIGHTS-ABSENT: /srv/models/m: is not there"
    systemd.refusals, systemd.mended = [ABSENT, absent], {SERVICE}
    assert not run(systemd).get("failed")
    assert len(told(systemd, "start")) == 3


@pytest.mark.parametrize(
    ("said", "seconds"), [(ABSENT.replace("error", "warning"), 60), (ABSENT, -1)]
)
def test_no_start_is_tried_for_ever(run, monkeypatch, said, seconds):
    """Nor again where that was a warning only."""
    monkeypatch.setattr(apply, "MOUNT_SECONDS", seconds)
    systemd = Systemd(broken=[SERVICE])
    systemd.refusals = [said] * 9
    assert "REPLICA-START-FAILED" in run(systemd)["msg"]
    assert len(told(systemd, "start")) == 1


@pytest.mark.parametrize("cut_at", ["daemon-reload", "stop", "start"])
def test_a_run_cut_off_between_file_and_restart_is_made_good(run, cut_at):
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


def test_only_the_replicas_whose_turn_it_is_are_touched(run, system):
    systemd = Systemd()
    run(systemd, services=[SERVICE, OTHER])
    (system / "apiary-x-2.service").write_text("stale\n")
    new = {SERVICE: "new\n", OTHER: "new\n", TARGET: "new\n"}
    first = run(systemd, content=new, services=[SERVICE, OTHER], only=[OTHER])
    assert (first["restarted"], first["removed"]) == ([OTHER], [])
    assert (system / SERVICE).read_text() == "[Service]\n"
    assert (system / TARGET).read_text() == "[Service]\n"
    assert (system / "apiary-x-2.service").exists()
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


def test_a_change_of_runtime_stops_removes_and_starts(run, system, tmp_path):
    systemd = Systemd()
    run(systemd)
    systemd.told.clear()
    path = tmp_path / "etc/containers/systemd/apiary-x-0.container"
    quadlet = {"path": str(path), "mode": "0644", "content": "[Container]\n", "unit": SERVICE}
    target = {"path": str(system / TARGET), "mode": "0644", "content": "[Service]\n"}
    result = run(systemd, files=[quadlet, target])
    assert result["restarted"] == [SERVICE]
    assert [told[0] for told in systemd.told] == [
        *("stop", "disable", "daemon-reload", "reset-failed", "start"),
    ]
    assert path.read_text() == "[Container]\n"
    assert not (system / SERVICE).exists()
    assert not run(systemd, files=[quadlet, target])["changed"]


@pytest.fixture
def give(run):
    """Run with a secret's value, which nothing that is printed may show."""

    def give(systemd, value=None, check=False, **more):
        return run(systemd, check=check, secrets=["KEY"], values=value and {"KEY": value}, **more)

    return give


def test_secrets_are_written_for_root_alone_and_shown_nowhere(give, tmp_path):
    systemd = Systemd()
    assert give(systemd, "planted-key-1")["secrets"]
    path = tmp_path / "etc/apiary/x/credentials/KEY"
    assert path.read_text() == "planted-key-1"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert stat.S_IMODE(path.parent.parent.stat().st_mode) == 0o755
    assert not give(systemd, "planted-key-1")["changed"]
    # One without a value keeps the file that the host has.
    assert not give(systemd)["changed"]


def test_check_mode_shows_a_secret_and_writes_none(give, tmp_path):
    assert give(Systemd(), "planted-key-1", check=True)["changed"]
    assert not (tmp_path / "etc/apiary").exists()


def test_a_changed_secret_restarts_what_runs_with_the_old_one(give):
    systemd = Systemd()
    give(systemd, "planted-key-1")
    shown = give(systemd, "planted-key-2", check=True)
    assert (shown["outdated"], shown["restarted"]) == ([SERVICE], [SERVICE])
    assert give(systemd, "planted-key-2")["restarted"] == [SERVICE]
    assert not give(systemd, "planted-key-2")["changed"]


def test_a_secret_of_a_run_that_was_cut_off_restarts_what_runs_with_the_old_one(give, tmp_path):
    systemd = Systemd()
    give(systemd, "planted-key-1")
    systemd.cut_at = "daemon-reload"
    give(systemd, "planted-key-2")
    systemd.cut_at = None
    assert (tmp_path / "etc/apiary/x/credentials/KEY").read_text() == "planted-key-2"
    # The mark says so, whatever became of the run that wrote the secret.
    assert give(systemd, "planted-key-2")["restarted"] == [SERVICE]


def test_of_replicas_that_change_in_turn_each_takes_the_secret_with_its_restart(give):
    systemd, both = Systemd(), [SERVICE, OTHER]
    give(systemd, "planted-key-1", services=both)
    first = give(systemd, "planted-key-2", services=both, only=[SERVICE])
    assert (first["outdated"], first["restarted"]) == (both, [SERVICE])
    second = give(systemd, "planted-key-2", services=both, only=[OTHER])
    assert second["restarted"] == [OTHER]
    assert not give(systemd, "planted-key-2", services=both, only=both)["changed"]


def test_another_secret_is_not_given_to_what_serves_unless_allowed(give, tmp_path):
    systemd = Systemd()
    give(systemd, "planted-key-1", restart=False)
    refused = give(systemd, "planted-key-2", restart=False)
    assert f"REPLICA-SERVES: {SERVICE}: " in refused["msg"]
    assert (tmp_path / "etc/apiary/x/credentials/KEY").read_text() == "planted-key-1"
    shown = give(systemd, "planted-key-2", check=True, restart=False)
    assert [one["code"] for one in shown["findings"]] == ["REPLICA-SERVES"]


def test_a_missing_secret_changes_nothing(give, tmp_path, system):
    assert "REPLICA-SECRET-MISSING" in give(Systemd())["msg"]
    assert not (tmp_path / "etc/apiary").exists()
    assert not (system / SERVICE).exists()


def test_a_quadlet_of_a_run_that_was_cut_off_is_read_by_systemd(run, tmp_path):
    """Its unit is not there before systemd's generators have run."""
    path = tmp_path / "etc/containers/systemd/apiary-x-0.container"
    quadlet = {"path": str(path), "mode": "0644", "content": "[Container]\n", "unit": SERVICE}
    systemd = Systemd(generated=path)
    systemd.cut_at = "daemon-reload"
    run(systemd, files=[quadlet])
    systemd.cut_at = None
    assert path.exists()
    assert run(systemd, files=[quadlet])["started"] == [SERVICE, TARGET]
    assert ("daemon-reload",) in systemd.told
    assert SERVICE in systemd.active


@pytest.fixture
def remove(bring):
    return lambda systemd, check=False, **more: bring(systemd, check, state="absent", **more)


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
    shown = remove(systemd, check=True)
    assert shown["changed"]
    assert systemd.told == []
    assert remove(systemd)["diff"] == shown["diff"]
    assert systemd.told[0] == ("stop", SERVICE, TARGET)
    assert ("disable", SERVICE, TARGET) in systemd.told
    left = sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file())
    assert left == ["var/cache/apiary-x-0/home/kernel"]
    assert not remove(Systemd())["changed"]
    (diff,) = remove(Systemd(), caches=True)["diff"]
    assert diff["before"] == f"{tmp_path}/var/cache/apiary-x-0\n"


def test_an_absence_that_was_cut_off_before_the_reload_is_completed(remove, system):
    (system / SERVICE).write_text("")
    systemd = Systemd()
    systemd.cut_at = "daemon-reload"
    remove(systemd)
    systemd.cut_at = None
    systemd.told.clear()
    assert remove(systemd)["changed"]
    assert ("daemon-reload",) in systemd.told
    assert not remove(systemd)["changed"]


class Exact(Systemd):
    """Knows which text of its unit each replica runs, and what it has read."""

    def __init__(self, folder):
        super().__init__()
        self.folder, self.texts, self.running = folder, {}, {}

    def written(self, name):
        path = self.folder / name
        return path.read_text() if path.exists() else None

    def run_command(self, command, **options):
        sys.audit("subprocess.Popen", command[0], command, None, None)
        verb = command[2] if command[0] == "systemctl" else ""
        code, out, err = super().run_command(command, **options)
        if verb == "show":
            names = command[command.index("--") + 1 :] if "--" in command else []
            rows = [
                row.replace("NeedDaemonReload=no", "NeedDaemonReload=yes")
                if self.texts.get(name) != self.written(name)
                else row
                for name, row in zip(names, out.split("\n\n"), strict=True)
            ]
            out = "\n\n".join(rows)
        if verb == "daemon-reload":
            self.texts = {name: self.written(name) for name in (SERVICE, OTHER, TARGET)}
        self.running = {
            name: self.texts.get(name) if verb == "start" and name in command else text
            for name, text in {**dict.fromkeys(self.active), **self.running}.items()
            if name in self.active
        }
        return code, out, err


def test_a_run_that_is_killed_anywhere_is_completed(run, bring, system, tmp_path):
    systemd = Exact(system)
    fields = ("enabled", "active", "texts", "running", "runs", "loaded")

    def read():
        state = {name: copy.deepcopy(getattr(systemd, name)) for name in fields}
        # A run's number is its own; what it reads counts.
        state["runs"] = sorted(state["runs"])
        state["texts"] = {name: text for name, text in state["texts"].items() if text is not None}
        for path in sorted(tmp_path.rglob("*")):
            # A mark of a run that has ended since means nothing.
            ended = path.parent.name == "due" and path.read_text() != systemd.runs.get(path.name)
            if not ended and not path.is_relative_to(tmp_path / "tmp"):
                state[str(path)] = path.read_bytes() if path.is_file() else None
        return state

    def restore(state):
        for name in fields:
            setattr(systemd, name, copy.deepcopy(state[name]))
        systemd.runs = dict.fromkeys(state["runs"], "1")
        for path in tmp_path.iterdir():
            shutil.rmtree(path)
        for name, held in ((key, value) for key, value in state.items() if key[0] == "/"):
            Path(name).mkdir() if held is None else Path(name).write_bytes(held)

    both = (SERVICE, OTHER)
    assert killed_anywhere(lambda: run(systemd, services=both), read, restore, str(tmp_path)) > 10
    changed = {SERVICE: "[Service]\n# 2\n", OTHER: "[Service]\n# 2\n", TARGET: "[Service]\n"}
    killed_anywhere(lambda: run(systemd, changed, services=both), read, restore, str(tmp_path))
    assert systemd.running[SERVICE] == "[Service]\n# 2\n"
    # One is no longer in the plan.
    killed_anywhere(lambda: run(systemd, changed), read, restore, str(tmp_path))
    killed_anywhere(lambda: bring(systemd, state="absent"), read, restore, str(tmp_path))
    assert list(system.iterdir()) == []
