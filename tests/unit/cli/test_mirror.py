# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""`apiary mirror list`: what hosts fetch, together; no host is asked."""

import json
from pathlib import Path

import jsonschema
from ansible_collections.apiary.instinct.plugins.plugin_utils.documents import to_document
from ansible_collections.apiary.instinct.plugins.plugin_utils.fleet.fetches import Fetch

from apiary.app.cli import main
from apiary.app.runner import Ended
from apiary.app.runner_events import Failed
from apiary.app.schemas import schema
from apiary.fleet.hosts import FleetHost, Hosts
from apiary.help import mirror_command

WEIGHTS = Fetch("weights", "org/model", "current", bytes=8_000_000_000)
IMAGE = Fetch("image", "registry.lan/vllm", "0.33.0", "registry.lan", "sha256:" + "a" * 64)


def test_each_thing_is_listed_once_with_its_hosts(monkeypatch, capsys):
    def run(_scope, names, connect, fetches):
        assert connect
        for name in names[:2]:
            listed = [WEIGHTS, IMAGE] if name == "gpu-001" else [WEIGHTS]
            (Path(fetches) / f"{name}.json").write_text(json.dumps(to_document(listed)))
        failed = {"gpu-003": Failed("Log in", "no route to host", (), "unreachable")}
        refused = {"gpu-004": {"findings": [], "why": "is odd"}}
        return Ended(4, "failed", {}, failed=failed, custom={"doctor_refused": refused})

    hosts = Hosts(tuple(FleetHost(f"gpu-00{number}") for number in (1, 2, 3, 4)), 4)
    monkeypatch.setattr(mirror_command, "read_inventory", lambda _scope: hosts)
    monkeypatch.setattr(mirror_command, "run", run)
    assert main(["mirror", "list", "-i", "x", "--json"]) == 1
    out, err = capsys.readouterr()
    document = json.loads(out)
    jsonschema.validate(document, schema("mirror"))
    assert [(each["fetch"]["kind"], each["hosts"]) for each in document["needed"]] == [
        ("image", "gpu-001"),
        ("weights", "gpu-[001:002]"),
    ]
    assert (document["hosts"], document["known_bytes"]) == (2, 8_000_000_000)
    codes = [each["code"] for each in json.loads(err)["findings"]]
    assert codes == ["FLEET-SURVEY", "FLEET-UNREACHABLE"]
    assert main(["mirror", "list", "-i", "x"]) == 1
    assert "2 hosts; 8.0 GB of known size" in capsys.readouterr().out


def test_it_needs_an_inventory():
    assert main(["mirror", "list"]) == 2
