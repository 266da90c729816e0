# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What is tried from a host before a run changes it, and what is made of it; no host is asked."""

from __future__ import annotations

import json

import pytest
from ansible_collections.apiary.instinct.plugins.plugin_utils.documents import dumps
from ansible_collections.apiary.instinct.plugins.plugin_utils.evidence.types import (
    CommandOutput,
    Evidence,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.findings import Finding
from ansible_collections.apiary.instinct.plugins.plugin_utils.fleet.applying import Pending
from ansible_collections.apiary.instinct.plugins.plugin_utils.fleet.fetches import fetches
from ansible_collections.apiary.instinct.plugins.plugin_utils.fleet.preflight import (
    due,
    evaluate,
    in_table,
    lines,
    plans_of,
    registry_of,
    table,
    trials,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.fleet.types import Survey

from support.demo import demo_plan

DIGEST = "sha256:" + "a" * 64
PINS = f"vllm==0.33.0 --hash={DIGEST}\n# why\ntorch==2.9.1 \\\n    --hash={DIGEST}\n"
UNIT = "[Mount]\nWhat=nfs1:/models\nWhere=/mnt/models\nType=nfs\nOptions=vers=4.1,hard,nconnect=8\n"
SOURCES = (
    "Types: deb\nURIs: https://user:secret@mirror/rocm\nSuites: noble flat/\nComponents: main\n"
)
REPO = "[rocm]\nname=ROCm\nbaseurl=https://mirror/el9\ngpgkey=file:///etc/pki/x\n"
KEY = {"url": "https://mirror/key.gpg", "path": "/k", "fingerprint": "AB", "format": "binary"}
ROCM = {
    "kind": "repository",
    "name": "rocm",
    "manager": "apt",
    "keys": [KEY],
    "files": [{"path": "/etc/apt/sources.list.d/rocm.sources", "content": SOURCES}],
    "packages": [{"name": "rocm-core", "version": "7.2.2*", "spec": "rocm-core=7.2.2*"}],
}
MOUNT = {"kind": "mount", "path": "/mnt/models", "unit": "mnt-models.mount", "action": "mount"}
RESOURCES = {
    "rocm": [
        ROCM,
        {
            "kind": "transaction",
            "name": "rocm",
            "packages": ROCM["packages"],
            "install": [["linux-headers-6.8.0-60-generic"], ["rocm-core=7.2.2*"]],
            "optional": [{"kernel": "k", "packages": ["linux-headers-generic"]}],
        },
    ],
    "weight_cache": [
        {"kind": "packages", "names": ["nfs-common"]},
        {"kind": "file", "path": "/etc/systemd/system/mnt-models.mount", "content": UNIT},
        MOUNT,
    ],
    "engine": [
        {
            "kind": "wheels",
            "path": "/opt/vllm/0.33.0",
            "requirements": PINS,
            "index_url": "https://index/simple/",
            "wheels": "/srv/wheels",
        },
        {"kind": "image", "reference": f"registry.lan:5000/vllm@{DIGEST}", "version": "0.33.0"},
        {"kind": "image", "reference": "registry.lan/old@sha256:0", "state": "absent"},
    ],
    "replicas:qwen3-235b": [{"kind": "replicas", "deployment": "qwen3-235b"}],
}
NAMES = {
    "repository": "name",
    "transaction": "name",
    "mount": "path",
    "wheels": "path",
    "file": "path",
    "image": "reference",
    "replicas": "deployment",
}


def left(*unchanged, resources=RESOURCES):
    """What a survey leaves, of which these roles have nothing to change."""
    reports = {
        role: tuple(
            {
                "role": role,
                "resource": f"{item['kind']} {item.get(NAMES.get(item['kind'])) or 'nfs-common'}",
                "changed": role not in unchanged,
                "findings": [],
            }
            for item in items
        )
        for role, items in resources.items()
    }
    owned = {role: tuple(items) for role, items in resources.items()}
    saved = {"qwen3-235b/plan.json": dumps(demo_plan()), "plan.json": dumps(demo_plan())}
    return Pending(Survey("gpu-001", "2026-11-27T09:00:00Z"), True, owned, reports, {}, saved=saved)


def everything(pending):
    return [item for items in pending.resources.values() for item in items]


def evidence(**commands):
    """Evidence of a right host, with the outputs of these commands instead."""
    right = {
        "replicas": (0, ""),
        "clock": (0, "NTP=yes\nNTPSynchronized=yes\n"),
        "room": (
            0,
            "File Mounted on Avail IAvail\n"
            "/opt / 90000000000 900000\n/var/lib / 90000000000 900000\n",
        ),
        "listeners": (0, 'LISTEN 0 128 0.0.0.0:22 0.0.0.0:* users:(("sshd",pid=7,fd=3))\n'),
        "ufw": (0, "Status: inactive\n"),
    }
    outputs = {**right, **commands}
    return Evidence(
        "gpu-001",
        "now",
        "3",
        {
            name: CommandOutput(tuple(name.split(" ", 1)), code, out, more[0] if more else "", 0.1)
            for name, (code, out, *more) in outputs.items()
        },
    )


def found(**commands):
    pending = left()
    return evaluate("gpu-001", evidence(**commands), due(pending), plans_of(pending))


def test_only_what_a_run_would_change_is_tried():
    pending = left()
    tried = {(one["kind"], one["target"]) for one in trials(due(pending), everything(pending))}
    assert tried == {
        ("apt", ""),
        ("nfs", "nfs1:/models vers=4.1,hard,nconnect=8"),
        ("path", "/srv/wheels"),
        ("url", "https://index/simple/vllm/"),
        ("registry", "registry.lan:5000"),
    }
    settled = left("rocm", "weight_cache", "engine", "replicas:qwen3-235b")
    assert trials(due(settled), everything(settled)) == []
    no_engine = left("engine")
    kinds = {one["kind"] for one in trials(due(no_engine), everything(no_engine))}
    assert kinds == {"apt", "nfs"}


def test_repositories_of_dnf_are_tried_by_their_index():
    repository = {**ROCM, "files": [{"path": "/etc/yum.repos.d/rocm.repo", "content": REPO}]}
    assert {"kind": "url", "target": "https://mirror/el9/repodata/repomd.xml"} in trials(
        [repository], [repository]
    )


def test_a_registry_is_what_a_reference_names():
    digest = f"@{DIGEST}"
    assert registry_of(f"registry.lan:5000/a/b{digest}") == "registry.lan:5000"
    assert registry_of(f"localhost/a{digest}") == "localhost"
    assert registry_of(f"rocm/vllm{digest}") is None
    assert registry_of("vllm") is None


def test_a_right_host_has_no_findings():
    assert found() == ()


LISTENS = 'LISTEN 0 128 *:{} *:* users:(("nginx",pid=41,fd=6))\n'
PORT = demo_plan().replicas[0].port
DROPPING = (
    "table inet {} {{\n\tchain in {{\n"
    "\t\ttype filter hook input priority filter; policy drop;\n\t}}\n}}\n"
)
FAULTS = {
    "mirror": {"apt ": (1, "", "https://archive/dists/noble/InRelease: Could not connect")},
    "rpm": {"url https://mirror/el9/repodata/repomd.xml": (1, "", "HTTP 404")},
    "export": {"nfs nfs1:/models vers=4.1": (1, "", "mount.nfs: access denied by server")},
    "registry": {"registry registry.lan:5000": (1, "", "[Errno 111] Connection refused")},
    "index": {"url https://index/simple/vllm/": (1, "404", "HTTP 404")},
    "directory": {"path /srv/wheels": (1, "", "is not there")},
    "disk": {
        "room": (
            0,
            "File Mounted Avail IAvail\n/opt / 900000000 900000\n/var/lib / 9000000000 900000\n",
        )
    },
    "inodes": {
        "room": (
            0,
            "File Mounted Avail IAvail\n/opt / 90000000000 -\n/var/lib /var 90000000000 900\n",
        )
    },
    "clock": {"clock": (0, "NTP=no\nNTPSynchronized=no\n")},
    "port": {"listeners": (0, LISTENS.format(PORT))},
    "firewalld": {
        "firewalld": (0, "public (active)\n  target: default\n  ports: 22/tcp 9100-9200/tcp\n")
    },
    "ufw": {"ufw": (0, "Status: active\n22/tcp ALLOW Anywhere\n")},
    "nftables": {
        "nftables": (
            0,
            DROPPING.format("apiary") + DROPPING.format("site"),
        ),
        "ufw": (None, ""),
    },
}


def test_each_fault_is_one_row_of_the_table(golden):
    """Read the golden file as an operator would: each fault, then the table of two hosts."""
    text = ""
    for fault, outputs in FAULTS.items():
        findings = found(**outputs)
        rows = [row for row in table({"gpu-001": findings, "gpu-002": ()}) if row.findings]
        assert len(rows) == 1, fault
        assert in_table(findings) == findings
        text += f"## {fault}\n" + "\n".join(lines(rows)) + "\n\n"
    golden("fleet/preflight.txt", text)


@pytest.mark.parametrize(
    ("name", "outputs"),
    [
        (
            "a rule lets the port pass",
            {"ufw": (0, "Status: active\n1024:65535/tcp ALLOW 10.0.0.0/8\n")},
        ),
        ("a zone that accepts all", {"firewalld": (0, "trusted (active)\n  target: ACCEPT\n")}),
        (
            "a chain of our own alone",
            {
                "nftables": (
                    0,
                    DROPPING.format("apiary-a"),
                ),
                "ufw": (None, ""),
            },
        ),
        (
            "a replica that runs has its port",
            {
                "listeners": (0, LISTENS.format(PORT)),
                "replicas": (0, f"{demo_plan().replicas[0].unit} loaded active running x\n"),
            },
        ),
        (
            "one that is to go may have it",
            {
                "listeners": (0, LISTENS.format(PORT)),
                "replicas": (0, "apiary-old@0.service loaded active running x\n"),
            },
        ),
        ("no timedatectl", {"clock": (None, "")}),
        ("nothing that df knows", {"room": (1, "df: unrecognized option\nx y\n")}),
    ],
)
def test_what_is_no_fault(name, outputs):
    assert found(**outputs) == (), name


def test_behind_a_mirror_a_registry_need_not_answer():
    pending = left()
    mirror = {"kind": "file", "path": "/etc/containers/registries.conf.d/90-apiary.conf"}
    resources = [*due(pending), {**mirror, "content": '[[registry.mirror]]\nlocation = "m"\n'}]
    seen = evidence(**FAULTS["registry"])
    (finding,) = evaluate("gpu-001", seen, resources, ())
    assert (finding.code, finding.severity) == ("PREFLIGHT-IMAGE", "warning")


def test_hosts_that_share_a_fault_have_one_finding():
    key = Finding("ROCM-KEY-UNREADABLE", "https://mirror/key.gpg", "can't be fetched")
    clocks = {
        f"gpu-{n:03}": [Finding("PREFLIGHT-CLOCK", f"gpu-{n:03}", "is off")] for n in range(1, 9)
    }
    rows = {row.name: row for row in table({**clocks, "gpu-009": [key], "gpu-010": [key]})}
    assert rows["time"].outcome == "warning"
    assert rows["time"].message == "2 of 10 hosts"
    assert [one.subject for one in rows["time"].findings] == ["8 hosts, gpu-[001:008]"]
    (finding,) = rows["repository keys"].findings
    assert finding.subject == "2 hosts, gpu-[009:010]: https://mirror/key.gpg"
    assert "Nothing was changed" in lines(tuple(rows.values()))[-1]


def test_all_that_a_host_fetches_is_read_from_its_resources(golden):
    text = "\n".join(json.dumps(vars(one)) for one in fetches(everything(left()), [demo_plan()]))
    assert "secret" not in text
    golden("fleet/fetches.txt", text + "\n")


def test_an_unmounted_export_is_not_fetched():
    gone = [unmounted(item) for item in RESOURCES["weight_cache"]]
    assert not [one for one in fetches(gone) if one.kind == "export"]


def unmounted(item):
    return {**item, "action": "unmount"} if item["kind"] == "mount" else item
