# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from ansible_collections.apiary.instinct.plugins.module_utils.packages import keys as rocm_keys
from hypothesis import given
from hypothesis import strategies as st


def packet(body):
    """A public key packet of version 4, in the old format."""
    content = b"\x04" + body
    return b"\x99" + len(content).to_bytes(2, "big") + content


BODIES = st.lists(st.binary(max_size=300), min_size=1, max_size=5, unique=True)


@given(st.binary(max_size=500))
def test_armor_and_dearmor_are_inverse(data):
    assert rocm_keys.dearmor(rocm_keys.armor(data)) == data


@given(BODIES)
def test_keys_of_a_ring_are_the_keys_of_its_parts(bodies):
    ring = b"".join(packet(body) for body in bodies)
    parts = {}
    for body in bodies:
        parts |= rocm_keys.keys(packet(body))
    assert rocm_keys.keys(ring) == parts


@given(BODIES)
def test_what_is_chosen_holds_the_one_key_alone(bodies):
    ring = b"".join(packet(body) for body in bodies)
    for name in rocm_keys.keys(ring):
        assert list(rocm_keys.keys(rocm_keys.chosen(ring, name))) == [name]


@given(BODIES, st.data())
def test_a_file_cut_short_never_passes_for_another_key(bodies, data):
    ring = b"".join(packet(body) for body in bodies)
    whole = rocm_keys.keys(ring)
    short = ring[: data.draw(st.integers(0, len(ring) - 1))]
    try:
        found = rocm_keys.keys(short)
    except rocm_keys.KeyProblem:
        return
    assert found.items() <= whole.items()
