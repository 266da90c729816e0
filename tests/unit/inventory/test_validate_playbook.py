# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""playbooks/validate.yml by the real ansible-playbook: nobody is connected to, no secret shown."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from support.playbooks import run_playbook

ROOT = Path(__file__).parents[3]
PLANTED = "planted-7f3a"  # in every secret of these tests


def run(tool, *arguments, cwd=ROOT, **environment):
    # Whoever is connected to answers nothing.
    settings = {"ANSIBLE_NOCOLOR": "1", "ANSIBLE_SSH_EXECUTABLE": "/bin/false", **environment}
    if tool == "ansible-playbook":
        return run_playbook(*arguments, cwd=cwd, **settings)
    clean = {key: text for key, text in os.environ.items() if not key.startswith("ANSIBLE_")}
    return subprocess.run(
        [Path(sys.executable).with_name(tool), *arguments],
        cwd=cwd,
        env={
            **clean,
            "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"),
            "ANSIBLE_COLLECTIONS_PATH": str(ROOT / "collections"),
            **settings,
        },
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )


def validated(inventory, *options, **environment):
    """Exit code and output of validate.yml."""
    done = run(
        "ansible-playbook",
        *("-i", inventory, ROOT / "playbooks/validate.yml", *options),
        cwd=inventory.parent,
        **environment,
    )
    return done.returncode, done.stdout + done.stderr


@pytest.fixture
def mine(tmp_path):
    shutil.copytree(ROOT / "inventory/example", tmp_path / "mine")
    return tmp_path / "mine"


def write(path, variables):
    path.parent.mkdir(exist_ok=True)
    path.write_text(yaml.safe_dump(variables))


def test_the_example_is_right(mine):
    code, said = validated(mine)
    assert code == 0, said
    assert "[WARNING]" not in said


def test_all_mistakes_are_in_one_report(mine):
    write(
        mine / "group_vars/gpu_hosts/wrong.yml",
        {
            "host_tunning_profile": "full",
            "rocm_profile": "everything",
            "weight_cache_mounts": [{"path": "/srv", "source": "{{ vault_lost }}"}],
            "weight_cache_models": "{{ lookup('ansible.builtin.file', '/nonexistent') }}",
            "replicas_secrets": {"VLLM_API_KEY": PLANTED},
            "device_plugin_pod_gpus": "{{ __decided.plans }}",
        },
    )
    write(mine / "host_vars/gpu-001.yml", {"ansible_host": "gpu-002"})
    code, said = validated(mine)
    assert code == 2
    report = said.partition("nothing touched")[2].partition("Origin:")[0]
    assert re.findall(r"^(error|warning): ([\w-]+): ([^:]*)", report, re.MULTILINE) == [
        ("error", "INVENTORY-OPTION", "20 hosts, gpu-[001"),
        ("error", "INVENTORY-UNKNOWN", "20 hosts, gpu-[001"),
        ("error", "INVENTORY-UNRESOLVED", "20 hosts, gpu-[001"),
        ("error", "INVENTORY-UNRESOLVED", "20 hosts, gpu-[001"),
        ("error", "INVENTORY-ADDRESS-TWICE", "2 hosts, gpu-[001"),
        ("warning", "INVENTORY-PLAIN-SECRET", "20 hosts, gpu-[001"),
    ]
    assert "host_tuning_profile is perhaps meant" in report
    assert "unreachable=0" in said
    assert PLANTED not in said
    code, said = validated(mine, "--limit", "nfs-1")
    assert code == 0, said
    # Of a run of one step, what others read does not matter.
    code, said = validated(mine, "--tags", "host_tuning", "--limit", "rack2")
    assert code == 2
    assert "host_tunning_profile" in said
    assert "rocm_profile" not in said
    assert "vault_lost" not in said


# A sudo that asks for the password and stays who it is; who is root already is never asked.
SUDO = f"""#!/bin/sh
while [ $# -gt 0 ]; do
  case $1 in
    -p) printf '%s' "$2" >&2; read -r given; [ "$given" = {PLANTED}-sudo ] || exit 1; shift 2 ;;
    -u) shift 2 ;;
    -*) shift ;;
    *) break ;;
  esac
done
exec "$@"
"""


