# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Merging settings into a JSON document, and CDI: laws that hold whatever the contents."""

import jsonschema
from ansible_collections.apiary.instinct.plugins.module_utils import cdi
from ansible_collections.apiary.instinct.plugins.module_utils.resources import json_settings
from hypothesis import given
from hypothesis import strategies as st

from support.host.cdi_schema import SCHEMA
from support.host.container import nodes_by_name

KEYS = st.sampled_from("abcd")
SCALARS = st.one_of(st.none(), st.booleans(), st.integers(0, 3), st.lists(st.integers(0, 3)))
# Nobody writes empty objects into settings; the undo would not know whose they were.
DOCUMENTS = st.dictionaries(
    KEYS,
    st.recursive(
        SCALARS, lambda inner: st.dictionaries(KEYS, inner, min_size=1, max_size=3), max_leaves=5
    ),
    max_size=4,
)
JUDGE = jsonschema.Draft202012Validator(SCHEMA)
ADDRESSES = st.builds(
    "{:04x}:{:02x}:{:02x}.0".format, st.integers(0, 3), st.integers(0, 255), st.integers(0, 31)
)
HOSTS = st.dictionaries(
    st.tuples(ADDRESSES, st.one_of(st.none(), st.integers(0, 7))), st.none(), min_size=1, max_size=8
).map(
    lambda keys: [
        cdi.Device(address if partition is None else f"{address}#{partition}", f"renderD{128 + at}")
        for at, (address, partition) in enumerate(keys)
    ]
)


def leaves(document):
    return dict(json_settings.leaves(document))


@given(DOCUMENTS, DOCUMENTS)
def test_what_is_wanted_is_set(document, wanted):
    after, _earlier = json_settings.merge(document, wanted, {})
    for path, value in leaves(wanted).items():
        assert json_settings.found(after, path) == [value]


@given(DOCUMENTS, DOCUMENTS)
def test_what_is_not_asked_for_stays(document, wanted):
    after, _earlier = json_settings.merge(document, wanted, {})
    asked = leaves(wanted)
    for path, value in leaves(document).items():
        related = any(one[: len(path)] == path or path[: len(one)] == one for one in asked)
        if not related:
            assert json_settings.found(after, path) == [value]


@given(DOCUMENTS, DOCUMENTS)
def test_a_second_merge_changes_nothing(document, wanted):
    once = json_settings.merge(document, wanted, {})
    assert json_settings.merge(once[0], wanted, once[1]) == once


@given(DOCUMENTS, DOCUMENTS)
def test_the_undo_is_exact(document, wanted):
    after, earlier = json_settings.merge(document, wanted, {})
    assert json_settings.merge(after, {}, earlier) == (document, {})


@given(DOCUMENTS, DOCUMENTS, DOCUMENTS)
def test_the_undo_is_exact_whatever_was_wanted_in_between(document, first, second):
    after, earlier = json_settings.merge(document, first, {})
    after, earlier = json_settings.merge(after, second, earlier)
    assert json_settings.merge(after, {}, earlier) == (document, {})


@given(DOCUMENTS, DOCUMENTS)
def test_what_is_remembered_survives_its_file(document, wanted):
    _after, earlier = json_settings.merge(document, wanted, {})
    assert json_settings.read_earlier(json_settings.write_earlier(earlier)) == earlier


@given(HOSTS, st.sampled_from([cdi.PLAIN, cdi.WITH_GROUPS]), st.lists(st.integers(0, 2**32 - 1)))
def test_every_host_has_a_sound_specification(devices, version, gids):
    document = cdi.document(devices, version, gids)
    JUDGE.validate(document)
    named = nodes_by_name(document)
    assert len(named) == 2 * len(devices) + 1
    assert named["all"] == frozenset().union(*named.values())


@given(HOSTS)
def test_the_order_in_which_devices_are_found_does_not_matter(devices):
    assert cdi.document(devices, cdi.PLAIN) == cdi.document(devices[::-1], cdi.PLAIN)
