# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Paths and options of mounts keep what they mean on their way through kernel and systemd."""

import re

from ansible_collections.apiary.instinct.plugins.module_utils.weights import readahead
from ansible_collections.apiary.instinct.plugins.plugin_utils.documents import knowledge
from ansible_collections.apiary.instinct.plugins.plugin_utils.host.weight_cache.mounts import (
    unescape,
    unit_name,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.host.weight_cache.options import (
    differences,
    requested,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.host.weight_cache.settings import (
    Mount,
)
from hypothesis import given
from hypothesis import strategies as st

letters = st.characters(exclude_categories=["C"], exclude_characters="/")
names = st.text(letters, min_size=1, max_size=8).filter(lambda name: name not in (".", ".."))
paths = st.lists(names, min_size=1, max_size=4).map(lambda parts: "/" + "/".join(parts))
asking = st.fixed_dictionaries(
    {},
    optional={
        "rw": st.just(True),
        "vers": st.sampled_from(["3", "4.1", "4.2"]),
        "nconnect": st.integers(2, 16),
        "rsize": st.sampled_from([65536, 1048576]),
        "proto": st.sampled_from(["tcp", "rdma"]),
        "actimeo": st.integers(1, 3600),
        "noexec": st.none(),
        "nocto": st.none(),
        "sec": st.sampled_from(["sys", "krb5", "krb5p"]),
    },
)


def as_the_kernel_escapes(path):
    """Return a path as /proc/mounts has it: blanks and backslashes in octal."""
    return re.sub(r"[ \t\n\\]", lambda one: f"\\{ord(one.group()):03o}", path)


def as_the_kernel_shows(options):
    """Return what /proc/mounts has once these options are in force."""
    known = knowledge("host/weight_cache.yml")["shown"]["options"]
    shown = {}
    for name, value in options.items():
        entry = known.get(name, {"shown": "never"})
        for label in entry.get("as", [name]):
            if entry["shown"] != "never" and value != entry.get("hidden"):
                shown[label] = value if value is True else str(value)
    return shown


@given(paths)
def test_a_path_is_read_as_it_was_mounted(path):
    assert unescape(as_the_kernel_escapes(path)) == path
    assert readahead.unescape(as_the_kernel_escapes(path)) == path


@given(paths, paths)
def test_two_paths_never_share_a_unit(one, other):
    assert (unit_name(one) == unit_name(other)) == (one == other)


@given(paths)
def test_a_unit_is_a_plain_file_name(path):
    assert re.fullmatch(r"[A-Za-z0-9:_.\\-]+\.mount", unit_name(path))


@given(asking)
def test_what_is_in_force_never_differs(options):
    wanted = requested(Mount("/m", "nfs-1:/m", options=options), "6.1.0").options
    assert differences(wanted, as_the_kernel_shows(wanted)) == ()


@given(asking, asking)
def test_what_is_in_force_is_what_differs_in_nothing(one, other):
    """A mount as requested before is kept exactly where the two show alike."""
    first = requested(Mount("/m", "nfs-1:/m", options=one), "6.1.0").options
    second = requested(Mount("/m", "nfs-1:/m", options=other), "6.1.0").options
    missing = dict(second.items() - first.items()).keys() - {"_netdev", "nofail", "retry"}
    found = {item.option for item in differences(second, as_the_kernel_shows(first))}
    assert bool(found) == bool(missing)