@pytest.fixture
def locked(mine, tmp_path):
    """The example with secrets in a vault; the options that open it."""
    password = tmp_path / "password"
    password.write_text("opens\n")
    vault = mine / "group_vars/all/vault.yml"
    write(
        vault,
        {
            "vault_key_team_a": f"{PLANTED}-a",
            "vault_key_team_b": f"{PLANTED}-b",
            "vault_router_password": "planted",
            "vault_engine_key": f"{PLANTED}-engine",
            "vault_become_password": f"{PLANTED}-sudo",
        },
    )
    opened = ("--vault-password-file", password)
    single = run("ansible-vault", "encrypt_string", *opened, f"{PLANTED}-x")
    assert run("ansible-vault", "encrypt", *opened, vault).returncode == 0
    assert vault.read_text().startswith("$ANSIBLE_VAULT")
    write(
        mine / "group_vars/routers/keys.yml",
        {
            "router_api_keys": {
                "team-a": "{{ vault_key_team_a }}",
                "team-b": {"key": "{{ vault_key_team_b }}"},
            },
            "router_virtual_password": "{{ vault_router_password }}",
        },
    )
    secrets = mine / "group_vars/gpu_hosts/secrets.yml"
    write(secrets, {"ansible_become_password": "{{ vault_become_password }}"})
    secrets.write_text(
        secrets.read_text()
        + 'replicas_secrets:\n  VLLM_API_KEY: "{{ vault_engine_key }}"\n  HF_TOKEN: '
        + single.stdout.replace("\n          ", "\n    ")
    )
    deployment = mine / "group_vars/gpu_hosts/deployment.yml"
    deployment.write_text(f"{deployment.read_text()}  secrets: [VLLM_API_KEY, HF_TOKEN]\n")
    return opened


def test_secrets_of_a_vault_are_read_and_never_shown(mine, locked):
    code, said = validated(mine, *locked, "-vvv")
    assert code == 0, said
    # What is in a vault is no plain text, whether the file is encrypted or the value.
    assert "INVENTORY-" not in said
    assert PLANTED not in said
    # A refusal of what has the secrets does not show them either.
    write(mine / "group_vars/routers/more.yml", {"router_api_keys": ["{{ vault_key_team_a }}"]})
    (mine / "group_vars/routers/keys.yml").unlink()
    code, said = validated(mine, *locked, "-vvv")
    assert code == 2
    assert "router_api_keys is not of the form" in said
    assert PLANTED not in said


def test_what_a_look_at_a_host_leaves_has_no_secret(mine, locked, tmp_path):
    """This machine is the host; it is read, and has no GPU."""
    sudo = tmp_path / "sudo"
    sudo.write_text(SUDO)
    sudo.chmod(0o755)
    write(
        mine / "host_vars/gpu-001.yml",
        {
            "ansible_connection": "local",
            "ansible_python_interpreter": sys.executable,
            "ansible_become_exe": str(sudo),
            "apiary_concerns": ["replicas"],
            "apiary_artifacts": str(tmp_path / "artifacts"),
        },
    )
    done = run(
        "ansible-playbook",
        *("-i", mine, ROOT / "playbooks/survey.yml", "--limit", "gpu-001", "-vvv", *locked),
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    left = [path for path in (tmp_path / "artifacts").rglob("*") if path.is_file()]
    assert tmp_path / "artifacts/gpu-001/survey.json" in left
    assert tmp_path / "artifacts/gpu-001/evidence.json" in left
    for text in (done.stdout, done.stderr, *(path.read_text() for path in left)):
        assert PLANTED not in text


def test_site_refuses_for_its_own_hosts_only(mine):
    """What a host of no part of Apiary is told may be of another tool."""
    write(mine / "others.yml", {"databases": {"hosts": {"db-1": {"rocm_profile": "theirs"}}}})
    limit = ("--limit", "gpu-001:db-1", "--tags", "rocm")
    site = ("ansible-playbook", "-i", mine, ROOT / "playbooks/site.yml", *limit)
    done = run(*site, cwd=mine.parent)
    said = done.stdout + done.stderr
    # It goes on to the one host, which answers nothing.
    assert "TASK [Inspect | Survey what would change]" in said
    assert "INVENTORY-OPTION" not in said
    again = run(*site, "-e", "rocm_profile=wrong", cwd=mine.parent)
    assert again.returncode == 2
    assert "gpu-001: value of rocm_profile" in " ".join((again.stdout + again.stderr).split())
    assert "TASK [Look" not in again.stdout
