# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A unit that closes ports is not begun while somebody whom nobody named uses them."""

import ipaddress

import pytest
from ansible_collections.apiary.instinct.plugins.module_utils.resources import service

UNIT = "apiary-qwen3-235b-ports.service"
HERE = "10.0.1.1"
LISTEN, ESTABLISHED, TIME_WAIT = "0A", "01", "06"


def word(address, port):
    packed = ipaddress.ip_address(address).packed
    words = (packed[at : at + 4][::-1].hex().upper() for at in range(0, len(packed), 4))
    return f"{''.join(words)}:{port:04X}"


@pytest.fixture
def tables(tmp_path, monkeypatch):
    """Write the kernel's tables of (local address, port, other end, state)."""
    paths = [tmp_path / "tcp", tmp_path / "tcp6"]
    monkeypatch.setattr(service, "TABLES", tuple(map(str, paths)))

    def write(*connections):
        for path in paths:
            rows = [
                f"   {number}: {word(here, port)} {word(peer, 40000 + number)} {state} 00000000:0"
                for number, (here, port, peer, state) in enumerate(connections)
                if (":" in here) == (path.name == "tcp6")
            ]
            path.write_text("\n".join(["  sl  local_address rem_address   st", *rows, ""]))

    return write


def ports(required=False):
    return {
        "kind": "service",
        "name": UNIT,
        "enabled": True,
        "state": "started",
        "peers": {
            "ports": ["8000", "20000-20100"],
            "addresses": ["10.0.0.11/32", "fd00::/64"],
            "required": required,
        },
    }


def test_ports_close_where_only_those_who_may_are_connected(host, tables):
    tables(
        (HERE, 8000, "10.0.0.11", ESTABLISHED),
        ("fd00::1", 8000, "fd00::21", ESTABLISHED),
        (f"::ffff:{HERE}", 8000, "::ffff:10.0.0.11", ESTABLISHED),
        # This host itself, a port that nothing closes, and nobody any more.
        (HERE, 8000, HERE, ESTABLISHED),
        (HERE, 22, "192.0.2.9", ESTABLISHED),
        (HERE, 8000, "192.0.2.9", TIME_WAIT),
        ("0.0.0.0", 8000, "0.0.0.0", LISTEN),
    )
    host.unit(UNIT)
    result = host.converge(ports(required=True))
    assert "failed" not in result
    assert host.commands == [f"enable -- {UNIT}", f"start -- {UNIT}"]


@pytest.mark.parametrize(
    ("here", "port", "peer"),
    [
        (HERE, 8000, "192.0.2.9"),
        (HERE, 20100, "192.0.2.9"),
        ("fd00::1", 8000, "fd00:1::9"),
        (f"::ffff:{HERE}", 8000, "::ffff:192.0.2.9"),
    ],
)
def test_nobody_is_cut_off_whom_the_inventory_does_not_name(host, tables, here, port, peer):
    tables((here, port, peer, ESTABLISHED))
    host.unit(UNIT)
    name = peer.rpartition("ffff:")[2]
    for converge in (host.check, host.converge):
        result = converge(ports())
        (finding,) = [each for item in result["resources"] for each in item["findings"]]
        assert (finding["code"], finding["subject"]) == ("REPLICA-REACH", name)
        assert finding["minor"]
        assert not result["changed"]
        # Who asked for it is refused, before anything is changed.
        refused = converge(ports(required=True))
        assert refused["failed"]
        assert [each["subject"] for each in refused["findings"]] == [name]
    assert host.commands == []


def test_what_is_closed_stays_closed_whoever_is_connected(host, tables):
    tables((HERE, 8000, "192.0.2.9", ESTABLISHED))
    host.unit(UNIT, enabled=True, active="inactive")
    host.converge(ports())
    assert host.commands == [f"start -- {UNIT}"]


def test_a_kernel_without_ipv6_has_one_table(host, tables, monkeypatch):
    monkeypatch.setattr(service, "TABLES", ("/proc/net/tcp", "/nowhere"))
    host.unit(UNIT)
    assert "failed" not in host.converge(ports())
