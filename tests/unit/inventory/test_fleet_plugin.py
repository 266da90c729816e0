# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The inventory of surveys, read by the real ansible-inventory."""

import dataclasses
import json
import os
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from ansible_collections.apiary.instinct.plugins.plugin_utils.documents import dumps
from ansible_collections.apiary.instinct.plugins.plugin_utils.fleet.membership import (
    KINDS,
    group_name,
    groups_of,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.fleet.types import (
    ConcernSurvey,
    HostFacts,
    Served,
    Survey,
)

from support.programs import run_program

ROOT = Path(__file__).parents[3]
NOW = datetime.now(UTC)
SERVED = Served("qwen3-235b", "Qwen/x", "0.33.0", "DP2/TP4/EP4", 2, 4, "0" * 64)
FACTS = HostFacts(
    gpu_model="MI325X",
    gpus=8,
    hives=(8,),
    driver="6.16.6",
    rocm="7.2.4",
    kernel="6.8.0-31-generic",
    firmware=(("smc", "1"),),
    health="healthy",
)
HOSTS = """
gpu_hosts:
  children:
    first:
      hosts:
        gpu-[001:003]:
      vars: {apiary_rack: r1}
    second:
      hosts:
        gpu-[004:006]:
      vars: {apiary_rack: "{{ 'r' ~ row }}", row: 2}
routers:
  hosts:
    router-1:
"""


def survey(host, age_hours=1.0, **parts):
    at = (NOW - timedelta(hours=age_hours)).strftime("%Y-%m-%dT%H:%M:%SZ")
    return dataclasses.replace(Survey(host, at, facts=FACTS, running=(SERVED,)), **parts)


def save(directory, *surveys):
    for one in surveys:
        path = directory / one.host / "survey.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(dumps(one))


def listed(where, *options, name="surveys.apiary.yml", config="", hosts=HOSTS):
    """What ansible-inventory --list says of an inventory with this file, and its warnings."""
    inventory = where / "mine"
    inventory.mkdir(exist_ok=True)
    (inventory / "hosts.yml").write_text(hosts)
    (inventory / name).write_text(f"plugin: apiary.instinct.fleet\n{config}")
    clean = {key: text for key, text in os.environ.items() if not key.startswith("ANSIBLE_")}
    environment = {
        **clean,
        "ANSIBLE_COLLECTIONS_PATH": str(ROOT / "collections"),
        "ANSIBLE_LOCALHOST_WARNING": "false",
    }
    words = ("-i", "mine", "--list", *options)
    done = run_program("inventory", words, cwd=where, environment=environment)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout), " ".join(done.stderr.split())


def members(found):
    return {name: group["hosts"] for name, group in found.items() if "hosts" in group}


@pytest.fixture(scope="module")
def fleet(tmp_path_factory):
    """Six hosts: two alike, a sick old one, one that was not reached, one broken file, one new."""
    where = tmp_path_factory.mktemp("fleet")
    split = dataclasses.replace(FACTS, hives=(4, 4), driver="6.14.14", health="sick", rocm=None)
    save(
        where / "artifacts",
        survey("gpu-001"),
        survey("gpu-002", concerns=(ConcernSurvey("rocm", False),), running=()),
        survey("gpu-003", age_hours=300.0, facts=split),
        survey("gpu-004", reached=False, facts=HostFacts(), running=()),
        survey("gpu-005"),
        survey("stranger"),
    )
    (where / "artifacts/gpu-005/survey.json").write_text('{"schema": "apiary.survey/v1", "ho')
    (where / "artifacts/gpu-002/quarantine.json").write_text("{}")
    return (
        where,
        *listed(
            where,
            config="keyed_groups:\n  - {key: apiary_facts.kernel, prefix: kernel}\n"
            "groups:\n  slow: apiary_facts.driver is version('6.16', '<')\n",
        ),
    )


def test_hosts_are_grouped_by_what_was_found(fleet):
    _where, found, _said = fleet
    assert members(found) == {
        "first": ["gpu-001", "gpu-002", "gpu-003"],
        "second": ["gpu-004", "gpu-005", "gpu-006"],
        "routers": ["router-1"],
        "gpu_mi325x": ["gpu-001", "gpu-002", "gpu-003"],
        "hive_8": ["gpu-001", "gpu-002"],
        "hive_4_4": ["gpu-003"],
        "driver_6_16_6": ["gpu-001", "gpu-002"],
        "driver_6_14_14": ["gpu-003"],
        "rocm_7_2_4": ["gpu-001", "gpu-002"],
        "health_healthy": ["gpu-001", "gpu-002"],
        "health_sick": ["gpu-003"],
        "serves_qwen3_235b": ["gpu-001", "gpu-003"],
        "rack_r1": ["gpu-001", "gpu-002", "gpu-003"],
        "rack_r2": ["gpu-004", "gpu-005", "gpu-006"],
        "quarantined": ["gpu-002"],
        "stale": ["gpu-003"],
        "unreached": ["gpu-004"],
        "unsurveyed": ["gpu-005", "gpu-006"],
        "kernel_6_8_0_31_generic": ["gpu-001", "gpu-002", "gpu-003"],
        "slow": ["gpu-003"],
    }


