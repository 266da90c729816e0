# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""`apiary doctor` as a whole, on this machine and inventories in files; nobody is connected to."""

import json
import os
import sys
from pathlib import Path

import jsonschema
import pytest
import yaml
from ansible.parsing.vault import VaultLib, VaultSecret

from apiary.app.cli import main
from apiary.app.runner import Ended
from apiary.app.runner_events import Failed
from apiary.app.schemas import schema
from apiary.help.doctor import command as doctor_command
from apiary.help.doctor import inventory as doctor_connect
from apiary.help.doctor.gather import (
    encrypted_files,
    inspect_ansible,
    inspect_artifacts,
    open_to_others,
)
from apiary.help.doctor.inventory import Scope, ask_hosts
from apiary.help.doctor.types import Answer, Reached
from support.host.ssh_home import use_home

ROOT = Path(__file__).parents[3]


@pytest.fixture
def here(tmp_path, monkeypatch):
    """An inventory of a host that is known and one that is not, and a home of our own."""
    monkeypatch.chdir(tmp_path)
    use_home(tmp_path, monkeypatch)
    monkeypatch.setenv("ANSIBLE_CONFIG", str(ROOT / "ansible.cfg"))
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    # As after `. .venv/bin/activate`, however pytest was called.
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setattr(doctor_command, "validate_variables", lambda *_asked: ())
    hosts = {"gpu-001": {"ansible_host": "127.0.0.1"}, "gpu-002": {"ansible_host": "127.0.0.2"}}
    Path("hosts.yml").write_text(yaml.safe_dump({"gpu_hosts": {"hosts": hosts}}))
    key = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ+IvxZBmbcsRA2aLTBqFrOWJI9mI8WmSyzOyrcGWZTz"
    (tmp_path / ".ssh/known_hosts").write_text(f"127.0.0.1 {key}\n")
    return tmp_path


def seen(capsys):
    return json.loads(capsys.readouterr().out)


def test_this_machine_can_run_the_playbooks(here, capsys):
    assert main(["doctor", "--json"]) == 0
    made = seen(capsys)
    jsonschema.validate(made, schema("doctor"))
    outcomes = {one["name"]: one["outcome"] for one in made["checks"]}
    assert outcomes["Python"] == outcomes["Ansible"] == outcomes["collections"] == "ok"
    assert made["next"] == "apiary doctor --inventory inventory/mine"


def test_an_inventory_is_looked_at_without_asking_anybody(here, capsys):
    assert main(["doctor", "-i", "hosts.yml", "--json"]) == 1
    out, err = capsys.readouterr()
    made = json.loads(out)
    found = {one["code"]: one["subject"] for one in json.loads(err)["findings"]}
    assert found["DOCTOR-HOST-KEY"] == "gpu-002"
    assert "DOCTOR-NAME" not in found
    assert made["hosts"] == 2
    assert not made["connected"]


def test_a_person_reads_it_by_areas_and_what_is_next(here, capsys):
    assert main(["doctor", "-i", "hosts.yml"]) == 1
    out, err = capsys.readouterr()
    assert out.index("This machine") < out.index("The inventory") < out.index("The hosts")
    assert "error: DOCTOR-HOST-KEY: gpu-002" in err
    assert out.rstrip().splitlines()[-1].startswith("Next: mend what is told above")


def test_an_inventory_that_cannot_be_read_is_one_error(here, capsys):
    Path("broken.yml").write_text("gpu_hosts: [")
    assert main(["doctor", "-i", "broken.yml", "--json"]) == 1
    codes = [one["code"] for one in json.loads(capsys.readouterr().err)["findings"]]
    assert codes == ["PROBE-INVENTORY"]


def test_a_limit_needs_an_inventory(here, capsys):
    assert main(["doctor", "--connect"]) == 2


def test_a_vault_without_its_password(here, monkeypatch, capsys):
    Path("group_vars").mkdir()
    Path("group_vars/all.yml").write_text("$ANSIBLE_VAULT;1.1;AES256\n6162\n")
    assert encrypted_files(["hosts.yml"])[0] == ["group_vars/all.yml"]
    ansible = inspect_ansible(["group_vars/all.yml"])
    assert ansible.vault == {"group_vars/all.yml": "there is no vault password"}
    Path("password").write_text("x")
    Path("password").chmod(0o644)
    assert open_to_others("password")
    wrong = inspect_ansible(["group_vars/all.yml"], ["password"]).vault["group_vars/all.yml"]
    assert wrong
    assert wrong != "there is no vault password"


def test_settings_that_ansible_cannot_read_are_named(here, monkeypatch):
    Path("broken.cfg").write_text("[defaults\n")
    monkeypatch.setenv("ANSIBLE_CONFIG", "broken.cfg")
    assert "broken.cfg): File contains no section headers" in (inspect_ansible().refused or "")


def test_a_password_that_others_may_read_is_told_once(here, capsys):
    Path("password").write_text("x")
    Path("password").chmod(0o644)
    main(["doctor", "-i", "hosts.yml", "--vault-password-file", "password", "--json"])
    codes = [one["code"] for one in json.loads(capsys.readouterr().err)["findings"]]
    assert codes.count("DOCTOR-VAULT-OPEN") == 1


def test_a_locked_vault_is_named_where_the_inventory_cannot_be_read(here, capsys):
    Path("group_vars").mkdir()
    Path("group_vars/all.yml").write_text("$ANSIBLE_VAULT;1.1;AES256\n6162\n")
    assert main(["doctor", "-i", "hosts.yml", "--json"]) == 1
    codes = [one["code"] for one in json.loads(capsys.readouterr().err)["findings"]]
    assert codes == ["PROBE-INVENTORY", "DOCTOR-VAULT"]


