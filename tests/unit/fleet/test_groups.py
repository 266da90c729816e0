# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from ansible_collections.apiary.instinct.plugins.plugin_utils.findings import Finding
from ansible_collections.apiary.instinct.plugins.plugin_utils.fleet.groups import Grouping
from ansible_collections.apiary.instinct.plugins.plugin_utils.fleet.names import Own
from ansible_collections.apiary.instinct.plugins.plugin_utils.fleet.types import (
    Change,
    ConcernSurvey,
)


def concern(*changes, name="rocm", **more):
    return ConcernSurvey(name, settled=False, changes=changes, **more)


def grouped(hosts, cause="to apply"):
    """Group hosts, each a name with its concerns."""
    grouping = Grouping()
    for name, concerns in hosts.items():
        causes = {one.concern: cause for one in concerns if not one.settled}
        grouping.add(Own(name), concerns, causes)
    return grouping.groups()


def test_identical_changes_are_one_group_shown_as_they_are():
    change = Change("/etc/a", "1\n", "2 0000:05:00.0\n")
    (group,), (whole,) = grouped({name: [concern(change)] for name in ("a", "b")})
    assert group.name == "rocm/1"
    assert group.hosts == whole.hosts == ("a", "b")
    assert whole.changes == ("rocm/1",)
    assert group.changes == (change,)
    assert (group.neutral, group.variants) == ((), 1)


def test_what_differs_by_the_hosts_own_name_is_one_group_that_says_so():
    hosts = {
        name: [concern(Change("/etc/a", "", f"on {name}, 0000:05:00.0"), reboot=(f"for {name}",))]
        for name in ("gpu-1", "gpu-2")
    }
    (group,), _whole = grouped(hosts)
    assert group.changes == (Change("/etc/a", "", "on {host}, 0000:05:00.0"),)
    assert group.reboot == ("for {host}",)
    assert (group.neutral, group.variants) == (("name",), 2)


def test_other_buses_in_the_same_order_are_the_same():
    texts = {"a": "0000:05:00.0 0000:26:00.0", "b": "0000:15:00.0 0000:36:00.0"}
    (group,), _whole = grouped({name: [concern(Change("x", "", t))] for name, t in texts.items()})
    assert group.changes == (Change("x", "", "{pci1} {pci2}"),)
    assert group.neutral == ("PCI address",)


def test_what_each_host_makes_up_for_itself_is_the_same():
    boots = {
        "a": "c2b748a2-a64b-43c6-8a5a-068e15b59c09",
        "b": "9b79f63e-b724-4a9c-881c-a6079bc45b26",
    }
    (group,), _whole = grouped({name: [concern(Change("x", "", t))] for name, t in boots.items()})
    assert group.changes == (Change("x", "", "{uuid1}"),)
    assert group.neutral == ("UUID",)


def test_the_same_gpus_in_another_order_are_another_change():
    texts = {"a": "0000:05:00.0 0000:26:00.0", "b": "0000:26:00.0 0000:05:00.0"}
    groups, whole = grouped({name: [concern(Change("x", "", t))] for name, t in texts.items()})
    assert len(groups) == len(whole) == 2


def test_another_hosts_name_is_not_the_hosts_own():
    texts = {"a": "peer is b", "c": "peer is d"}
    groups, _whole = grouped({name: [concern(Change("x", "", t))] for name, t in texts.items()})
    assert [group.hosts for group in groups] == [("a",), ("c",)]


def test_a_name_in_texts_that_hosts_share_is_nobodys_own():
    change = Change("/usr/lib/chat", "", "0000:05:00.0")
    other = Change("/usr/lib/chat", "", "0000:15:00.0")
    hosts = {"lib": [concern(change)], "x": [concern(change)], "y": [concern(other)]}
    (group,), _whole = grouped(hosts)
    assert group.hosts == ("lib", "x", "y")
    assert group.changes == (Change("/usr/lib/chat", "", "{pci1}"),)
    assert (group.neutral, group.variants) == (("PCI address",), 2)


def test_a_text_kept_of_a_host_of_another_group_is_shown_without_its_own():
    """Of three hosts with the same neutral text, two come to have the very same one."""
    hosts = {name: [concern(Change("/srv/a", "", text))] for name, text in TRAP.items()}
    groups, _whole = grouped(hosts)
    assert [(group.hosts, group.changes[0].after) for group in groups] == [
        (("x", "y"), "of x"),
        (("z",), "of {host}"),
    ]


TRAP = {"x": "of x", "z": "of z", "y": "of x"}


def test_the_largest_group_comes_first_and_hosts_are_grouped_as_a_whole():
    one, two = concern(Change("x")), concern(Change("y"), name="host_tuning")
    settled = ConcernSurvey("rocm", settled=True)
    hosts = {"a": [one, two], "b": [one], "c": [one], "d": [settled], "e": [two]}
    groups, whole = grouped(hosts)
    assert [(group.name, group.hosts) for group in groups] == [
        ("rocm/1", ("a", "b", "c")),
        ("host_tuning/1", ("a", "e")),
    ]
    assert [(group.changes, group.hosts) for group in whole] == [
        (("rocm/1",), ("b", "c")),
        (("rocm/1", "host_tuning/1"), ("a",)),
        ((), ("d",)),
        (("host_tuning/1",), ("e",)),
    ]


def test_a_refusal_or_a_reboot_or_a_cause_sets_apart():
    change = Change("x")
    refusal = Finding.from_fields(
        code="HOST-GPU-MISSING",
        severity="error",
        subject="c",
        message="7 GPUs on c",
        remedy="look",
        source=None,
    )
    hosts = {
        "a": [concern(change)],
        "b": [concern(change, reboot=("driver",))],
        "c": [concern(change, findings=(refusal,))],
    }
    groups, _whole = grouped(hosts)
    assert len(groups) == 3
    assert groups[2].refused == (refusal,)
    grouping = Grouping()
    for name, cause in (("a", "drift"), ("b", "to apply")):
        grouping.add(Own(name), [concern(change)], {"rocm": cause})
    assert [group.cause for group in grouping.groups()[0]] == ["drift", "to apply"]


def test_what_only_warns_is_the_same_change():
    warning = Finding.from_fields(
        code="HOST-X", severity="warning", subject="b", message="hm", remedy="look", source=None
    )
    hosts = {"a": [concern(Change("x"))], "b": [concern(Change("x"), findings=(warning,))]}
    groups, _whole = grouped(hosts)
    assert len(groups) == 1


def test_where_a_text_ends_matters():
    """No two lists of texts are the same because they are when joined."""
    split = {"a": concern(Change("x", "y")), "b": concern(Change("x"), reboot=("y",))}
    groups, _whole = grouped({name: [one] for name, one in split.items()})
    assert len(groups) == 2


def test_concerns_without_a_cause_are_left_out():
    grouping = Grouping()
    grouping.add(Own("a"), [concern(Change("x"))], {})
    groups, whole = grouping.groups()
    assert groups == ()
    assert [(group.hosts, group.changes) for group in whole] == [(("a",), ())]
