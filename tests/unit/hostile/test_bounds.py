# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a host sends is bounded, by both ways on which it is gathered."""

import json
import tracemalloc

import pytest
from ansible_collections.apiary.instinct.plugins.plugin_utils.evidence.types import (
    MOST_BYTES,
    bounded,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.findings import ApiaryError
from ansible_collections.apiary.instinct.plugins.plugin_utils.fleet.given import given_evidence
from ansible_collections.apiary.instinct.plugins.plugin_utils.topology.observation import (
    Device,
    Observation,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.topology.read import read

from apiary.host.ssh import connect, probe
from apiary.host.ssh.config import SshOptions
from support.each import each
from support.topology.simulated import simulated_evidence

LARGE = {"host": "a", "files": {"/sys/x": "x" * MOST_BYTES}}


class Channel:
    """A channel of which more comes than anybody reads."""

    def __init__(self, chunk):
        self.chunk, self.read = chunk, 0
        self.eof_received = self.closed = False
        self.exit_status = 0

    def __enter__(self):
        return self

    def __exit__(self, *_why):
        pass

    def recv_ready(self):
        return True

    def recv(self, size):
        self.read += size
        return (self.chunk * size)[:size]

    def settimeout(self, _seconds):
        pass

    def sendall(self, _data):
        pass

    def shutdown_write(self):
        pass

    def fileno(self):
        return 0


class Transport:
    def __init__(self, channel):
        self.channel = channel

    def open_session(self, **_more):
        return self.channel


def test_the_largest_host_has_a_fraction_of_what_may_be():
    # Each of 64 partitions lists its links to all others.
    text = "type 11\n" + "x" * 300
    links = {
        f"/sys/class/kfd/kfd/topology/nodes/{a}/{kind}/{b}/properties": text
        for a in range(66)
        for b in range(65)
        for kind in ("io_links", "p2p_links")
    }
    largest = simulated_evidence()
    largest["files"] |= links
    assert len(bounded(largest, "a")) < MOST_BYTES


def test_evidence_over_ssh_is_read_to_its_bound_and_no_further(monkeypatch):
    channel = Channel(b"x")
    monkeypatch.setattr(connect, "_start", lambda *_arguments: None)
    status, text, _complaint = connect.run(Transport(channel), SshOptions(), "true", b"")
    assert status is None
    assert MOST_BYTES < len(text) <= MOST_BYTES + 2**16
    assert channel.read <= MOST_BYTES + 2**17


@each([
    ("x" * (MOST_BYTES + 1), "PROBE-SIZE"),
    ("[" * 100_000, "PROBE-COLLECTOR"),
    ('{"a": ' * 100_000, "PROBE-COLLECTOR"),
    ("9" * 10_000, "PROBE-COLLECTOR"),
    ('{"a": ' + "9" * 10_000 + "}", "PROBE-COLLECTOR"),
], lambda case: str(case)[:20])  # fmt: skip
def test_a_probe_refuses_what_is_no_evidence(text, code):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(probe.Connector, "connect", lambda *_arguments: None)
        patch.setattr(probe, "run", lambda *_arguments: (0, text, ""))
        request = probe.ProbeRequest("gpu-001", "gpu-001", SshOptions())
        (probed,) = probe.probe_each([request])
    assert probed.bundle is None
    assert [finding.code for finding in probed.failure.findings] == [code]
    assert len(str(probed.failure)) < 2000


def test_evidence_that_playbooks_gather_is_bounded(tmp_path):
    with pytest.raises(ApiaryError, match="PROBE-SIZE"):
        given_evidence(LARGE)
    path = tmp_path / "evidence.json"
    path.write_text(json.dumps(LARGE))
    with pytest.raises(ApiaryError, match="PROBE-SIZE"):
        given_evidence(str(path))
    path.write_text("[" * 100_000)
    with pytest.raises(ApiaryError, match="DOC-TYPE"):
        given_evidence(str(path))


@each([None, 1, "x", [], True])
def test_what_is_no_mapping_is_no_evidence(value):
    with pytest.raises(ApiaryError, match="DOC-TYPE"):
        bounded(value, "gpu-001")


def test_no_host_has_thousands_of_gpus():
    with pytest.raises(ApiaryError, match="PROBE-SIZE"):
        Observation("amd-smi", tuple(Device(index=number) for number in range(2000)))
    listed = json.dumps([{"gpu": number, "bdf": "0000:05:00.0"} for number in range(2000)])
    with pytest.raises(ApiaryError, match="PROBE-SIZE"):
        read(listed, "gpu-001.json")


def test_a_number_that_no_gpu_has_counts_nothing_below_it():
    tracemalloc.start()
    try:
        found = read('{"gpu": 3000000}', "gpu-001.json").findings
        assert "TOPO-TRUNCATED" in {one.code for one in found}
        assert tracemalloc.get_traced_memory()[1] < 20e6
    finally:
        tracemalloc.stop()
