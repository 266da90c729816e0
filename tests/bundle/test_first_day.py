# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A newcomer's first and last command, `apiary doctor` and `apiary support-bundle`, on a host.

The host is a simulated one of a lab of its own; APIARY_BUNDLE_LAB names one that is up already.
"""

import base64
import json
import os
import subprocess
import sys
import tarfile
import urllib.parse
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
PROGRAMS = Path(sys.executable).parent
KNOWN = 'Known"one\\/ö+7'
HOSTS_OWN = "Nobody8Knows8This8"
UNIT = "apiary-planted-0.service"
# The host's secrets: in the unit, its arguments, its journal (in other forms, too), in documents.
PLANT = """
set -e
mkdir -p /etc/apiary/planted/credentials
printf %s "$OWN" > /etc/apiary/planted/credentials/PLANTED_TOKEN
printf '{"env": {"PLANTED_TOKEN": "%s"}}' "$OWN" > /etc/apiary/planted/replica-0.json
cat > /usr/local/bin/planted <<'END'
#!/bin/sh
echo "the engine starts"
echo "$1" | base64 -d
echo
sleep 1000
END
chmod +x /usr/local/bin/planted
cat > /etc/systemd/system/UNIT <<END
[Service]
Environment="PLANTED_TOKEN=$OWN"
ExecStart=/usr/local/bin/planted LINES --api-key $OWN
END
systemctl daemon-reload
systemctl restart UNIT
until journalctl -u UNIT | grep -q "the engine starts"; do sleep 0.2; done
"""


def lines():
    """What the unit prints: the inventory's secret in many forms."""
    told = [
        KNOWN,
        json.dumps({"a": json.dumps([KNOWN])}),
        urllib.parse.quote(KNOWN, safe=""),
        base64.b64encode(f"user:{KNOWN}".encode()).decode(),
        KNOWN.encode().hex(),
        f"Authorization: Bearer {HOSTS_OWN}",
    ]
    return base64.b64encode("\n".join(told).encode()).decode()


@pytest.fixture(scope="module")
def lab():
    """The name of a lab with gpu-001."""
    given = os.environ.get("APIARY_BUNDLE_LAB")
    name = given or "bundle"
    command = [sys.executable, str(ROOT / "tests/lab/lab.py")]
    if not given:
        subprocess.run([*command, "up", "--name", name], check=True, cwd=ROOT)
    yield name
    if not given:
        subprocess.run([*command, "down", "--name", name], check=True, cwd=ROOT)


@pytest.fixture(scope="module")
def desk(lab, tmp_path_factory):
    """A directory with an inventory of the lab's host, which knows a secret."""
    here = tmp_path_factory.mktemp("desk")
    listed = subprocess.run(
        [sys.executable, "inventory/lab/lab_hosts.py"],
        cwd=ROOT,
        env={**os.environ, "APIARY_LAB": lab},
        capture_output=True,
        text=True,
        check=True,
    )
    variables = json.loads(listed.stdout)["_meta"]["hostvars"]["gpu-001"]
    variables = {name: value for name, value in variables.items() if name.startswith("ansible_")}
    variables |= {"apiary_artifacts": str(here / "artifacts"), "apiary_concerns": ["host_tuning"]}
    variables["replicas_secrets"] = {"VLLM_API_KEY": KNOWN}
    inventory = {"gpu_hosts": {"hosts": {"gpu-001": variables}}}
    (here / "hosts.yml").write_text(yaml.safe_dump(inventory))
    return here


def run(desk, *words):
    """Run a program as the operator does; return its exit code, stdout and stderr."""
    done = subprocess.run(
        [str(PROGRAMS / words[0]), *words[1:]],
        cwd=desk,
        env={**os.environ, "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"), "ANSIBLE_NOCOLOR": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


def test_the_doctor_finds_a_host_right(desk):
    code, out, err = run(desk, "apiary", "doctor", "-i", "hosts.yml", "--connect", "--json")
    made = json.loads(out)
    wrong = [one for one in made["checks"] if one["outcome"] == "error"]
    assert (code, wrong) == (0, []), err
    said = {one["name"]: one["message"] for one in made["checks"] if one["area"] == "hosts"}
    assert said["Ansible"] == "1 of 1 run a task"
    assert said["root"] == "1 of 1 grant it"
    assert said["clocks"] == "1 of 1 as this one"
    assert made["next"] == "ansible-playbook -i hosts.yml apiary.instinct.plan"


def test_the_doctor_names_a_host_that_is_down_and_asks_the_other(desk):
    inventory = yaml.safe_load((desk / "hosts.yml").read_text())
    hosts = inventory["gpu_hosts"]["hosts"]
    hosts["gpu-002"] = {**hosts["gpu-001"], "ansible_host": "localhost", "ansible_port": 1}
    (desk / "two.yml").write_text(yaml.safe_dump(inventory))
    code, _out, err = run(desk, "apiary", "doctor", "-i", "two.yml", "--connect", "--json")
    assert code == 1
    found = {one["code"]: one["subject"] for one in json.loads(err)["findings"]}
    assert found["DOCTOR-PORT"] == "gpu-002"
    assert found["DOCTOR-HOST-KEY"] == "gpu-002"
    assert "DOCTOR-LOGIN" not in found


def test_a_bundle_of_a_host_has_what_helps_and_no_secret(desk):
    script = PLANT.replace("UNIT", UNIT).replace("LINES", lines())
    script = f"OWN={HOSTS_OWN}\n{script}"
    (desk / "plant.sh").write_text(script)
    code, out, err = run(
        desk, "ansible", "gpu-001", "-i", "hosts.yml", "-b", "-m", "script", "-a", "plant.sh"
    )
    assert code == 0, out + err
    code, out, err = run(desk, "apiary", "support-bundle", "-i", "hosts.yml", "--json")
    assert code == 0, err
    with tarfile.open(desk / "apiary-support.tar.gz") as archive:
        found = {one.name: archive.extractfile(one).read().decode() for one in archive}
    whole = "\n".join([*found, *found.values(), out, err])
    for secret in (KNOWN, HOSTS_OWN):
        for written in (
            secret,
            json.dumps(secret)[1:-1],
            urllib.parse.quote(secret, safe=""),
            base64.b64encode(secret.encode()).decode()[:-4],
            secret.encode().hex(),
        ):
            assert written not in whole, written
    live = "hosts/gpu-001/live"
    assert "the engine starts" in found[f"{live}/journals/{UNIT}.log"]
    assert "[removed:" in found[f"{live}/journals/{UNIT}.log"]
    assert "Environment=" in found[f"{live}/units/{UNIT}.cat"]
    assert "ActiveState=active" in found[f"{live}/units/{UNIT}.show"]
    assert found[f"{live}/files/proc/cmdline"]
    assert "planted" in found[f"{live}/commands/processes.txt"]
    assert not any("credentials" in name for name in found)
    manifest = json.loads(found["MANIFEST.json"])
    assert manifest["hosts"] == [{"host": "gpu-001", "asked": True, "answered": True, "why": ""}]
    assert manifest["removed"]["value"] > 5
