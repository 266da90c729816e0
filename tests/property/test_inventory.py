# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whatever an inventory says, validation tells it; whatever a host says, its groups have names."""

import re
from pathlib import Path

import yaml
from ansible_collections.apiary.instinct.plugins.plugin_utils.fleet.membership import (
    KINDS,
    STATES,
    groups_of,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.fleet.names import fold
from ansible_collections.apiary.instinct.plugins.plugin_utils.fleet.types import (
    HostFacts,
    Served,
    Survey,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.fleet.validation.hosts import (
    HostVariables,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.fleet.validation.variables import (
    known_names,
    validate,
)
from hypothesis import given
from hypothesis import strategies as st

ROOT = Path(__file__).parents[2]
ROLES = {
    path.parents[1].name: yaml.safe_load(path.read_text())["argument_specs"]["main"]["options"]
    for path in sorted((ROOT / "roles").glob("*/meta/argument_specs.yml"))
}
TEXT = st.one_of(st.text(max_size=12), st.sampled_from(["gpu-001", "rocm", "7.2.4", "a b/c"]))
PLAIN = st.one_of(st.none(), st.booleans(), st.integers(-5, 70000), st.floats(0, 1), TEXT)
KEYS = st.sampled_from(
    ["name", "model", "path", "engine", "version", "layout", "replicas", "nodes", "base_port", "x"]
)
VALUES = st.recursive(
    PLAIN,
    lambda one: st.lists(one, max_size=3) | st.dictionaries(KEYS, one, max_size=4),
    max_leaves=8,
)
NAMES = st.sampled_from(sorted(known_names(ROLES)))
HOSTS = st.builds(
    HostVariables,
    host=st.sampled_from([f"gpu-{number:03}" for number in range(6)]),
    groups=st.frozensets(st.sampled_from(["gpu_hosts", "routers", "rack1"])),
    names=st.frozensets(NAMES | TEXT, max_size=2),
    values=st.dictionaries(NAMES, VALUES, max_size=4),
    unresolved=st.dictionaries(NAMES, TEXT, max_size=1),
)


@given(st.lists(HOSTS, max_size=4, unique_by=lambda host: host.host))
def test_nothing_that_an_inventory_says_is_a_crash(hosts):
    findings = validate(hosts, ROLES)
    assert len({(one.code, one.message, one.remedy) for one in findings}) == len(findings)
    severities = [one.severity for one in findings]
    assert severities == sorted(severities, key=["error", "warning", "info"].index)


@given(HOSTS, HOSTS)
def test_what_a_value_is_judged_to_be_does_not_depend_on_who_else_has_one(one, other):
    def told(*hosts):
        codes = ("INVENTORY-OPTION", "INVENTORY-VALUE", "DOC-TYPE")
        return {each.message for each in validate(hosts, ROLES) if each.code in codes}

    assert told(one, other) == told(one) | told(other)


FACTS = st.builds(
    HostFacts,
    gpu_model=st.none() | TEXT,
    gpus=st.integers(0, 64),
    hives=st.lists(st.integers(1, 8), max_size=4).map(tuple),
    driver=st.none() | TEXT,
    os=st.none() | TEXT,
    bios=st.none() | TEXT,
    health=st.sampled_from(["healthy", "sick", "unknown"]),
)


@given(FACTS, TEXT, st.sets(st.sampled_from(STATES)))
def test_every_group_has_a_name_that_ansible_takes(facts, text, states):
    served = Served(text or "x", "m", "1", "TP8", 1, 8, "0")
    survey = Survey("gpu-001", "2026-11-22T00:00:00Z", facts=facts, running=(served,))
    groups = list(groups_of(survey, {"rack": text}, states, KINDS))
    assert all(re.fullmatch(r"[^\W\d]\w*", group) for group in groups)
    assert states <= set(groups)
    assert fold(groups) is not None
