# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Where the role monitoring has Prometheus and Alertmanager asked, and who of it is watched."""

import json
from pathlib import Path

import pytest
import yaml

from support.playbooks import run_playbook

ROOT = Path(__file__).parents[3]
ROLE = ROOT / "roles/monitoring"
# Where a monitoring host listens, and the addresses that others reach all of them at.
PLACES = {
    "loopback": ("127.0.0.1", ["192.0.2.5"]),
    "everywhere": ("0.0.0.0", ["192.0.2.5"]),
    "alone": ("192.0.2.5", []),
    "two": ("192.0.2.5", ["192.0.2.5", "192.0.2.6"]),
    "ipv6": ("2001:db8::1", ["2001:db8::1", "2001:db8::2"]),
}
ASKED = {
    "loopback": ["127.0.0.1"],
    "everywhere": ["127.0.0.1"],
    "alone": ["192.0.2.5"],
    "two": ["192.0.2.5", "192.0.2.6"],
    "ipv6": ["[2001:db8::1]", "[2001:db8::2]"],
}
INVENTORY = {
    "gpu_hosts": {"hosts": {"gpu-001": {}, "gpu-002": {}}},
    "monitoring": {"hosts": {"monitor-001": {}}},
}


def task(name, text, variables):
    """Return a task that keeps what a template gives; it asks nothing of the host."""
    kept = {"told": f"{{{{ told | default({{}}) | combine({{'{name}': {text}}}) }}}}"}
    return {"ansible.builtin.set_fact": kept, "vars": variables, "name": name}


@pytest.fixture(scope="module")
def told(tmp_path_factory):
    """Have Ansible fill the role's and the playbook's templates; return what came of each."""
    place = tmp_path_factory.mktemp("play")
    playbook = yaml.safe_load((ROOT / "playbooks/telemetry.yml").read_text(encoding="utf-8"))
    hosts = playbook[1]["tasks"][0]["vars"]["monitoring_hosts"]
    tasks = [
        task(
            name,
            "[__monitoring_alertmanagers, __monitoring_prometheuses, __monitoring_gossip,"
            " __monitoring_commands.prometheus]",
            {"monitoring_listen": listen, "monitoring_peers": peers},
        )
        for name, (listen, peers) in PLACES.items()
    ]
    tasks += [
        task("all", "watched | map(attribute='host') | list", {"watched": hosts}),
        task(
            "removed",
            "watched | map(attribute='host') | list",
            {"watched": hosts, "telemetry_without": ["gpu-002"]},
        ),
    ]
    written = {"content": "{{ told | to_json }}", "dest": "told.json", "mode": "0600"}
    tasks.append({"ansible.builtin.copy": written, "name": "Write it down"})
    play = {
        "hosts": "monitor-001",
        "connection": "local",
        "gather_facts": False,
        "vars_files": [f"{ROLE}/defaults/main.yml", f"{ROLE}/vars/main.yml"],
        "tasks": tasks,
    }
    (place / "play.yml").write_text(yaml.safe_dump([play], width=1000))
    (place / "hosts.yml").write_text(yaml.safe_dump(INVENTORY))
    done = run_playbook("-i", "hosts.yml", "play.yml", cwd=place)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]
    return json.loads((place / "told.json").read_text())


@pytest.mark.parametrize("name", PLACES)
def test_each_is_asked_where_it_listens(told, name):
    alertmanagers, prometheuses, _gossip, _command = told[name]
    assert alertmanagers == [f"{address}:9093" for address in ASKED[name]]
    assert prometheuses == [f"{address}:9090" for address in ASKED[name]]


def test_several_alertmanagers_know_each_other_and_one_alone_nobody(told):
    assert told["alone"][2] == told["loopback"][2] == ["--cluster.listen-address="]
    assert told["two"][2] == [
        "--cluster.listen-address=192.0.2.5:9094",
        "--cluster.peer=192.0.2.6:9094",
    ]
    assert told["ipv6"][2][1] == "--cluster.peer=[2001:db8::2]:9094"


def test_it_listens_on_one_address(told):
    assert "--web.listen-address=[2001:db8::1]:9090" in told["ipv6"][3]
    assert "--web.listen-address=127.0.0.1:9090" in told["loopback"][3]


def test_a_host_that_is_removed_is_not_watched(told):
    assert sorted(told["all"]) == ["gpu-001", "gpu-002", "monitor-001"]
    assert sorted(told["removed"]) == ["gpu-001", "monitor-001"]
