# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Drains that end by themselves when the run that made them has died, with a real HAProxy."""

import asyncio

from ansible_collections.apiary.instinct.plugins.module_utils.router import haproxy
from ansible_collections.apiary.instinct.plugins.modules import router_servers

from support.modules import run_module
from support.scenario import serving


class Routed:
    """A router as the module and the service on its host have it."""

    def __init__(self, router, capsys):
        self.capsys = capsys
        self.socket = str(router.directory / "admin.sock")
        self.configuration = str(router.directory / "haproxy.cfg")
        self.state_file = str(router.directory / "state")

    def ask(self, command):
        return haproxy.ask(command, self.socket)

    def module(self, *servers, **options):
        """Run the module and return whether it reports a change."""
        files = {name: vars(self)[name] for name in ("socket", "configuration", "state_file")}
        names = [f"host-0{number}-0" for number in servers]
        result = run_module(
            router_servers, self.capsys, servers=names, wait=False, **files, **options
        )
        assert not result.get("failed"), result
        return result["changed"]

    def expire(self, later, **clock):
        """Do as the timer does, so many seconds from now."""
        now = haproxy.moment().later(later)._replace(**clock)
        return haproxy.expire(self.ask, now, self.configuration, self.state_file)

    def drained(self):
        states = haproxy.server_states(self.ask)
        return sorted(int(one.name[6]) for one in states if one.wanted == "drain")


def test_a_drain_ends_when_its_time_is_over_and_an_operators_does_not(place, capsys):
    async def scenario():
        async with serving(place, 4) as (_replicas, [router]):
            routed = Routed(router, capsys)
            routed.module(1, 2, state="drain")
            # A rollout asks twice, to drain and to wait; what is out already is somebody else's.
            for _call in range(2):
                routed.module(0, 1, 3, state="drain", deadline=600)
            # An operator takes one over.
            for check_mode in (True, False):
                assert routed.module(3, state="drain", check_mode=check_mode)
            assert not routed.module(3, state="drain")
            assert routed.expire(500) == []
            await router.reload()
            assert routed.drained() == [0, 1, 2, 3]
            assert routed.expire(700) == ["demo/host-00-0"]
            assert routed.drained() == [1, 2, 3]
            assert "host-00-0" not in (router.directory / "state").read_text()
            assert routed.expire(700) == []
            # What was drained until a time once may be drained for good now.
            routed.module(0, state="drain")
            assert routed.expire(10**6) == []
            return routed.drained()

    assert asyncio.run(scenario()) == [0, 1, 2, 3]


def test_what_came_back_in_time_has_nothing_to_end(place, capsys):
    async def scenario():
        async with serving(place, 2) as (_replicas, [router]):
            routed = Routed(router, capsys)
            routed.module(0, state="drain", deadline=60, check_mode=True)
            assert haproxy.deadlines(routed.state_file) == {}
            routed.module(0, state="drain", deadline=60)
            assert list(haproxy.deadlines(routed.state_file)) == ["demo/host-00-0"]
            routed.module(0, state="ready")
            assert haproxy.deadlines(routed.state_file) == {}
            routed.module(0, state="drain")
            return routed.expire(600), routed.drained()

    assert asyncio.run(scenario()) == ([], [0])


def test_a_run_that_leaves_a_replica_out_leaves_it_without_a_deadline(place, capsys):
    async def scenario():
        async with serving(place, 3) as (_replicas, [router]):
            routed = Routed(router, capsys)
            routed.module(0, 1, state="drain", deadline=600)
            # It comes back in the middle of a long step, and has its whole time again after that.
            routed.module(2, state="drain", deadline=1)
            assert routed.expire(2) == ["demo/host-02-0"]
            routed.module(0, 2, state="drain", deadline=4000)
            assert routed.expire(700) == ["demo/host-01-0"]
            assert routed.drained() == [0, 2]
            # A test failed, and so did the way back.
            routed.module(0, 1, state="drain")
            assert routed.expire(10**6) == ["demo/host-02-0"]
            return routed.drained()

    assert asyncio.run(scenario()) == [0, 1]


def test_a_clock_that_is_set_ends_no_drain_and_a_boot_forgets_none(place, capsys):
    async def scenario():
        async with serving(place, 1) as (_replicas, [router]):
            routed = Routed(router, capsys)
            routed.module(0, state="drain", deadline=600)
            wall = haproxy.moment().wall
            assert routed.expire(0, wall=wall + 10**6) == []
            assert routed.expire(0, wall=wall + 500, boot="another", up=10**9) == []
            assert routed.drained() == [0]
            return routed.expire(0, wall=wall + 700, boot="another", up=1)

    assert asyncio.run(scenario()) == ["demo/host-00-0"]


def test_what_an_operator_has_put_into_maintenance_stays_there(place, capsys):
    async def scenario():
        async with serving(place, 2) as (_replicas, [router]):
            routed = Routed(router, capsys)
            routed.module(0, 1, state="drain", deadline=60)
            routed.module(0, state="maint")
            routed.ask("set server demo/host-01-0 state maint")
            assert routed.expire(600) == []
            return [one.wanted for one in haproxy.server_states(routed.ask)]

    assert asyncio.run(scenario()) == ["maint", "maint"]
