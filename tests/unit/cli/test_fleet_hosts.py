# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The hosts of a fleet as an inventory has them."""

import os
from pathlib import Path

import pytest
from ansible_collections.apiary.instinct.plugins.plugin_utils.findings import ApiaryError

from apiary.fleet.hosts import read_hosts

INVENTORY = """
gpu_hosts:
  vars:
    apiary_artifacts: "{{ base }}/artifacts"
    base: /srv
  children:
    rack1:
      vars: {apiary_rack: r1, apiary_row: a, apiary_site: x}
      hosts:
        gpu-[1:2]: {}
    rack2:
      vars: {apiary_rack: r2, apiary_failure_domain: 7}
      hosts:
        gpu-3: {ansible_host: 10.0.0.3, apiary_address: 10.1.0.3}
routers: {hosts: {router-1: {}}}
monitoring: {hosts: {router-1: {}, monitor-1: {}}}
"""


@pytest.fixture
def here(tmp_path, monkeypatch):
    """An empty directory to work in, without anybody's Ansible configuration."""
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith("ANSIBLE_")]:
        monkeypatch.delenv(name)
    Path("hosts.yml").write_text(INVENTORY)
    return tmp_path


def code(*arguments, **more):
    with pytest.raises(ApiaryError) as refusal:
        read_hosts(*arguments, **more)
    (finding,) = refusal.value.findings
    return finding.code


def test_hosts_with_their_places(here):
    found = read_hosts(["hosts.yml"])
    assert [one.name for one in found.hosts] == ["gpu-1", "gpu-2", "gpu-3"]
    assert (found.total, found.beside, found.localhost) == (3, ("router-1", "monitor-1"), False)
    first, _second, third = found.hosts
    assert (first.domain, first.rack, first.row, first.site) == ("r1", "r1", "a", "x")
    assert first.groups == ("rack1",)
    assert first.addresses == ()
    assert first.artifacts == "/srv/artifacts"
    assert (third.domain, third.rack) == ("7", "r2")
    assert third.addresses == ("10.0.0.3", "10.1.0.3")


@pytest.mark.parametrize(
    ("variables", "spans"),
    [
        ("apiary_deployment: {name: a}", False),
        ("apiary_deployment: {name: a, layout: {nodes: 1}}", False),
        ("apiary_deployment: {name: a, layout: {nodes: 2}}", True),
        ("apiary_deployment: '{{ mine }}', mine: {layout: {nodes: '{{ n }}'}}, n: 2", True),
        ("apiary_deployments: [{name: '{{ unknown }}'}, {layout: auto}]", False),
        ("apiary_deployments: [{name: a}, {layout: {nodes: '{{ unknown }}'}}]", True),
        ("apiary_deployments: '{{ unknown }}'", True),
    ],
)
def test_hosts_whose_replicas_may_span_several_are_told(here, variables, spans):
    Path("hosts.yml").write_text(f"gpu_hosts: {{hosts: {{a: {{}}}}, vars: {{{variables}}}}}\n")
    assert read_hosts(["hosts.yml"]).hosts[0].spans == spans


def test_a_limit_and_a_pattern_are_ansibles(here):
    found = read_hosts(["hosts.yml"], "rack1:&gpu-2:router-1")
    assert [one.name for one in found.hosts] == ["gpu-2"]
    assert found.total == 3
    everybody = read_hosts(["hosts.yml"], None, "all:!rack1:!monitor-1")
    assert {one.name: one.artifacts for one in everybody.hosts} == {
        "gpu-3": "/srv/artifacts",
        "router-1": "artifacts",
    }


def test_what_leaves_no_host_is_refused(here):
    assert code(["hosts.yml"], "router-1") == "PROBE-NO-HOSTS"
    assert code(["a,b"], None, "nobody") == "PROBE-NO-HOSTS"


def test_who_gives_no_inventory_is_told_to(here):
    with pytest.raises(ApiaryError, match="--inventory names another"):
        read_hosts([])


def test_what_is_no_inventory_is_refused(here):
    Path("broken.yml").write_text("gpu_hosts: [")
    assert code(["missing.yml"]) == "FILE-UNREADABLE"
    assert code(["hosts.yml", "broken.yml"]) == "PROBE-INVENTORY"


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("new.yml", "gpu_hosts:\n  hosts:\n    a:\n   b: [\n", "new.yml:4:4"),
        ("new.yml", "gpu_hosts:\n  host:\n    a:\n", "Skipping unexpected key (host)"),
        ("new.ini", "[gpu_hosts]\na\n[gpu_hosts:vars]\nfoo\n", "Expected key=value, got: foo"),
        ("group_vars/gpu_hosts.yml", "a:\n  b: {c: 1\n  d: 2\n", "group_vars/gpu_hosts.yml:3:4"),
    ],
)
def test_what_is_wrong_and_where_is_told(here, name, text, said):
    """Ansible says it among warnings, or not at all: its own words name no file of variables."""
    Path(name).parent.mkdir(exist_ok=True)
    Path(name).write_text(text)
    source = "hosts.yml" if "/" in name else name
    with pytest.raises(ApiaryError) as refused:
        read_hosts([source])
    (finding,) = refused.value.findings
    assert said in finding.message
    assert "`ansible-inventory -" in finding.remedy


def test_a_vaulted_variable_needs_its_password(here):
    from ansible.parsing.vault import VaultLib, VaultSecret

    text = VaultLib([("default", VaultSecret(b"secret"))]).encrypt("apiary_rack: r9\n")
    Path("group_vars").mkdir()
    Path("group_vars/gpu_hosts.yml").write_bytes(text)
    Path("hosts.ini").write_text("[gpu_hosts]\na\n")
    Path("password").write_text("secret\n")
    with pytest.raises(ApiaryError, match="--vault-password-file") as refused:
        read_hosts(["hosts.ini"])
    assert refused.value.findings[0].code == "PROBE-INVENTORY"
    found = read_hosts(["hosts.ini"], vault_password_files=["password"])
    assert found.hosts[0].rack == "r9"


def test_variables_of_the_command_count_as_ansibles(here):
    Path("more.yml").write_text("apiary_site: z\napiary_rack: r8\n")
    first = read_hosts(["hosts.yml"], extra=["@more.yml"], extra_vars={"apiary_row": "c"}).hosts[0]
    assert (first.site, first.domain, first.row) == ("z", "r8", "c")
