# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

import pytest
from ansible_collections.apiary.instinct.plugins.module_utils.packages import keys as rocm_keys

from support.host.openpgp import BOTH, ONE, ONE_ARMORED, TWO


def test_the_fingerprint_is_what_gpg_tells():
    assert list(rocm_keys.keys(BOTH)) == [ONE, TWO]


def test_of_several_keys_only_the_wanted_one_is_kept():
    """apt would trust each key of a file."""
    assert rocm_keys.armor(rocm_keys.chosen(BOTH, ONE)) == ONE_ARMORED


@pytest.mark.parametrize("form", [ONE.lower(), " ".join([ONE[:20], ONE[20:]])])
def test_a_fingerprint_may_be_written_as_people_write_it(form):
    assert rocm_keys.chosen(ONE_ARMORED, form)


def test_another_key_is_named_in_the_refusal():
    with pytest.raises(rocm_keys.WrongKey, match=ONE):
        rocm_keys.chosen(ONE_ARMORED, TWO)


def test_a_binary_key_reads_as_its_armored_form():
    packets = rocm_keys.dearmor(ONE_ARMORED)
    assert rocm_keys.keys(packets) == rocm_keys.keys(ONE_ARMORED)


@pytest.mark.parametrize(
    "data",
    [
        b"<html><body>404 Not Found</body></html>",
        ONE_ARMORED.replace(b"IVVuaXQg", b"IVVuaXRg"),
        ONE_ARMORED.replace(b"mDME", b"m*ME"),
        rocm_keys.dearmor(ONE_ARMORED)[:-5],
        b"\x9b\x04",
        b"\xc6\xe1\x04",
    ],
    ids=["page", "checksum", "no base64", "cut off", "no length", "in parts"],
)
def test_what_is_no_key_is_refused(data):
    with pytest.raises(rocm_keys.KeyProblem):
        rocm_keys.chosen(data, ONE)


def test_a_key_of_another_version_is_no_match():
    body = b"\x05" + bytes(20)
    assert rocm_keys.keys(bytes([0xC6, len(body)]) + body) == {}


@pytest.mark.parametrize(
    ("head", "length"),
    [(b"\xc6\x05", 5), (b"\xc6\xc0\x08", 200), (b"\xc6\xff\x00\x00\x01\x00", 256)],
    ids=["one octet", "two octets", "five octets"],
)
def test_lengths_of_the_new_format_are_read(head, length):
    body = bytes(length)
    assert list(rocm_keys.split(head + body)) == [(6, body, head + body)]
