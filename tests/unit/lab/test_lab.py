# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The lab refuses in findings, and what it records is what the inventory gives to Ansible."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType

import lab as lab_program
import pytest

from labkit import hosts, prerequisites
from labkit.console import REPOSITORY, ApiaryError
from labkit.state import Lab, open_lab

HOST = {
    "group": "gpu_hosts",
    "address": "127.0.0.1",
    "address_in_lab": "10.222.1.1",
    "ssh_port": 20000,
    "user": "ansible",
    "ports": {"8000": 20001},
    "faults": [],
    "container": "apiary-demo-gpu-001",
}


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lab:
    monkeypatch.setenv("APIARY_LAB_DIR", str(tmp_path))
    monkeypatch.setenv("APIARY_LAB", "demo")
    return open_lab("demo")


@pytest.fixture
def lab_that_is_up(lab: Lab) -> Lab:
    key = lab.host_key("gpu-001").with_suffix(".pub")
    key.parent.mkdir(parents=True)
    key.write_text("ssh-ed25519 AAAA gpu-001\n")
    lab.record({"gpu-001": HOST})
    return lab


@pytest.fixture
def lab_hosts(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    # Ansible would take a __pycache__ beside it for an inventory.
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    path = REPOSITORY / "inventory/lab/lab_hosts.py"
    spec = importlib.util.spec_from_file_location("lab_hosts", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


ROUTER = {**HOST, "group": "routers", "virtual_address": "10.222.0.250"}


def no_programs(monkeypatch: pytest.MonkeyPatch, *, user: int) -> None:
    monkeypatch.setattr("shutil.which", lambda program: None)
    monkeypatch.setattr("os.geteuid", lambda: user)


def test_the_state_root_is_in_the_checkout_unless_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("APIARY_LAB_DIR", raising=False)
    assert open_lab("demo").directory == REPOSITORY / ".lab/demo"


@pytest.mark.parametrize("name", ["", "A", "a b", "../a", "-a", "a" * 31])
def test_a_lab_name_is_a_plain_word(name: str) -> None:
    with pytest.raises(ApiaryError, match="LAB-ARGUMENT"):
        open_lab(name)


def test_the_host_key_is_known_under_its_published_port(lab_that_is_up: Lab) -> None:
    assert lab_that_is_up.known_hosts.read_text() == "[127.0.0.1]:20000 ssh-ed25519 AAAA\n"


@pytest.mark.parametrize("user", [0, 1000])
def test_what_it_may_not_install_is_named_in_one_finding(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, user: int
) -> None:
    no_programs(monkeypatch, user=user)
    with pytest.raises(ApiaryError) as refusal:
        prerequisites.ensure_docker(lab)
    (finding,) = refusal.value.findings
    assert finding.code == "LAB-PREREQUISITE"
    assert {"docker.io", "openssh-client"} <= set(finding.message.replace("`", " ").split())


def test_only_root_builds_the_image(monkeypatch: pytest.MonkeyPatch) -> None:
    no_programs(monkeypatch, user=1000)
    with pytest.raises(ApiaryError, match="LAB-ROOT"):
        prerequisites.ensure_debootstrap()


def test_a_daemon_that_is_not_ours_is_left_alone(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    killed: list[int] = []
    monkeypatch.setattr("os.kill", lambda pid, signal: killed.append(pid))
    prerequisites.stop_docker(lab)
    lab.root.mkdir(exist_ok=True)
    lab.dockerd_pid.write_text("1\n")  # a number that another program has by now
    prerequisites.stop_docker(lab)
    assert killed == []
    assert not lab.dockerd_pid.exists()


@pytest.mark.parametrize(
    ("argv", "code"),
    [
        (["up", "--fault", "gpu-009=missing=1"], "LAB-ARGUMENT"),
        (["up", "--engine-dir", "/nowhere"], "LAB-ARGUMENT"),
        (["ssh", "gpu-009"], "LAB-NOT-UP"),
        (["hardware", "gpu-009", "--fault", "missing=3"], "LAB-NOT-UP"),
        (["hardware", "gpu-001", "--fault", "melted=3"], "LAB-ARGUMENT"),
        (["status", "--name", "Not a name"], "LAB-ARGUMENT"),
    ],
)
def test_a_refusal_is_a_finding_and_exit_status_1(
    lab_that_is_up: Lab, capsys: pytest.CaptureFixture[str], argv: list[str], code: str
) -> None:
    assert lab_program.main(argv) == 1
    assert capsys.readouterr().err.startswith(f"error: {code}: ")


def test_a_damaged_state_is_a_finding(
    lab_that_is_up: Lab, capsys: pytest.CaptureFixture[str]
) -> None:
    lab_that_is_up.hosts_file.write_text("{")
    assert lab_program.main(["ssh", "gpu-001"]) == 1
    assert "LAB-STATE" in capsys.readouterr().err


def test_the_inventory_reaches_a_host_with_strict_keys(
    lab_that_is_up: Lab, lab_hosts: ModuleType
) -> None:
    found = lab_hosts.inventory(lab_hosts.lab_directory())
    assert found["gpu_hosts"]["hosts"] == ["gpu-001"]
    variables = found["_meta"]["hostvars"]["gpu-001"]
    assert (variables["ansible_host"], variables["ansible_port"]) == ("127.0.0.1", 20000)
    assert variables["lab_ports"] == {"8000": 20001}
    assert variables["apiary_address"] == "10.222.1.1"
    arguments = variables["ansible_ssh_common_args"].split()
    assert f"-oUserKnownHostsFile={lab_that_is_up.known_hosts}" in arguments
    assert "-oStrictHostKeyChecking=yes" in arguments
    json.dumps(found)


def test_routers_are_a_group_beside_the_gpu_hosts(
    lab_that_is_up: Lab, lab_hosts: ModuleType
) -> None:
    key = lab_that_is_up.host_key("router-001").with_suffix(".pub")
    key.write_text("ssh-ed25519 AAAA router-001\n")
    lab_that_is_up.record({"gpu-001": HOST, "router-001": ROUTER})
    found = lab_hosts.inventory(lab_hosts.lab_directory())
    assert found["routers"]["hosts"] == ["router-001"]
    assert found["gpu_hosts"]["hosts"] == found["lab_demo"]["hosts"] == ["gpu-001"]
    variables = found["_meta"]["hostvars"]
    assert variables["router-001"]["lab_virtual_address"] == "10.222.0.250"
    assert "lab_virtual_address" not in variables["gpu-001"]


def test_the_inventory_of_a_lab_that_is_down_is_empty_and_says_so(
    lab: Lab, lab_hosts: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    assert lab_hosts.inventory(lab.directory)["gpu_hosts"]["hosts"] == []
    assert "make demo" in capsys.readouterr().err


def test_hosts_of_all_other_labs_count(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    owners = {"mine": (lab.root, "demo"), "beside": (lab.root, "docs"), "other": ("/x", "demo")}
    containers = [
        {"Id": name, "Config": {"Labels": {"apiary.root": str(root), "apiary.lab": of}}}
        for name, (root, of) in owners.items()
    ]
    monkeypatch.setattr(hosts, "_inspect_labels", lambda *_labels: containers)
    assert hosts.of_others(lab) == {"beside": "docs", "other": "demo"}
