# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Replicas whose names have an address only after HAProxy has started, with a real HAProxy."""

import asyncio
from dataclasses import replace

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

        def resolves():
            """Do as the timer does, each minute."""
            socket = str(router.directory / "admin.sock")
            return haproxy.resolves(lambda command: haproxy.ask(command, socket), names.look_up)

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
