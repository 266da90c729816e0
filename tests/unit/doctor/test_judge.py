# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What `apiary doctor` makes of what it sees: no machine is asked."""

from dataclasses import replace

import pytest
from ansible_collections.apiary.instinct.plugins.plugin_utils.findings import Finding

from apiary.help.doctor.judge import judge_controller
from apiary.help.doctor.judge_hosts import judge_answers, judge_inventory, judge_ways
from apiary.help.doctor.types import (
    AnsibleFacts,
    Answer,
    Artifacts,
    Controller,
    Inventory,
    Reached,
)

ANSIBLE = AnsibleFacts(
    version="2.19.14",
    config="/x/ansible.cfg",
    forks=8,
    collections={"apiary.instinct": ("0.1.0", "/x/collections")},
    expected="0.1.0",
)
RIGHT = Controller(
    python="/x/bin/python",
    version="3.11.7",
    ansible=ANSIBLE,
    playbook="/x/bin/ansible-playbook",
    expected="/x/bin/ansible-playbook",
    ssh="OpenSSH_9.2p1",
    agent=1,
    keys=("/h/.ssh/id_ed25519",),
    open_keys=(),
    open_files=1024,
    now=1_800_000_000.0,
)
ROOM = Artifacts("artifacts", True, 50_000)


def codes(checks):
    return [(one.code, one.severity) for made in checks for one in made.findings]


def ansible(**changes):
    return {"ansible": replace(ANSIBLE, **changes)}


def test_a_right_machine_is_right():
    checks = judge_controller(RIGHT, ROOM, 1000)
    assert {one.outcome for one in checks} == {"ok"}
    assert codes(checks) == []


@pytest.mark.parametrize(
    ("changes", "room", "code", "severity", "said"),
    [
        (ansible(version="2.18.3"), {}, "DOCTOR-ANSIBLE", "error", "pip install ."),
        (
            ansible(version=None, refused="No module named 'ansible'"),
            {},
            "DOCTOR-ANSIBLE",
            "error",
            "pip",
        ),
        (
            ansible(version=None, refused="Error reading config file (/a.cfg): no sections."),
            {},
            "DOCTOR-ANSIBLE",
            "error",
            "correct it",
        ),
        (
            ansible(version=None, refused="Config 'DEFAULT_FORKS' from '/a.cfg' has an invalid"),
            {},
            "DOCTOR-ANSIBLE",
            "error",
            "correct it",
        ),
        (ansible(version="2.20.0"), {}, "DOCTOR-ANSIBLE-NEWER", "warning", "ansible-core==2.19"),
        ({"playbook": None}, {}, "DOCTOR-ANSIBLE-PATH", "warning", "export PATH=/x/bin:$PATH"),
        ({"playbook": "/usr/bin/ansible-playbook"}, {}, "DOCTOR-ANSIBLE-PATH", "warning", "/x/bin"),
        (
            ansible(
                version=None,
                refused="Ansible requires the locale encoding to be UTF-8; Detected None.",
            ),
            {},
            "DOCTOR-LOCALE",
            "error",
            "export LC_ALL=C.UTF-8",
        ),
        (ansible(config=None), {}, "DOCTOR-CONFIG", "warning", "apiary --ansible-config"),
        (
            ansible(config=None, warnings=("world writable",)),
            {},
            "DOCTOR-CONFIG-IGNORED",
            "warning",
            "chmod o-w .",
        ),
        (
            ansible(prompts=("become_ask_pass",)),
            {},
            "DOCTOR-PROMPT",
            "warning",
            "ANSIBLE_BECOME_ASK_PASS=0",
        ),
        (ansible(collections={"apiary.instinct": None}), {}, "DOCTOR-COLLECTION", "error", "clone"),
        (
            ansible(collections={"apiary.instinct": ("0.0.9", "/old")}),
            {},
            "DOCTOR-COLLECTION-VERSION",
            "error",
            "rm -r /old",
        ),
        ({"ssh": None}, {}, "DOCTOR-SSH", "error", "openssh-client"),
        ({"open_keys": ("/h/k",)}, {}, "DOCTOR-KEY-OPEN", "warning", "chmod 600 /h/k"),
        ({"open_files": 80}, {}, "DOCTOR-OPEN-FILES", "warning", "ulimit -n"),
        ({"now": 1_000_000_000.0}, {}, "DOCTOR-CLOCK", "error", "timedatectl set-ntp"),
        ({}, {"writable": False}, "DOCTOR-ARTIFACTS", "error", "chown"),
        ({}, {"writable": False, "directory": False}, "DOCTOR-ARTIFACTS", "error", "chown"),
        ({}, {"free_megabytes": 2000}, "DOCTOR-DISK", "warning", "df -h"),
        ({}, {"free_megabytes": 100}, "DOCTOR-DISK", "error", "df -h"),
    ],
)
def test_what_is_wrong_with_a_machine(changes, room, code, severity, said):
    checks = judge_controller(replace(RIGHT, **changes), replace(ROOM, **room), 1000)
    assert (code, severity) in codes(checks)
    found = next(one for made in checks for one in made.findings if one.code == code)
    assert said in found.remedy
    assert "`" in found.remedy  # a command to run next
    made = next(one for one in checks if found in one.findings)
    assert made.outcome == severity