def test_a_world_writable_directory_hides_its_configuration(here, monkeypatch):
    monkeypatch.delenv("ANSIBLE_CONFIG")
    Path("ansible.cfg").write_text("[defaults]\nforks = 3\n")
    here.chmod(0o777)
    ansible = inspect_ansible()
    assert "world writable" in " ".join(ansible.warnings)
    assert ansible.config != str(here / "ansible.cfg")
    here.chmod(0o755)
    assert inspect_ansible().forks == 3


def test_a_locale_that_ansible_refuses(here, monkeypatch):
    monkeypatch.setenv("LC_ALL", "C")
    monkeypatch.setenv("PYTHONCOERCECLOCALE", "0")
    assert "UTF-8" in (inspect_ansible().refused or "")


def test_room_is_that_of_the_nearest_directory(here):
    assert inspect_artifacts("not/yet/there").writable
    assert inspect_artifacts("not/yet/there").free_megabytes > 0
    Path("file").write_text("")
    assert not inspect_artifacts("file/below").writable
    assert not Path("not").exists()


def test_hosts_are_asked_once_and_closed_ports_not_at_all(here, monkeypatch):
    asked = []

    def run(_asking, names, connect, on_event):
        asked.append((tuple(names), connect))
        for name in names:
            data = {"host": name, "task": doctor_connect.TASK}
            for kind, at in (("runner_on_start", "00:00:10"), ("runner_on_ok", "00:00:12")):
                event = {"event": kind, "created": f"2027-01-15T{at}+00:00", "event_data": data}
                on_event(event)
        at_ten = 1_800_000_000 - 8 * 3600 + 10  # the time of the first event
        told = {
            "gpu-001": {"python": "3.11.2", "epoch": str(at_ten + 1), "root": True, "why": ""},
            "gpu-002": {"python": "3.11.2", "epoch": at_ten + 62, "root": False, "why": "no sudo"},
        }
        failed = {"gpu-003": Failed("Log in", "Permission\n denied", kind="unreachable")}
        return Ended(4, "failed", {}, failed, {"doctor_answers": told})

    monkeypatch.setattr(doctor_connect, "run", run)
    monkeypatch.setattr(
        doctor_connect, "_port", lambda one: "Connection refused" if one.name == "gpu-004" else None
    )
    ways = [Reached(f"gpu-{n:03d}", address=f"127.0.0.{n}") for n in range(1, 5)]
    ways.append(Reached("gpu-005", unresolved="no such name"))
    names = [one.name for one in ways]
    answers = {one.name: one for one in ask_hosts(Scope(("hosts.yml",)), names, ways)}
    assert asked == [(("gpu-001", "gpu-002", "gpu-003"), True)]
    assert answers["gpu-001"] == Answer("gpu-001", python="3.11.2", ahead=0.0)
    assert answers["gpu-002"] == Answer("gpu-002", root="no sudo", python="3.11.2", ahead=60.0)
    assert answers["gpu-003"] == Answer("gpu-003", login="Permission denied")
    assert answers["gpu-004"].port == "Connection refused"
    assert answers["gpu-005"].port == "no such name"


def test_nothing_is_written(here, capsys):
    before = {path: path.stat().st_mtime_ns for path in here.rglob("*")}
    main(["doctor", "-i", "hosts.yml"])
    after = {
        path: path.stat().st_mtime_ns for path in here.rglob("*") if ".ansible" not in path.parts
    }
    assert after == before
    assert not os.path.exists("artifacts")


def test_a_password_or_a_key_in_the_inventory_is_a_login(here, capsys):
    hosts = {
        "gpu-001": {"ansible_host": "127.0.0.1", "ansible_password": "quux77"},
        "gpu-002": {"ansible_host": "127.0.0.1"},
    }
    Path("hosts.yml").write_text(yaml.safe_dump({"gpu_hosts": {"hosts": hosts}}))
    assert main(["doctor", "-i", "hosts.yml", "--json"]) == 1
    found = [one for made in seen(capsys)["checks"] for one in made["findings"]]
    assert [one["subject"] for one in found if one["code"] == "DOCTOR-NO-KEY"] == ["gpu-002"]


def test_a_vaults_password_opens_the_inventory_everywhere(here, capsys):
    Path("password").write_text("quux77")
    Path("password").chmod(0o600)
    secret = VaultSecret(b"quux77")
    Path("group_vars").mkdir()
    text = VaultLib([("default", secret)]).encrypt("ansible_password: quux78\n", secret)
    Path("group_vars/gpu_hosts.yml").write_bytes(text)
    asked = ["doctor", "-i", "hosts.yml", "--vault-password-file", "password", "--json"]
    main(asked)
    made = seen(capsys)
    found = [one["code"] for made_check in made["checks"] for one in made_check["findings"]]
    assert "PROBE-INVENTORY" not in found
    assert "DOCTOR-NO-KEY" not in found
    main([*asked, "--limit", "gpu-001"])
    following = seen(capsys)["next"]
    assert following.startswith("apiary doctor -i hosts.yml --limit gpu-001 --vault-password-file")


def test_away_from_the_clone_the_next_playbook_goes_by_name(here):
    asking = Scope(("hosts.yml",), None, ())
    assert doctor_command._made((), 1, True, asking).next.endswith(" apiary.instinct.plan")
    Path("playbooks").mkdir()
    Path("playbooks/site.yml").touch()
    assert doctor_command._made((), 1, True, asking).next.endswith(" playbooks/plan.yml")
