# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What is collected of a host beside its GPUs."""

import pytest
from ansible_collections.apiary.instinct.plugins.module_utils.evidence import host as host_evidence
from ansible_collections.apiary.instinct.plugins.module_utils.evidence.host import collect_host
from ansible_collections.apiary.instinct.plugins.modules import evidence_info
from ansible_collections.apiary.instinct.plugins.plugin_utils.documents import (
    from_document,
    knowledge,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.evidence.types import (
    Evidence,
    requested,
    sources,
)

from support.host.collected import collected
from support.topology.simulated import absent

FACTS = knowledge("evidence.yml")
SCOPES = FACTS["scopes"]


@pytest.fixture
def root(tmp_path):
    for path, text in {
        "etc/os-release": "ID=debian\nVERSION_ID=12\n",
        "etc/apt/x.sources": "URIs: https://user:secret@mirror.example/x\n",
        "proc/cmdline": "ro quiet\n",
    }.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    return str(tmp_path)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("http://u:p@ss@h/x", "http://***@h/x"),
        ("http://u:p/w@h/x", "http://***@h/x"),
        ("http://token@h/x", "http://***@h/x"),
        ("http://h/x y@z", "http://h/x y@z"),
        ('{"a":"http://u:p@h:1","x":"a@b"}', '{"a":"http://***@h:1","x":"a@b"}'),
        ("[r]\npassword=secret\nname=r", "[r]\npassword= ***\nname=r"),
        ("proxy_password = secret", "proxy_password = ***"),
    ],
)
def test_passwords_are_masked(text, shown):
    assert host_evidence.masked(text) == shown


@pytest.mark.parametrize("scope", ["gpu", *SCOPES])
def test_every_scope_gives_a_valid_document(scope, root):
    bundle = collected([scope], absent, root)
    evidence = from_document(Evidence, bundle, "host")
    assert evidence.files["/etc/os-release"].startswith("ID=debian")


def test_a_command_is_the_same_in_every_scope():
    told = {}
    for scope in (FACTS["common"], *SCOPES.values()):
        for name, forms in scope.get("commands", {}).items():
            assert told.setdefault(name, forms) == forms


def test_the_module_has_every_scope():
    assert sorted(evidence_info.SCOPES) == sorted(["gpu", *SCOPES])


@pytest.mark.parametrize("given", [None, ["gpu"], "gpu"])
def test_gpus_alone_are_what_the_host_knows(given):
    assert requested(given)["sources"] == {
        "commands": {},
        "files": [],
        "links": [],
        "gpu": FACTS["gpu"],
    }


def test_scopes_may_stand_between_commas():
    assert requested("gpu,reboot")["sources"] == sources(["gpu", "reboot"])
    assert "/var/lib/apiary/reboot.json" in sources(["gpu", "reboot"])["files"]


@pytest.mark.parametrize("given", [7, {"gpu": 1}, [["gpu"]], ["rocks"]])
def test_what_is_no_scope_is_left_to_the_module(given):
    assert requested(given)["scopes"] == given


def test_scopes_add_up(root):
    both = collected(["gpu", "acceptance"], absent, root)
    assert {"rocm_smi_topology", "kernel_log", "virtualization"} <= set(both["commands"])


def test_a_password_in_an_address_is_left_out(root):
    wanted = {"files": ["/etc/apt/*.sources"], "commands": {"tool": ["tool"]}}

    def told(argv):
        return 0, b"https://user:secret@mirror.example/x\n", b"", None

    bundle = collect_host(wanted, told, root)
    assert bundle["files"]["/etc/apt/x.sources"] == "URIs: https://***@mirror.example/x\n"
    assert bundle["commands"]["tool"]["stdout"] == "https://***@mirror.example/x\n"
