# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A whole bundle: secrets planted in every place, and none of them in the archive."""

import base64
import hashlib
import json
import os
import signal
import stat
import tarfile
import urllib.parse
from pathlib import Path

import jsonschema
import pytest
import yaml
from ansible_collections.apiary.instinct.plugins.plugin_utils.documents import dumps
from ansible_collections.apiary.instinct.plugins.plugin_utils.findings import ApiaryError

from apiary.app.cli import main
from apiary.app.runner import Ended
from apiary.app.runner_events import Failed
from apiary.app.schemas import schema
from apiary.fleet.hosts import FleetHost, Hosts
from apiary.help.bundle import command as bundle_command
from apiary.help.bundle import sources as bundle_hosts
from apiary.help.bundle.command import known_secrets
from apiary.help.bundle.stage import write_archive
from apiary.help.doctor.types import AnsibleFacts, Doctor
from support.demo import demo_plan

# One for each place; an encoded form of each is planted elsewhere, too.
PLANTED = {
    "inventory": 'plain"in\\ventory/ä',
    "template": "behind-a-template-1",
    "environment": "of-the-shell-22",
    "vaulted": "in a vault, 333",
    "password_file": "opens-the-vault-4444",
    "become": "sudo'5",
    # A credential that lies on the host alone.
    "host": "Only0nThisHost55",
}
VAULT_LINE = "vault_engine_key: in a vault, 333\n"


@pytest.fixture
def here(tmp_path, monkeypatch):
    """An inventory with secrets, saved documents, and hosts that answer."""
    monkeypatch.chdir(tmp_path)
    for name in list(os.environ):
        if "TOKEN" in name or "SECRET" in name:
            monkeypatch.delenv(name)
    monkeypatch.setenv("MY_HUB_TOKEN", PLANTED["environment"])
    monkeypatch.setattr(bundle_command, "inspect_ansible", lambda: AnsibleFacts(version="2.19"))
    monkeypatch.setattr(bundle_command, "examine", lambda *_asked: Doctor((), 2, False, "go on"))
    inventory = tmp_path / "inventory/mine"
    (inventory / "group_vars/all").mkdir(parents=True)
    (inventory / "hosts.yml").write_text(
        yaml.safe_dump(
            {"gpu_hosts": {"hosts": {"gpu-001": {"ansible_host": "10.1.2.3"}, "gpu-002": None}}}
        )
    )
    (inventory / "group_vars/all/vars.yml").write_text(
        yaml.safe_dump(
            {
                "router_api_keys": {"team": PLANTED["inventory"]},
                "replicas_secrets": {"VLLM_API_KEY": "{{ other_value }}"},
                "other_value": PLANTED["template"],
                "ansible_become_password": PLANTED["become"],
                "apiary_rack": "rack1",
            }
        )
    )
    (tmp_path / "password").write_text(PLANTED["password_file"] + "\n")
    (inventory / "group_vars/all/vault.yml").write_text(vaulted(VAULT_LINE))
    saved = tmp_path / "artifacts/gpu-001"
    saved.mkdir(parents=True)
    (saved / "plan.json").write_text(dumps(demo_plan()))
    (saved / "evidence.json").write_text(json.dumps(evidence()))
    (saved / "credentials").mkdir()
    (saved / "credentials/VLLM_API_KEY").write_text("never read")
    (saved / "tls.pem").write_text("never read")
    (saved / "notes.json").write_text('{"of": "never read"}')
    run = tmp_path / "artifacts/fleet/runs/20260101T000000Z-replicas"
    (run / "wave-1").mkdir(parents=True)
    (run / "run.json").write_text("{}")
    (run / "wave-1/stdout").write_text(f"TASK [x]\nfatal: {everything()}\n")
    return tmp_path


@pytest.fixture
def told(monkeypatch):
    """The inventory's hosts and secrets, told without asking Ansible: that takes seconds."""
    hosts = Hosts((FleetHost("gpu-001", addresses=("10.1.2.3",)), FleetHost("gpu-002")), 2)
    monkeypatch.setattr(bundle_command, "read_hosts", lambda *_asked: hosts)
    values = [value for place, value in PLANTED.items() if place != "host"]
    monkeypatch.setattr(bundle_command, "known_secrets", lambda *_asked: values)


def vaulted(text):
    """A text, encrypted with the password."""
    from ansible.parsing.vault import VaultLib, VaultSecret

    password = VaultSecret(PLANTED["password_file"].encode())
    return VaultLib([("default", password)]).encrypt(text, password).decode()


def everything():
    """All secrets as a journal might have them: plain and in other forms."""
    lines = []
    for secret in PLANTED.values():
        lines += [
            secret,
            json.dumps(secret),
            json.dumps(json.dumps({"msg": secret})),
            urllib.parse.quote(secret, safe=""),
            base64.b64encode(f"user:{secret}".encode()).decode(),
            secret.encode().hex(),
        ]
    return "\n".join(lines)