def inventory(*hosts, **more):
    known = {"gpu_hosts": 2} | more.pop("groups", {})
    return Inventory(("inventory/mine",), known, tuple(hosts), **more)


def test_a_right_inventory_is_right():
    seen = inventory(Reached("gpu-001", address="10.0.0.1"), Reached("localhost", local=True))
    assert codes([*judge_inventory(seen, ANSIBLE), *judge_ways(seen.hosts)]) == []


def test_no_hosts_in_the_group_that_playbooks_address():
    seen = inventory(groups={"gpu_hosts": 0, "gpu_host": 3})
    found = codes(judge_inventory(seen, ANSIBLE))
    assert found == [("DOCTOR-GROUP", "error"), ("DOCTOR-GROUP-NAME", "warning")]


def test_a_limit_to_other_hosts_is_no_mistake():
    seen = inventory(groups={"gpu_hosts": 0, "routers": 1}, limited=True)
    assert codes(judge_inventory(seen, ANSIBLE)) == []


def test_a_closed_port_is_tried_at_its_address_and_not_by_the_inventorys_name():
    ways = [Reached("gpu-001", address="10.0.0.1", port=2222, user="admin")]
    checks = judge_answers([Answer("gpu-001", port="Connection refused")], ["inv"], ways)
    (finding,) = checks[0].findings
    assert "`ssh -v -p 2222 admin@10.0.0.1 true`" in finding.remedy


def test_a_group_of_ones_own_is_no_mistake():
    assert codes(judge_inventory(inventory(groups={"rack1": 3, "gpu_hosts_old": 1}), ANSIBLE)) == []


def test_vaults_that_cannot_be_read_and_open_passwords():
    locked = replace(ANSIBLE, vault={"a/vault.yml": "there is no vault password", "b.yml": None})
    seen = inventory(vaulted=("a/vault.yml", "b.yml"), open_passwords=("pass",))
    checks = judge_inventory(seen, locked)
    assert codes(checks) == [("DOCTOR-VAULT", "error"), ("DOCTOR-VAULT-OPEN", "warning")]
    assert next(one for one in checks if one.name == "vault").message == "2 encrypted files"


def test_findings_of_the_variables_stand_where_they_belong():
    found = (
        Finding.from_fields(
            code="ENGINE-UNKNOWN-VERSION",
            severity="error",
            subject="a",
            message="version 0.1",
            remedy="say another",
            source=None,
        ),
        Finding.from_fields(
            code="MODEL-UNKNOWN",
            severity="error",
            subject="a",
            message="the model x",
            remedy="give config",
            source=None,
        ),
        Finding.from_fields(
            code="INVENTORY-VALUE",
            severity="warning",
            subject="a",
            message="m",
            remedy="r",
            source=None,
        ),
    )
    checks = {one.name: one for one in judge_inventory(inventory(variables=found), ANSIBLE)}
    assert checks["engine versions"].findings == found[:1]
    assert checks["models"].findings == found[1:2]
    assert checks["variables"].findings == found[2:]
    assert checks["variables"].outcome == "warning"