def test_templates_see_the_facts(fleet):
    _where, found, _said = fleet
    variables = found["_meta"]["hostvars"]
    # Unsafe: what a host says is never a template.
    assert variables["gpu-001"]["apiary_facts"]["gpu_model"] == {"__ansible_unsafe": "MI325X"}
    assert variables["gpu-001"]["apiary_facts"]["hives"] == [8]
    assert variables["gpu-001"]["apiary_facts"]["gpus"] == 8
    assert variables["gpu-001"]["apiary_facts"]["settled"] is True
    assert variables["gpu-002"]["apiary_facts"]["settled"] is False
    assert variables["gpu-004"]["apiary_facts"]["reached"] is False
    assert "apiary_facts" not in variables["gpu-005"]


def test_a_broken_file_and_old_ones_are_told_once_each(fleet):
    _where, _found, said = fleet
    assert said.count("FILE-SYNTAX") == 1
    assert "artifacts/gpu-005/survey.json" in said
    assert said.count("INVENTORY-STALE") == 1
    assert "gpu-003: 300 hours" in said
    assert said.count("[WARNING]") == 2


def test_which_groups_and_their_names_are_options(fleet):
    where, _found, _said = fleet
    config = "prefix: seen_\ngroup_by: [gpu, stale, row]\nhosts: true\nmax_age_hours: 0\n"
    found, said = listed(where, name="last.fleet.yaml", config=config)
    seen = {name: hosts for name, hosts in members(found).items() if name.startswith("seen_")}
    assert list(seen) == ["seen_gpu_mi325x"]
    assert set(seen["seen_gpu_mi325x"]) == {"gpu-001", "gpu-002", "gpu-003", "stranger"}
    assert "INVENTORY-STALE" in said  # of the fixture's own file, beside this one


def test_a_file_that_is_read_before_the_hosts_says_so(tmp_path):
    found, said = listed(tmp_path, name="a.fleet.yml")
    assert "gpu_mi325x" not in found
    assert "INVENTORY-NO-HOSTS" in said


def test_a_host_may_have_artifacts_elsewhere_and_no_group(tmp_path):
    inventory = tmp_path / "mine/group_vars"
    inventory.mkdir(parents=True)
    (inventory / "all.yml").write_text("apiary_artifacts: elsewhere\n")
    save(tmp_path / "elsewhere", survey("one"))
    found, said = listed(tmp_path, hosts="some: {hosts: {one: null}}\n")
    assert members(found)["gpu_mi325x"] == ["one"]
    assert not said


def test_a_directory_that_may_not_be_looked_into_ends_nothing(tmp_path):
    name = "long" * 80  # refused by any file system, to root as well
    save(tmp_path / "artifacts", survey("gpu-001"))
    hosts = f"gpu_hosts:\n  hosts:\n    gpu-001:\n    {name}:\n"
    found, warned = listed(tmp_path, hosts=hosts)
    assert members(found)["unsurveyed"] == [name]
    assert members(found)["health_healthy"] == ["gpu-001"]
    assert "File name too long, so the host counts as never surveyed" in warned


def test_a_rack_that_only_a_play_knows_ends_nothing(tmp_path):
    save(tmp_path / "artifacts", survey("gpu-001"), survey("gpu-002"))
    hosts = """
gpu_hosts:
  vars: {apiary_rack: "{{ ansible_facts.rack }}"}
  hosts: {gpu-001: , gpu-002: }
"""
    found, warned = listed(tmp_path, hosts=hosts)
    assert members(found)["health_healthy"] == ["gpu-001", "gpu-002"]
    assert warned.count("INVENTORY-UNRESOLVED") == 1


def test_what_a_host_tells_is_no_template(tmp_path):
    facts = dataclasses.replace(FACTS, driver="{{ 6 * 7 }}")
    save(tmp_path / "artifacts", survey("gpu-001", facts=facts))
    found, _warned = listed(tmp_path, hosts="gpu_hosts:\n  hosts:\n    gpu-001:\n")
    assert "driver__6_7" in members(found)
    told = json.dumps(found["_meta"]["hostvars"]["gpu-001"]["apiary_facts"]["driver"])
    assert "{{ 6 * 7 }}" in told


def test_the_page_renders():
    done = subprocess.run(
        [
            Path(sys.executable).with_name("ansible-doc"),
            *("-t", "inventory", "--json", "apiary.instinct.fleet"),
        ],
        cwd=ROOT,
        env={**os.environ, "ANSIBLE_COLLECTIONS_PATH": str(ROOT / "collections")},
        capture_output=True,
        text=True,
        check=True,
    )
    options = json.loads(done.stdout)["apiary.instinct.fleet"]["doc"]["options"]
    assert sorted(options["group_by"]["choices"]) == sorted(KINDS)
    assert set(options["group_by"]["default"]) <= set(KINDS)


@pytest.mark.parametrize(
    ("kind", "value", "name"),
    [
        ("driver", "6.16.6", "driver_6_16_6"),
        ("os", "ubuntu 24.04", "os_ubuntu_24_04"),
        ("bios", "2.4 (05/13/2025)", "bios_2_4_05_13_2025"),
        ("partitions", "SPX/NPS1+CPX/NPS4", "partitions_spx_nps1_cpx_nps4"),
    ],
)
def test_names_are_such_as_ansible_takes(kind, value, name):
    assert group_name(kind, value) == name


def test_every_kind_makes_a_group_of_a_host_that_tells_everything():
    facts = HostFacts("MI325X", 8, 1, (8,), 2, "SPX/NPS1", "1", "2", "3", "4", "5", (), "sick")
    states = [kind for kind in KINDS if kind in ("stale", "quarantined", "unreached", "unsurveyed")]
    places = {kind: "x" for kind in ("rack", "row", "site", "failure_domain")}
    found = list(groups_of(survey("a", facts=facts), places, states, KINDS))
    assert len(found) == len(set(found)) == len(KINDS)