def evidence():
    return {
        "schema": "apiary.evidence/v1",
        "commands": {"ps": {"argv": ["ps"], "stdout": everything()}},
        "files": {"/etc/x": f"MY_SERVICE_TOKEN={PLANTED['host']}\n"},
    }


def answering(monkeypatch, texts, failed=()):
    """Have hosts answer with these texts, as playbooks/bundle.yml leaves them."""
    asked = []

    def run_playbook(_name, **given):
        variables = given["extra_vars"]
        asked.append(variables["bundle_hosts"])
        for host in variables["bundle_hosts"]:
            if host in failed:
                continue
            path = (
                Path(variables["bundle_dest"]) / f"{hashlib.sha256(host.encode()).hexdigest()}.json"
            )
            path.write_text(
                json.dumps(
                    {
                        "host": host,
                        "items": texts,
                        "problems": {"x": "is not there"},
                        "secrets": [PLANTED["host"] + "\n"],
                    }
                )
            )
        why = {host: Failed("Become root", f"sudo refuses {PLANTED['become']}") for host in failed}
        return Ended(0, "successful", {}, why)

    monkeypatch.setattr(bundle_hosts, "run_playbook", run_playbook)
    return asked


def run(*arguments):
    return main(["support-bundle", "-i", "inventory/mine", *arguments])


def members(name="apiary-support.tar.gz"):
    with tarfile.open(name) as archive:
        return {one.name: archive.extractfile(one).read().decode() for one in archive}


TEXTS = {
    "journals/apiary-x-0.service.log": f"start --api-key zzz\n{PLANTED['host']} again\n",
    "files/etc/systemd/system/apiary-x-0.service": '[Service]\nEnvironment="K_TOKEN=a b c"\n',
    "haproxy/show-stat.txt": "# pxname,svname\n",
    "files/etc/passwords.txt": ">not on the list<",
    "../../escape": ">not on the list<",
}


def test_no_planted_secret_is_in_the_archive(here, monkeypatch, capsys):
    answering(monkeypatch, {**TEXTS, "journals/kernel.log": everything()}, failed=["gpu-002"])
    assert run("--vault-password-file", "password", "--json") == 0
    printed = "".join(capsys.readouterr())
    found = members()
    whole = "\n".join([*found, *found.values(), printed])
    for place, secret in PLANTED.items():
        for written in (
            secret,
            json.dumps(secret)[1:-1],
            urllib.parse.quote(secret, safe=""),
            secret.encode().hex(),
            base64.b64encode(secret.encode()).decode().rstrip("=")[:-2],
        ):
            assert written not in whole, (place, written)
    assert "zzz" not in whole
    assert "a b c" not in whole
    assert "never read" not in whole
    assert ">not on the list<" not in whole
    # And what help needs is there.
    assert "hosts/gpu-001/live/haproxy/show-stat.txt" in found
    assert "hosts/gpu-001/artifacts/plan.json" in found
    assert json.loads(found["hosts/gpu-001/artifacts/evidence.json"])["commands"]["ps"]["argv"]
    assert "fleet/runs/20260101T000000Z-replicas/wave-1/stdout" in found
    assert "rack1" in found["inventory/mine/group_vars/all/vars.yml"]
    assert not any(
        "vault.yml" in name or ".pem" in name or "credentials/" in name for name in found
    )


def test_the_manifest_says_what_was_done(here, monkeypatch, capsys):
    answering(monkeypatch, TEXTS, failed=["gpu-002"])
    assert run("--vault-password-file", "password", "--json") == 0
    manifest = json.loads(members()["MANIFEST.json"])
    jsonschema.validate(manifest, schema("support-bundle"))
    hosts = {one["host"]: (one["asked"], one["answered"]) for one in manifest["hosts"]}
    assert hosts == {"gpu-001": (True, True), "gpu-002": (True, False)}
    why = {one["what"]: one["why"] for one in manifest["left_out"]}
    assert why["inventory/mine/group_vars/all/vault.yml"].startswith("is not on the list")
    for name in ("artifacts/tls.pem", "live/files/etc/passwords.txt", "artifacts/notes.json"):
        assert why[f"hosts/gpu-001/{name}"].startswith("is not on the list"), name
    assert why["hosts/gpu-001/live/x"] == "is not there"
    assert manifest["removed"]["value"] > 20
    assert manifest["removed"]["environment"] == 1
    assert {one["path"] for one in manifest["members"]} | {"MANIFEST.json"} == set(members())
    (finding,) = json.loads(capsys.readouterr().err)["findings"]
    assert finding["code"] == "BUNDLE-HOST"
    assert "sudo refuses [removed:value]" in finding["message"]


