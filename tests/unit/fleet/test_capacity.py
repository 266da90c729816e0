# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from dataclasses import replace

from ansible_collections.apiary.instinct.plugins.plugin_utils.fleet.plan import (
    Serving,
    fleet_capacity,
)

from support.surveys import served


def host(name, domain, planned=1, running=1, gpus=8, up=2, **more):
    one = replace(served("x", up), **more)
    return Serving(name, domain, gpus, (one,) * running, (replace(one, up=None),) * planned)


def test_replicas_now_and_then_and_gpus_without_work():
    hosts = [host("a", "r1", running=0), host("b", "r2", up=1), host("c", "r2", gpus=16)]
    found = fleet_capacity(hosts)
    assert (found.gpus, found.used_now, found.used, found.idle) == (32, 16, 24, 8)
    assert found.idle_hosts == ("c",)
    (one,) = found.deployments
    assert (one.hosts, one.up, one.running, one.planned, one.gpus) == (3, 3, 4, 6, 24)
    assert (one.worst, one.lost) == ("r2", 4)


def test_a_deployment_that_leaves_is_told_too():
    found = fleet_capacity([host("a", "r1", planned=0)])
    assert (found.deployments[0].running, found.deployments[0].planned) == (2, 0)
    assert (found.deployments[0].worst, found.deployments[0].lost) == ("", 0)
    assert found.idle == 8


def test_where_nobody_looked_it_is_not_known_how_many_answer():
    assert fleet_capacity([host("a", "r1", up=None)]).deployments[0].up is None
    assert fleet_capacity([host("a", "r1", running=0)]).deployments[0].up == 0


def test_no_replicas_are_lost_where_there_are_none():
    assert fleet_capacity([]).deployments == ()
