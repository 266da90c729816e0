# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Replicas whose names have an address only after HAProxy has started, with a real HAProxy."""

import asyncio
from dataclasses import replace
from functools import partial

import pytest
from ansible_collections.apiary.instinct.plugins.module_utils.router import haproxy
from ansible_collections.apiary.instinct.plugins.plugin_utils.router.types import RouterSettings

from support.replicas import Replica
from support.router.haproxy import HAProxy, pool_of
from support.scenario import QUICK


class Names:
    """What /etc/hosts is to one router: a name service that answers late, or not any more."""

    def __init__(self, place):
        self.path = place / "hosts"
        self.have()

    def have(self, *names):
        self.path.write_text("".join(f"127.0.0.1 {name}\n" for name in names))

    def look_up(self, name):
        if name not in self.path.read_text().split():
            raise OSError("Name or service not known")

    @property
    def within(self):
        """The command that has a program see these names."""
        own = f'mount --bind {self.path} /etc/hosts && exec "$@"'
        return ("unshare", "--map-root-user", "--mount", "sh", "-c", own, "sh")


@pytest.fixture
def names(place):
    return Names(place)


def test_a_name_that_resolves_late_is_taken_and_one_that_is_gone_is_kept(place, names):
    async def scenario():
        replicas = [await Replica(f"host-{index:02}-0").start() for index in range(2)]
        pool = pool_of([replica.port for replica in replicas])
        servers = [replace(one, address=f"late-{one.host}") for one in pool.servers]
        pool = replace(pool, servers=tuple(servers))
        router = HAProxy(place / "r0", [pool], RouterSettings(health=QUICK))
        router.within = names.within

        times = [haproxy.moment()]

        def resolves():
            """Do as the timer does, each minute."""
            socket = str(router.directory / "admin.sock")
            query = partial(haproxy.ask, path=socket)
            # Some hours later each time, so that no name waits.
            times.append(times[-1].later(7200))
            return haproxy.resolves(query, names.look_up, times[-1], str(place / "states"))

        try:
            await router.start(up=0)
            assert resolves() is None
            names.have("late-host-01")
            assert resolves() == "late-host-01"
            await router.reload()
            await router.until_up(1)
            assert resolves() is None
            names.have("late-host-00", "late-host-01")
            assert resolves() == "late-host-00"
            await router.reload()
            await router.until_up(2)
            # DNS is away again while somebody changes the router.
            names.have()
            await router.reload()
            await router.until_up(2)
            assert resolves() is None
        finally:
            router.stop()
            for replica in replicas:
                await replica.kill()

    asyncio.run(scenario())


def test_a_name_that_haproxy_never_resolves_reloads_it_ever_less(place, names):
    async def scenario():
        replica = await Replica("host-00-0").start()
        pool = pool_of([replica.port])
        servers = [replace(one, address=f"never-{one.host}") for one in pool.servers]
        router = HAProxy(
            place / "r0", [replace(pool, servers=tuple(servers))], RouterSettings(health=QUICK)
        )
        router.within = names.within
        minutes, begun = [], haproxy.moment()

        def resolves(minute):
            query = partial(haproxy.ask, path=str(router.directory / "admin.sock"))
            now, states = begun.later(60 * minute), str(place / "states")
            return haproxy.resolves(query, lambda _name: None, now, states)

        try:
            await router.start(up=0)
            for minute in range(24 * 60):
                if resolves(minute):
                    minutes.append(minute)
                    if minute < 10:
                        await router.reload()
            assert minutes[:8] == [0, 2, 6, 14, 30, 62, 122, 182]
            assert len(minutes) < 32
            # It is forgotten when it has an address: the next time it waits for nothing.
            names.have("never-host-00")
            await router.reload()
            await router.until_up(1)
            assert resolves(24 * 60) is None
            assert (place / "late-names").read_text() == ""
        finally:
            router.stop()
            await replica.kill()

    asyncio.run(scenario())
