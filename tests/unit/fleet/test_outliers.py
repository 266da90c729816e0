# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from dataclasses import replace

from ansible_collections.apiary.instinct.plugins.plugin_utils.fleet.report.outliers import (
    Peer,
    facts_text,
    outliers,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.fleet.types import HostFacts

from support.surveys import FACTS


def judged(*facts, groups=None):
    """Judge hosts a, b, …, of which each has FACTS with some changed."""
    peers = [
        Peer(chr(ord("a") + number), replace(FACTS, **one), (groups or {}).get(number, ("all",)))
        for number, one in enumerate(facts)
    ]
    return outliers(peers)


def told(found):
    return [(one.fact, one.value, one.expected, one.hosts) for one in found]


def test_facts_are_told_as_people_write_them():
    facts = replace(FACTS, firmware=(("MEC", "21"), ("SMC", "9"), ("SMC", "8")), hives=(4, 4))
    found = facts_text(facts)
    assert found["VRAM"] == "2048 GiB"
    assert found["xGMI hives"] == "4+4"
    assert (found["firmware MEC"], found["firmware SMC"]) == ("21", "8 and 9")
    assert "GPU model" not in facts_text(HostFacts())


def test_one_of_three_stands_out():
    odd = judged({}, {}, {"driver": "6.10"})
    assert told(odd) == [("driver", "6.10", FACTS.driver, ("c",))]
    assert (odd[0].agree, odd[0].of, odd[0].peers) == (2, 3, "MI325X")


def test_two_hosts_that_differ_say_nothing_of_which_is_odd():
    assert not judged({}, {"driver": "6.10"})


def test_less_than_three_quarters_is_no_majority():
    assert told(judged({}, {}, {}, {}, {"rocm": "7"}, {"rocm": "7"})) == []
    odd = judged(*[{}] * 6, {"rocm": "7"}, {"rocm": "6"})
    assert told(odd) == [("ROCm", "7", "7.2.4", ("g",)), ("ROCm", "6", "7.2.4", ("h",))]


def test_who_does_not_tell_stands_out_of_those_who_do():
    odd = judged({}, {}, {"driver": None})
    assert told(odd) == [("driver", None, FACTS.driver, ("c",))]
    # What most do not tell is nothing to hold the others to.
    odd = judged({"bios": None}, {"bios": None}, {"bios": None}, {})
    assert not odd


def test_peers_are_hosts_of_the_same_gpu_model():
    other = {"gpu_model": "MI300X", "driver": "6.10"}
    odd = judged({}, {}, {}, *[other] * 3)
    assert not odd


def test_a_gpu_model_unlike_those_of_its_group_stands_out():
    groups = {number: ("rack1",) if number < 4 else ("rack2",) for number in range(8)}
    facts = [{}] * 3 + [{"gpu_model": "MI300X"}] * 4 + [{"gpu_model": None}]
    odd = judged(*facts, groups=groups)
    assert [one for one in told(odd) if one[0] == "GPU model"] == [
        ("GPU model", "MI300X", "MI325X", ("d",)),
        ("GPU model", None, "MI300X", ("h",)),
    ]


def test_where_a_fact_is_split_each_group_is_judged_by_itself():
    groups = {number: ("rack1",) if number < 4 else ("rack2",) for number in range(8)}
    facts = [{"kernel": "a"}] * 3 + [{"kernel": "c"}] + [{"kernel": "b"}] * 4
    odd = judged(*facts, groups=groups)
    assert told(odd) == [("kernel", "c", "a", ("d",))]
    assert odd[0].peers == "MI325X in rack1"


def test_each_component_of_the_firmware_is_judged():
    firmware = tuple((name, "1" if name == "SMC" else version) for name, version in FACTS.firmware)
    odd = judged({}, {}, {}, {"firmware": firmware})
    assert [(one.fact, one.value) for one in odd] == [("firmware SMC", "1")]


def test_health_is_not_put_to_the_vote():
    odd = judged({"health": "sick"}, {"health": "sick"}, {"health": "sick"}, {})
    assert told(odd) == [("health", "sick", "healthy", ("a", "b", "c"))]
    odd = judged({}, {}, {"health": "unknown"})
    assert told(odd) == [("health", None, "healthy", ("c",))]
    assert judged({"health": "unknown"}, {"health": "unknown"}) == ()