def test_ways_that_do_not_lead_there():
    hosts = (
        Reached("gpu-001", address="gpu-001", unresolved="Name or service not known"),
        Reached(
            "gpu-002", address="10.0.0.2", port=2222, known=False, known_hosts="/h/known_hosts"
        ),
        Reached("gpu-003", address="10.0.0.3", known=False, lenient=True),
        Reached("gpu-004", address="10.0.0.4", user="admin", log_in=False),
        Reached("gpu-005", local=True, known=False, log_in=False),
    )
    checks = judge_ways(hosts, ["inventory/mine"])
    remedies = {one.code: (one.subject, one.remedy) for made in checks for one in made.findings}
    assert remedies["DOCTOR-NAME"] == (
        "gpu-001",
        "Set ansible_host for it; `getent hosts gpu-001` asks.",
    )
    subject, remedy = remedies["DOCTOR-HOST-KEY"]
    assert subject == "gpu-002"
    assert "`ssh-keyscan -p 2222 10.0.0.2 >> /h/known_hosts`" in remedy
    assert "ssh-copy-id admin@10.0.0.4" in remedies["DOCTOR-NO-KEY"][1]
    assert len(remedies) == 3


def test_many_hosts_are_told_together():
    names = [f"gpu-{n:03d}" for n in range(1, 101)]
    hosts = [Reached(name, address=name, known=False) for name in names]
    (finding,) = (one for made in judge_ways(hosts, ["inv"]) for one in made.findings)
    assert finding.subject == "100 hosts, gpu-[001:100]"
    assert "ansible -i inv all --list-hosts | tail -n +2 | ssh-keyscan -f -" in finding.remedy


def test_a11_host_keys_behind_a_jump_host_come_by_the_way_of_the_playbooks():
    hosts = [
        Reached(f"gpu-00{n}", address=f"10.0.0.{n}", known=False, direct=False) for n in (1, 2)
    ]
    (finding,) = (one for made in judge_ways(hosts, ["inv"]) for one in made.findings)
    assert "keyscan" not in finding.remedy
    assert "ansible -i inv gpu-001,gpu-002 -m ping -e" in finding.remedy
    assert "StrictHostKeyChecking=accept-new" in finding.remedy


def test_many_host_keys_are_those_of_addresses_not_of_names():
    hosts = [Reached(f"gpu-{n:03d}", address=f"10.0.0.{n}", known=False) for n in range(1, 10)]
    (finding,) = (one for made in judge_ways(hosts, ["inv"]) for one in made.findings)
    addresses = " ".join(one.address for one in hosts)
    assert f"`ssh-keyscan {addresses} >> " in finding.remedy


def test_what_hosts_answer():
    answers = (
        Answer("gpu-001", python="3.11.2", ahead=0.0),
        Answer("gpu-002", port="Connection refused"),
        Answer("gpu-003", login="Permission denied"),
        Answer("gpu-004", root="a password is required", python="3.11.2", ahead=11.0),
        Answer("gpu-005", python="3.6.8", ahead=-4000.0, engine="/opt/vllm/bin/vllm"),
    )
    checks = judge_answers(answers, ["inventory/mine"])
    assert codes(checks) == [
        ("DOCTOR-PORT", "error"),
        ("DOCTOR-LOGIN", "error"),
        ("DOCTOR-SUDO", "error"),
        ("DOCTOR-HOST-PYTHON", "error"),
        ("DOCTOR-NO-ENGINE", "warning"),
        ("DOCTOR-CLOCK", "warning"),
        ("DOCTOR-CLOCK", "error"),
    ]
    assert [one.message for one in checks] == [
        "4 of 5 open",
        "3 of 4 run a task",
        "2 of 3 grant it",
        "2 of 3 new enough",
        "2 of 3 there or brought",
        "1 of 3 as this one",
    ]
    sudo = next(one for made in checks for one in made.findings if one.code == "DOCTOR-SUDO")
    assert "`ansible -i inventory/mine gpu-004 -b -m ansible.builtin.ping`" in sudo.remedy
