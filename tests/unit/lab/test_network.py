# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A lab's network overlaps with nobody's, and every host has an address of its own in it."""

from __future__ import annotations

import json
import subprocess
from ipaddress import IPv4Network
from pathlib import Path

import pytest

from labkit import network
from labkit.console import ApiaryError
from labkit.state import Lab

SUBNET = IPv4Network("10.222.4.0/22")
LAB = Lab(Path("/state"), "demo")


@pytest.mark.parametrize(
    ("taken", "first"),
    [
        ([], "10.222.0.0/22"),
        (["10.222.0.0/22"], "10.222.4.0/22"),
        (["10.222.1.0/24", "10.222.4.7/32", "172.17.0.0/16"], "10.222.8.0/22"),
        (["10.222.0.0/17"], "10.222.128.0/22"),
    ],
)
def test_a_lab_takes_the_first_part_that_is_free(taken: list[str], first: str) -> None:
    assert next(network.free(map(IPv4Network, taken))) == IPv4Network(first)


def test_a_private_range_in_use_as_a_whole_leaves_nothing() -> None:
    assert list(network.free([IPv4Network("10.0.0.0/8")])) == []


def test_hosts_routers_and_the_virtual_address_are_apart() -> None:
    given = [network.address(SUBNET, "virtual")]
    for group, most in network.MOST.items():
        given += [network.address(SUBNET, group, number) for number in range(1, most + 1)]
    assert len(given) == len(set(given))
    gateway, broadcast = str(SUBNET[1]), str(SUBNET.broadcast_address)
    assert not {gateway, broadcast} & set(given)
    assert all(IPv4Network(one).subnet_of(SUBNET) for one in given)


def test_more_hosts_than_addresses_are_refused() -> None:
    with pytest.raises(ApiaryError, match="LAB-ARGUMENT"):
        network.address(SUBNET, "routers", network.MOST["routers"] + 1)


class Docker:
    """What Docker answers about networks, and what it was asked to make."""

    def __init__(self, *subnets: str, refusals: tuple[str, ...] = ()) -> None:
        self.subnets, self.refusals, self.made = subnets, list(refusals), list[str]()

    def __call__(self, argv: list[str], check: bool = True) -> subprocess.CompletedProcess[bytes]:
        words, said, problem = argv[:3], b"", b""
        if words == ["docker", "network", "ls"] and "--filter" not in argv:
            said = b"\n".join(b"id" for _ in self.subnets)
        elif words == ["docker", "network", "inspect"]:
            told = [{"IPAM": {"Config": [{"Subnet": one}]}} for one in self.subnets]
            said = json.dumps([*told, {"IPAM": {"Config": None}}]).encode()
        elif words[0] == "ip":
            said = b'[{"dst": "default"}, {"dst": "10.222.0.0/22"}]'
        elif words == ["docker", "network", "create"]:
            self.made.append(argv[3].removeprefix("--subnet="))
            problem = self.refusals.pop(0).encode() if self.refusals else b""
        return subprocess.CompletedProcess(argv, 1 if problem else 0, said, problem)


def test_a_new_network_avoids_dockers_and_the_machines(monkeypatch: pytest.MonkeyPatch) -> None:
    docker = Docker("10.222.4.0/22", "fd00::/64")
    monkeypatch.setattr(network, "run", docker)
    assert network.ensure(LAB) == IPv4Network("10.222.8.0/22")
    assert docker.made == ["10.222.8.0/22"]


def test_a_network_that_another_checkout_took_meanwhile_is_left_to_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    docker = Docker(refusals=("Pool overlaps with other one on this address space",))
    monkeypatch.setattr(network, "run", docker)
    assert network.ensure(LAB) == IPv4Network("10.222.8.0/22")
    assert docker.made == ["10.222.4.0/22", "10.222.8.0/22"]


def test_a_docker_that_makes_no_network_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(network, "run", Docker(refusals=("no bridge driver",)))
    with pytest.raises(ApiaryError, match="LAB-DOCKER"):
        network.ensure(LAB)
