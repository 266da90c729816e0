# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Who reaches the ports of replicas: the rules, their unit, and the way back."""

import shutil
import subprocess
from dataclasses import replace

import pytest
from ansible_collections.apiary.instinct.plugins.module_utils.resources.converge import name_of
from ansible_collections.apiary.instinct.plugins.plugin_utils.plan.replica import agent_port
from ansible_collections.apiary.instinct.plugins.plugin_utils.render.replicas import (
    closed,
    decide,
    opened,
)

from support.demo import demo_plan

from .test_replicas import OPTIONS

RULES = "/etc/apiary/qwen3-235b/ports.nft"
UNIT = "apiary-qwen3-235b-ports.service"
ADDRESSES = ["10.0.0.11/32", "fd00::11", "10.1.0.0/24"]


def contents(addresses, plan=None):
    resources = closed(plan or demo_plan(), addresses)
    return {item["path"]: item["content"] for item in resources if item["kind"] == "file"}


def test_ports_are_closed_before_the_replicas_and_opened_by_the_same_names():
    names = [
        name_of(item) for item in decide(demo_plan(), {**OPTIONS, "reach": []}, None).resources
    ]
    assert names[1:] == [
        "packages nftables",
        f"file {RULES}",
        f"file /etc/systemd/system/{UNIT}",
        f"service {UNIT}",
        "replicas qwen3-235b",
        "release qwen3-235b",
    ]
    left = [name_of(item) for item in opened("qwen3-235b")]
    # The unit stops while it can still say how.
    assert left == [names[4], names[3], names[2]]
    without = decide(demo_plan(), {**OPTIONS, "reach": None}, None).resources
    assert list(without[1:4]) == list(opened("qwen3-235b"))


def test_the_rules_name_every_port_of_an_engine_and_everybody_who_may():
    plan = demo_plan()
    text = contents(ADDRESSES)[RULES]
    ports = [
        each
        for replica in plan.replicas
        for each in (str(replica.port), f"{replica.internal_port}-{agent_port(replica)}")
    ]
    assert f"tcp dport {{ {', '.join(ports)} }}" in text
    assert "ip saddr { 10.0.0.11/32, 10.1.0.0/24 } accept" in text
    assert "ip6 saddr { fd00::11/128 } accept" in text
    # It replaces a table of its own in one step, whatever else the host filters.
    assert text.count("table inet apiary-qwen3-235b\n") == 2
    assert 'iifname != "lo"' in text


def test_nobody_leaves_the_host_itself():
    text = contents([])[RULES]
    assert "saddr" not in text
    assert "reject with tcp reset" in text


def test_an_engine_over_hosts_keeps_the_ports_at_which_they_meet():
    plan = demo_plan()
    spans = [replace(one, internal_port=None, master_port=24000) for one in plan.replicas[:1]]
    text = contents([], replace(plan, replicas=tuple(spans)))[RULES]
    assert f"tcp dport {{ {spans[0].port}, {agent_port(spans[0])} }}" in text


def test_the_unit_runs_before_the_engines_and_again_with_the_host_s_own_rules():
    text = contents(ADDRESSES)[f"/etc/systemd/system/{UNIT}"]
    units = " ".join(replica.unit for replica in demo_plan().replicas)
    assert f"Before={units}\n" in text
    assert "PartOf=nftables.service" in text
    assert f"ExecStart=/usr/sbin/nft -f {RULES}\n" in text
    # What changes with the inventory is no change of the unit, and restarts nobody.
    assert "10.0.0" not in text


@pytest.mark.parametrize("addresses", [[], ADDRESSES])
def test_nft_takes_the_rules(addresses, tmp_path):
    program = shutil.which("nft")
    if program is None:
        pytest.skip("no nft here; tests/e2e/test_reach.py has one")
    path = tmp_path / "ports.nft"
    path.write_text(contents(addresses)[RULES])
    subprocess.run([program, "--check", "--file", path], check=True)
