# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

import json
from dataclasses import replace

from ansible_collections.apiary.instinct.plugins.plugin_utils.documents import (
    dumps,
    from_document,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.router.pools import (
    PlannedHost,
    assigned_ports,
    pools_from_plans,
    server_ids,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.router.types import (
    Router,
    RouterSettings,
)
from hypothesis import given
from hypothesis import strategies as st

from support.demo import demo_plan

NAMES = st.lists(
    st.from_regex(r"[a-z][a-z0-9.-]{0,20}-[0-7]", fullmatch=True), unique=True, max_size=40
)


@given(names=NAMES, more=NAMES, seed=st.randoms())
def test_ids_follow_from_names_alone(names, more, seed):
    ids = server_ids(names)
    shuffled = list(names)
    seed.shuffle(shuffled)
    assert server_ids(shuffled) == ids
    assert len(set(ids.values())) == len(names)
    assert all(0 < number < 1 << 20 for number in ids.values())
    # A name keeps its id whatever else there is, but for one that another name has, too.
    both = server_ids([*names, *more])
    assert sum(both[name] != ids[name] for name in names) <= 1


@given(
    hosts=st.lists(
        st.from_regex(r"[a-z][a-z0-9-]{0,8}", fullmatch=True), min_size=1, max_size=6, unique=True
    ),
    sizes=st.lists(st.integers(1, 10**7), min_size=2, max_size=2),
    seed=st.randoms(),
)
def test_all_routers_get_the_same_document(hosts, sizes, seed):
    plan = demo_plan()
    replicas = tuple(
        replace(one, kv_tokens=size) for one, size in zip(plan.replicas, sizes, strict=True)
    )
    plans = [
        PlannedHost(host, f"10.0.0.{index}", replace(plan, replicas=replicas))
        for index, host in enumerate(hosts)
    ]
    pools, findings = pools_from_plans(plans, RouterSettings())
    seed.shuffle(plans)
    assert pools_from_plans(plans, RouterSettings()) == (pools, findings)
    router = Router(RouterSettings(), pools, findings)
    assert from_document(Router, json.loads(dumps(router)), "router.json") == router
    [pool] = pools
    assert len(pool.servers) == 2 * len(hosts)
    assert all(1 <= server.weight <= 100 for server in pool.servers)
    assert max(server.weight for server in pool.servers) == 100


@given(
    names=st.lists(st.sampled_from("abcdefgh"), unique=True),
    given_ports=st.dictionaries(st.sampled_from("abcdefgh"), st.integers(8080, 8090)),
    had=st.lists(st.sampled_from("abcdefgh"), unique=True),
)
def test_no_deployment_gets_a_port_that_another_was_given(names, given_ports, had):
    settings = RouterSettings(ports=given_ports)
    before = assigned_ports(sorted(had), RouterSettings())
    ports = assigned_ports(sorted(names), settings, before)
    assert set(ports) == set(names)
    counted = [port for name, port in ports.items() if name not in given_ports]
    assert len(set(counted)) == len(counted)
    reserved = {*given_ports.values(), settings.admin_port}
    assert not set(counted) & reserved
    # Whoever had one keeps it unless somebody names it.
    for name in set(names) & set(had) - set(given_ports):
        assert ports[name] == before[name] or before[name] in reserved
    assert assigned_ports(sorted(names), settings, ports) == ports
