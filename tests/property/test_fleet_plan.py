# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The groups and outliers of a fleet, whatever its hosts are called and have."""

from dataclasses import replace

from ansible_collections.apiary.instinct.plugins.plugin_utils.fleet.groups import Grouping
from ansible_collections.apiary.instinct.plugins.plugin_utils.fleet.names import Own, fold
from ansible_collections.apiary.instinct.plugins.plugin_utils.fleet.report.outliers import (
    HEALTH,
    Peer,
    facts_text,
    outliers,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.fleet.types import (
    Change,
    ConcernSurvey,
)
from hypothesis import given
from hypothesis import strategies as st

from support.surveys import FACTS

PARTS = ("on HOST", "HOST.lab", "peer gpu-99", "0000:05:00.0", "0000:26:00.0", "x", "HOST")
TEXTS = st.lists(st.sampled_from(PARTS), max_size=3).map(" ".join)
CHANGES = st.builds(Change, TEXTS, TEXTS, TEXTS)
CONCERNS = st.builds(
    ConcernSurvey,
    st.sampled_from(("rocm", "host_tuning")),
    st.just(False),
    st.lists(CHANGES, max_size=2).map(tuple),
    st.lists(TEXTS, max_size=1).map(tuple),
)
HOSTS = st.lists(st.lists(CONCERNS, max_size=2, unique_by=lambda one: one.concern), max_size=6)


def written(concern, name):
    """The concern of a host that is called so."""

    def of(text):
        return text.replace("HOST", name)

    changes = tuple(
        Change(of(one.subject), of(one.before), of(one.after)) for one in concern.changes
    )
    return replace(concern, changes=changes, reboot=tuple(map(of, concern.reboot)))


def grouped(hosts, names):
    """The groups of hosts by number, as sets, and those of changes."""
    grouping = Grouping()
    for concerns, name in zip(hosts, names, strict=True):
        listed = [written(one, name) for one in concerns]
        grouping.add(Own(name), listed, {one.concern: "to apply" for one in listed})
    changes, groups = grouping.groups()
    numbers = {name: number for number, name in enumerate(names)}

    def numbered(found):
        return {frozenset(numbers[host] for host in one.hosts) for one in found}

    return changes, groups, numbered


@given(HOSTS)
def test_groups_are_a_partition(hosts):
    names = [f"gpu-{number}" for number in range(len(hosts))]
    changes, groups, _numbered = grouped(hosts, names)
    assert sorted(host for group in groups for host in group.hosts) == sorted(names)
    known = {one.name: one for one in changes}
    for group in groups:
        for host in group.hosts:
            mine = [one.name for one in changes if host in one.hosts]
            assert sorted(mine) == sorted(group.changes)
            concerns = [known[name].concern for name in group.changes]
            assert concerns == [one.concern for one in hosts[names.index(host)]]
    sizes = [len(one.hosts) for one in groups]
    assert sizes == sorted(sizes, reverse=True)


@given(HOSTS, st.permutations(range(6)))
def test_other_names_make_no_other_groups(hosts, order):
    names = [f"gpu-{number}" for number in range(len(hosts))]
    others = [f"node{number}" for number in order[: len(hosts)]]
    changes, groups, numbered = grouped(hosts, names)
    changes_too, groups_too, numbered_too = grouped(hosts, others)
    assert numbered(groups) == numbered_too(groups_too)
    assert numbered(changes) == numbered_too(changes_too)


@given(HOSTS)
def test_what_is_shown_is_what_each_host_of_the_group_has(hosts):
    names = [f"gpu-{number}" for number in range(len(hosts))]
    changes, _groups, _numbered = grouped(hosts, names)
    for group in changes:
        for host in group.hosts:
            (concern,) = (one for one in hosts[names.index(host)] if one.concern == group.concern)
            mine = written(concern, host)
            assert len(mine.changes) == len(group.changes)
            if not group.neutral:
                assert (mine.changes, mine.reboot) == (group.changes, group.reboot)
            elif group.neutral == ("name",):
                own = [one.after.replace("{host}", host) for one in group.changes]
                assert own == [one.after for one in mine.changes]


VALUES = st.sampled_from(("1", "2", "3", None))
FLEETS = st.lists(
    st.tuples(VALUES, VALUES, st.sampled_from(("MI325X", "MI300X", None))), max_size=12
)


@given(FLEETS)
def test_an_outlier_is_never_in_the_majority(fleet):
    peers = [
        Peer(f"n{number}", replace(FACTS, driver=driver, kernel=kernel, gpu_model=model), ("all",))
        for number, (driver, kernel, model) in enumerate(fleet)
    ]
    told = {peer.host: facts_text(peer.facts) for peer in peers}
    odd = outliers(peers)
    for one in odd:
        assert one.fact != HEALTH
        assert len(one.hosts) < one.agree <= one.of - len(one.hosts)
        for host in one.hosts:
            assert told[host].get(one.fact) == one.value != one.expected
    seen = [(one.fact, host) for one in odd for host in one.hosts]
    assert len(seen) == len(set(seen))


NUMBERS = st.integers(0, 120)
NAMES = st.lists(
    st.one_of(
        st.builds("gpu-{:03d}".format, NUMBERS),
        st.builds("n{}".format, NUMBERS),
        st.builds("10.0.0.{}".format, NUMBERS),
        st.builds("r{}-n1.lab".format, NUMBERS),
        st.sampled_from(("localhost", "a", "7", "07")),
    ),
    max_size=40,
)


def unfolded(text):
    """The names of ranges, expanded as an inventory's are."""
    for part in filter(None, text.split(", ")):
        if "[" not in part:
            yield part
            continue
        before, rest = part.split("[")
        ends, after = rest.split("]")
        first, last = ends.split(":")
        if first.startswith("0") and len(first) > 1:
            assert len(first) == len(last)
        width = len(first) if first.startswith("0") else 0
        for number in range(int(first), int(last) + 1):
            yield f"{before}{str(number).zfill(width)}{after}"


@given(NAMES)
def test_folded_names_are_the_names(names):
    assert sorted(unfolded(fold(names))) == sorted(set(names))
