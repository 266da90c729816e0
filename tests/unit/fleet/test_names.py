# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

import pytest
from ansible_collections.apiary.instinct.plugins.plugin_utils.fleet.names import (
    Own,
    fold,
    neutral,
)


@pytest.mark.parametrize(
    ("names", "folded"),
    [
        ([], ""),
        (["localhost"], "localhost"),
        (["gpu-1"], "gpu-1"),
        (["gpu-002", "gpu-001", "gpu-002"], "gpu-[001:002]"),
        (["gpu-001", "gpu-003"], "gpu-001, gpu-003"),
        (["n9", "n10", "n11"], "n[9:11]"),
        (["a-1.lab", "a-2.lab", "b-3.lab"], "a-[1:2].lab, b-3.lab"),
        (["gpu-09", "gpu-10", "gpu-9"], "gpu-09, gpu-[9:10]"),
        # Ansible refuses a range whose ends are not as long, once there are zeros in front.
        (["gpu-09", "gpu-10", "gpu-99", "gpu-100"], "gpu-[09:10], gpu-[99:100]"),
        (["gpu-098", "gpu-099", "gpu-100"], "gpu-[098:100]"),
        (["10.0.0.1", "10.0.0.2"], "10.0.0.[1:2]"),
        (["r1-n1", "r2-n1"], "r1-n1, r2-n1"),
    ],
)
def test_names_fold_into_the_ranges_of_an_inventory(names, folded):
    assert fold(names) == folded


def texts(*given, name="gpu-1", addresses=(), **more):
    return list(neutral(given, Own(name, addresses), **more).texts)


def test_a_host_is_called_by_its_whole_name_only():
    text = "gpu-1 gpu-12 agpu-1 my-gpu-1 /gpu-1/ gpu-1.example.com gpu-1-nic gpu-1_x"
    assert texts(text) == [
        "{host} gpu-12 agpu-1 my-gpu-1 /{host}/ {host}.example.com gpu-1-nic gpu-1_x"
    ]


def test_the_short_name_is_the_hosts_too():
    assert texts("gpu-1 gpu-1.lab gpu-2.lab", name="gpu-1.lab") == ["{host} {host} gpu-2.lab"]


def test_an_address_is_no_part_of_another():
    given = "10.0.0.1:80 110.0.0.1 10.0.0.11 10.0.0.1/24 10"
    assert texts(given, addresses=("10.0.0.1",)) == [
        "{address}:80 110.0.0.1 10.0.0.11 {address}/24 10"
    ]
    assert texts(given, name="10.0.0.1") == ["{host}:80 110.0.0.1 10.0.0.11 {host}/24 10"]


def test_pci_addresses_are_numbered_in_their_order_over_all_texts():
    assert texts("0000:26:00.0", "0000:05:00.0 0000:26:00.0#1 0000:E5:00.0") == [
        "{pci2}",
        "{pci1} {pci2}#1 {pci3}",
    ]


def test_only_the_kinds_that_are_asked_for_are_replaced():
    assert texts("gpu-1 0000:05:00.0", kinds=("name",)) == ["{host} 0000:05:00.0"]
    assert texts("gpu-1 0000:05:00.0", kinds=()) == ["gpu-1 0000:05:00.0"]


def test_what_was_replaced_is_told():
    found = neutral(["gpu-1 0000:05:00.0"], Own("gpu-1", ("10.0.0.1",)))
    assert dict(found.values) == {
        "name": ("gpu-1",),
        "address": (),
        "PCI address": ("0000:05:00.0",),
        "UUID": (),
        "release": (),
    }


def test_what_a_host_makes_up_for_itself_is_numbered_as_it_appears():
    one, two = "c2b748a2-a64b-43c6-8a5a-068e15b59c09", "9b79f63e-b724-4a9c-881c-a6079bc45b26"
    assert texts(
        f"{one} {two} {one}", f"{two.upper()} x-{one} {one}-1 20261122T092114Z-bd3389a1"
    ) == [
        "{uuid1} {uuid2} {uuid1}",
        f"{{uuid2}} x-{one} {one}-1 {{release1}}",
    ]


def test_what_only_looks_like_an_address_stays():
    given = "00:05:00.0 10000:05:00.0 a0000:05:00.0 0000:05:00.8 0000:05:00.01 x0000:05:00.0"
    assert texts(given) == ["00:05:00.0 {pci2} {pci3} 0000:05:00.8 0000:05:00.01 x{pci1}"]