def test_it_is_this_users_alone_and_the_same_again(here, told, monkeypatch):
    answering(monkeypatch, TEXTS)
    first = _bytes("one.tar.gz")
    assert _bytes("two.tar.gz") == first
    assert stat.S_IMODE(os.stat("one.tar.gz").st_mode) == 0o600
    with tarfile.open("one.tar.gz") as archive:
        entries = archive.getmembers()
    assert [one.name for one in entries] == sorted(one.name for one in entries)
    assert {(one.mtime, one.uid, one.gid, one.uname, one.mode) for one in entries} == {
        (0, 0, 0, "", 0o600)
    }
    assert not any(".." in Path(one.name).parts or one.name.startswith("/") for one in entries)


def _bytes(name):
    assert run("--vault-password-file", "password", "--out", name) == 0
    return Path(name).read_bytes()


def test_a_vault_that_nobody_opens_is_refused(here, monkeypatch, capsys):
    asked = answering(monkeypatch, TEXTS)
    assert run("--json") == 1
    (finding,) = json.loads(capsys.readouterr().err)["findings"]
    assert finding["code"] == "BUNDLE-VAULT"
    assert asked == []
    assert not Path("apiary-support.tar.gz").exists()


def test_offline_asks_nobody(here, monkeypatch):
    asked = answering(monkeypatch, TEXTS)
    assert run("--vault-password-file", "password", "--offline", "--host", "gpu-001") == 0
    assert asked == []
    found = members()
    assert "hosts/gpu-001/artifacts/plan.json" in found
    assert not any("/live/" in name for name in found)
    (host,) = json.loads(found["MANIFEST.json"])["hosts"]
    assert host["host"] == "gpu-001"


def test_without_an_inventory_what_was_saved_is_taken(here, capsys):
    assert main(["support-bundle"]) == 0
    assert PLANTED["environment"] not in "".join(members().values())
    assert main(["support-bundle", "--artifacts", "nowhere", "--json"]) == 1
    assert json.loads(capsys.readouterr().err)["findings"][0]["code"] == "BUNDLE-NOTHING"


def test_the_size_is_bounded_and_logs_go_first(here, told, monkeypatch, capsys):
    big = {f"journals/{n}.log": f"line {n}\n" * 50_000 for n in range(3)}
    answering(monkeypatch, big)
    assert run("--vault-password-file", "password", "--max-size", "1", "--json") == 0
    found = members()
    assert sum(map(len, found.values())) < 1.2 * 2**20
    assert "hosts/gpu-001/artifacts/evidence.json" in found
    codes = {one["code"] for one in json.loads(capsys.readouterr().err)["findings"]}
    assert codes == {"BUNDLE-SIZE"}


def test_a_secret_that_stays_keeps_its_file_out(here, told, monkeypatch, capsys):
    """Should cleaning ever miss a form that is looked for, nothing goes out."""
    answering(monkeypatch, {"journals/a.log": f"x {PLANTED['template']} y"})
    monkeypatch.setattr(
        "apiary.help.bundle.stage.Stage.clean", lambda _self, text, _kind="text": text
    )
    assert run("--vault-password-file", "password", "--json") == 1
    assert "BUNDLE-LEAK" in capsys.readouterr().err
    assert not any(name.endswith("a.log") for name in members())


def test_nothing_half_written_is_left(tmp_path):
    (tmp_path / "a").write_text("a")
    out = tmp_path / "out.tar.gz"
    out.write_text("before")
    with pytest.raises(ApiaryError, match="FILE-UNWRITABLE"):
        write_archive(out, {"a": tmp_path / "a", "b": tmp_path / "missing"})
    assert out.read_text() == "before"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "out.tar.gz"]


def test_a_signal_leaves_nothing_that_is_not_clean(here, told, monkeypatch, capsys):
    monkeypatch.setattr("tempfile.tempdir", str(here / "tmp"))
    (here / "tmp").mkdir()

    def asked(*_asked):
        assert any(path.is_file() for path in (here / "tmp").rglob("*"))
        os.kill(os.getpid(), signal.SIGTERM)
        return iter(())

    monkeypatch.setattr(bundle_command, "ask_hosts", asked)
    assert run() == 130
    assert list((here / "tmp").iterdir()) == []
    assert not Path("apiary-support.tar.gz").exists()
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL


def test_links_that_lead_out_are_not_followed(here, told):
    secret = here / "outside.txt"
    secret.write_text("outside")
    (here / "artifacts/gpu-001/link.txt").symlink_to(secret)
    assert main(["support-bundle"]) == 0
    assert "outside" not in "".join(members().values())


def test_an_unwritable_place_is_one_finding(here, told, capsys):
    assert main(["support-bundle", "--out", "none/such.tar.gz", "--json"]) == 1
    assert json.loads(capsys.readouterr().err)["findings"][0]["code"] == "FILE-UNWRITABLE"


def test_a_vaults_password_from_a_script_is_a_secret_too(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("hosts.yml").write_text("gpu_hosts:\n  hosts:\n    gpu-001:\n")
    Path("script").write_text("#!/bin/sh\necho quux77quux\n")
    Path("script").chmod(0o700)
    assert "quux77quux" in known_secrets(["hosts.yml"], ["script"])
