# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What is collected of a host beside its GPUs."""

import pytest
from ansible_collections.apiary.instinct.plugins.module_utils.evidence import host as host_evidence
from ansible_collections.apiary.instinct.plugins.module_utils.evidence import scopes, sources
from ansible_collections.apiary.instinct.plugins.module_utils.evidence.host import (
    SCOPES,
    collect_host,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.documents import from_document
from ansible_collections.apiary.instinct.plugins.plugin_utils.evidence.types import Evidence

from support.topology.simulated import absent


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
    bundle = collect_host([scope], absent, root)
    evidence = from_document(Evidence, bundle, "host")
    assert evidence.files["/etc/os-release"].startswith("ID=debian")


def test_a_command_is_the_same_in_every_scope():
    told = {}
    for scope in (scopes.COMMON, *SCOPES.values()):
        for name, argvs in scope.commands:
            assert told.setdefault(name, argvs) == argvs


def test_scopes_add_up(root):
    both = collect_host(["gpu", "acceptance"], absent, root)
    assert {"rocm_smi_topology", "kernel_log", "virtualization"} <= set(both["commands"])


def test_a_password_in_an_address_is_left_out(root, monkeypatch):
    monkeypatch.setitem(SCOPES, "rocm", sources.Scope(files=("/etc/apt/*.sources",)))
    tool = sources.Scope(commands=(("tool", (("tool",),)),))
    monkeypatch.setitem(SCOPES, "weights", tool)

    def told(argv):
        return 0, b"https://user:secret@mirror.example/x\n", b"", None

    bundle = collect_host(["rocm", "weights"], told, root)
    assert bundle["files"]["/etc/apt/x.sources"] == "URIs: https://***@mirror.example/x\n"
    assert bundle["commands"]["tool"]["stdout"] == "https://***@mirror.example/x\n"
