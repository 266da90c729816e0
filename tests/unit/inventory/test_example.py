# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The inventory that people copy: every host of it has a plan."""

import dataclasses
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from ansible_collections.apiary.instinct.plugins.plugin_utils.deployment import (
    Deployment,
    check_deployment,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.documents import from_document
from ansible_collections.apiary.instinct.plugins.plugin_utils.findings import has_errors
from ansible_collections.apiary.instinct.plugins.plugin_utils.plan.build import (
    PlanRequest,
    architecture_of,
    build_plans,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.topology.read import from_evidence

from tests.support.printers import machine as printers

ROOT = Path(__file__).parents[3]
EXAMPLE = ROOT / "inventory/example"
MI300X = 0x74A1
VRAM_MI300X = 206141652992


@pytest.fixture(scope="module")
def inventory():
    """What the real ansible-inventory makes of the example, from a clone with nothing beside it."""
    clean = {key: text for key, text in os.environ.items() if not key.startswith("ANSIBLE_")}
    done = subprocess.run(
        [Path(sys.executable).with_name("ansible-inventory"), "-i", EXAMPLE, "--list", "--export"],
        cwd=ROOT,
        env={
            **clean,
            "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"),
            "APIARY_ARTIFACTS": "/nonexistent",
        },
        capture_output=True,
        text=True,
        check=True,
    )
    assert not done.stderr
    return json.loads(done.stdout)


def hosts(inventory, group):
    own = inventory.get(group, {})
    below = [name for child in own.get("children", []) for name in hosts(inventory, child)]
    return [*own.get("hosts", []), *below]


def variables(inventory, host):
    """A host's variables, the more special group's last, as Ansible merges them."""
    groups = [name for name in inventory if name != "_meta" and host in hosts(inventory, name)]
    groups.sort(key=lambda name: -len(hosts(inventory, name)))
    merged = {}
    for name in groups:
        merged |= inventory[name].get("vars", {})
    return merged | inventory["_meta"]["hostvars"].get(host, {})


def evidence(host, model):
    machine = printers.mesh()
    if model == "mi300x":
        cards = [
            dataclasses.replace(card, device_id=MI300X, vram=VRAM_MI300X) for card in machine.cards
        ]
        machine = dataclasses.replace(machine, cards=tuple(cards))
    return printers.bundle(machine, host=host)


def test_every_host_of_the_example_has_a_plan(inventory):
    seen = {}
    for host in hosts(inventory, "gpu_hosts"):
        own = variables(inventory, host)
        asked = own.get("apiary_deployments") or [own["apiary_deployment"]]
        deployments = [from_document(Deployment, one, host) for one in asked]
        assert not has_errors(one for each in deployments for one in check_deployment(each))
        model = "mi300x" if host in hosts(inventory, "mi300x") else "mi325x"
        topology = from_evidence(evidence(host, model))
        plans = build_plans(
            [PlanRequest(one, architecture_of(one, host)) for one in deployments], topology
        )
        assert not has_errors(finding for plan in plans for finding in plan.findings)
        group = next(
            name
            for name in ("large_model", "several_models", "kubernetes_nodes", "mi300x")
            if host in hosts(inventory, name)
        )
        layouts = [f"{len(plan.replicas)}x{len(plan.replicas[0].gpus)}" for plan in plans]
        seen.setdefault(group, set()).add(tuple(layouts))
    assert seen == {
        "large_model": {("2x4",)},
        "several_models": {("1x4", "1x4")},
        "kubernetes_nodes": {("2x4",)},
        "mi300x": {("2x4",)},
    }


def test_every_host_stands_in_a_rack_and_racks_do_not_meet(inventory):
    places = {
        host: variables(inventory, host)["apiary_rack"] for host in hosts(inventory, "gpu_hosts")
    }
    assert len(places) == 20
    assert sorted(set(places.values())) == ["a1", "a2", "b1", "b2", "c1"]


def test_the_file_of_surveys_comes_after_the_hosts(inventory):
    # unsurveyed: it knew the hosts, and no survey of them is there.
    assert sorted(hosts(inventory, "unsurveyed")) == sorted(hosts(inventory, "gpu_hosts"))


def test_what_the_example_asks_of_a_vault_is_in_its_template():
    given = yaml.safe_load((EXAMPLE / "group_vars/all/vault.yml.example").read_text())
    texts = [path.read_text() for path in (EXAMPLE / "group_vars").rglob("*.yml")]
    asked = {name for text in texts for name in re.findall(r"\bvault_\w+", text)}
    assert asked
    assert asked <= set(given)
    assert all(str(value).startswith("change") for value in given.values())
