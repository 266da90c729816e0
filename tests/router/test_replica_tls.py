# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Replicas that speak TLS, each with its own host's certificate, behind a real HAProxy."""

import asyncio
import ssl
from dataclasses import replace

from ansible_collections.apiary.instinct.plugins.plugin_utils.web_keys import (
    authority_of,
    replica_certificate,
)

from support.scenario import Load, serving


def speaks_tls(place, host):
    """What an engine makes of the file that it is given."""
    pem = place / f"{host}.pem"
    pem.write_text(replica_certificate(str(place / "web"), host, "demo", ["127.0.0.1"]))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pem, pem)
    return context


async def begin_tls(replicas, router, place, hosts):
    """Have replicas of these hosts speak TLS, which the router learns of by a reload."""
    for replica, host in hosts.items():
        await replicas[replica].stop()
        replicas[replica].tls = speaks_tls(place, host)
        await replicas[replica].start()
    (pool,) = router.pools
    servers = [
        replace(server, tls=server.tls or number in hosts)
        for number, server in enumerate(pool.servers)
    ]
    router.pools = (replace(pool, servers=tuple(servers)),)
    router.write()
    (router.directory / "apiary/replicas.pem").write_text(authority_of(str(place / "web")))
    await router.reload()


def test_tls_begins_without_a_lost_request(place):
    """A saved state of before would have HAProxy speak in the clear: 502 for every request."""

    async def scenario():
        async with serving(place, 2) as (replicas, [router]):
            load = Load(router.port, 4, {"seconds": 0.02})
            await load.wait_for(20)
            for number in range(2):
                name = f"host-{number:02}-0"
                await router.set_state(name, "drain")
                await router.until(lambda number=number: replicas[number].running == 0)
                await begin_tls(replicas, router, place, {number: f"host-{number:02}"})
                await router.set_state(name, "ready")
                await router.until_up(2)
                before = replicas[number].finished
                await router.until(lambda n=number, b=before: replicas[n].finished > b + 10)
            return await load.end()

    statuses = asyncio.run(scenario())
    print(dict(statuses))
    assert set(statuses) == {200}


def test_a_replica_with_another_host_s_certificate_gets_no_request(place):
    async def scenario():
        async with serving(place, 2) as (replicas, [router]):
            await router.set_state("host-01-0", "drain")
            await begin_tls(replicas, router, place, {0: "host-00", 1: "host-00"})
            await router.set_state("host-01-0", "ready")

            async def refused():
                rows = {one["svname"]: one for one in await router.servers()}
                return (rows["host-00-0"]["status"], rows["host-01-0"]["status"]) == ("UP", "DOWN")

            await router.until(refused)
            load = Load(router.port, 4, {})
            await load.wait_for(40)
            return await load.end(), replicas

    statuses, replicas = asyncio.run(scenario())
    assert set(statuses) == {200}
    assert (replicas[0].finished, sum(replicas[1].seen.values())) == (sum(statuses.values()), 0)
