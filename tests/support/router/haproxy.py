# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The distribution's own HAProxy as a process on loopback, with the configuration as rendered."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import signal
import socket
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from ansible_collections.apiary.instinct.plugins.module_utils.router.haproxy import (
    configured_ports,
    kept_state,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.render import haproxy as rendering
from ansible_collections.apiary.instinct.plugins.plugin_utils.render.haproxy import engines_map
from ansible_collections.apiary.instinct.plugins.plugin_utils.render.unit import RenderedFile
from ansible_collections.apiary.instinct.plugins.plugin_utils.router.pools import renumbered
from ansible_collections.apiary.instinct.plugins.plugin_utils.router.types import (
    Pool,
    Router,
    RouterSettings,
    Server,
)

# What asks for another user or for places that only root's service has.
_SERVICE_ONLY = ("chroot ", "user ", "group ")


# Below those of simulated hosts (from 20000) and of clients' connections. Each is given once: two
# frontends may listen on the same one, and each gets half of what comes.
_PORTS = iter(random.sample(range(10000, 20000), 10000))


def free_ports(count: int) -> list[int]:
    """Return ports on which nothing listens, each one for the first time in this process."""
    found: list[int] = []
    while len(found) < count:
        port = next(_PORTS)
        with contextlib.suppress(OSError), socket.socket() as one:
            one.bind(("127.0.0.1", port))
            found.append(port)
    return found


def pool_of(
    ports: Sequence[int], concurrency: int = 1000, port: int = 0, deployment: str = "demo"
) -> Pool:
    """Return a pool of replicas on loopback, one for each port."""
    servers = tuple(
        Server(f"host-{index:02}-0", f"host-{index:02}", 0, "127.0.0.1", at, 0, concurrency, 100)
        for index, at in enumerate(ports)
    )
    return renumbered(Pool(deployment, "org/model", port or free_ports(1)[0], servers))


def localized(text: str, directory: Path) -> str:
    """Return a rendered file for a process of ours: its places below ``directory``."""
    for path, name in (
        (rendering.DIRECTORY, "apiary"),
        (rendering.SOCKET, "admin.sock"),
        (rendering.STATE_FILE, "state"),
    ):
        text = text.replace(path, str(directory / name))
    lines = text.splitlines(keepends=True)
    return "".join(line for line in lines if not line.lstrip().startswith(_SERVICE_ONLY))


class HAProxy:
    """One router: a master with its worker, as the distribution's unit starts them."""

    def __init__(
        self, directory: Path, pools: Sequence[Pool], settings: RouterSettings | None = None
    ) -> None:
        self.directory = directory
        # A command that runs HAProxy's.
        self.within: tuple[str, ...] = ()
        directory.mkdir(parents=True, exist_ok=True)
        self.log_file = directory / "log"
        self._log = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._log.bind(str(directory / "log.sock"))
        self._log.setblocking(False)
        self.log: list[str] = []
        self._reading: asyncio.AbstractEventLoop | None = None
        self.settings = replace(
            settings or RouterSettings(),
            listen=("127.0.0.1",),
            admin_port=free_ports(1)[0],
            connections=4000,
            log=str(directory / "log.sock"),
        )
        self.pools = tuple(pools)
        self.process: subprocess.Popen[bytes] | None = None
        self.write()

    @property
    def port(self) -> int:
        return self.pools[0].port

    def write(self, engine_keys: Mapping[str, str] | None = None) -> None:
        """Write the files for the present pools and settings."""
        router = Router(self.settings, self.pools)
        lines = "".join(f"{name} {key}\n" for name, key in sorted((engine_keys or {}).items()))
        engines = RenderedFile(engines_map({}).path, "0640", lines)
        for file in (*rendering.render_router(router), engines):
            name = file.path.removeprefix("/etc/haproxy/")
            path = self.directory / name
            path.parent.mkdir(exist_ok=True)
            path.write_text(localized(file.content, self.directory))
        state = self.directory / "state"
        if not state.exists():
            state.write_text("1\n")

    def check(self) -> str:
        """Return what HAProxy says of the configuration; empty where it is sound."""
        done = subprocess.run(
            ["haproxy", "-c", "-f", self.directory / "haproxy.cfg"],
            capture_output=True,
            text=True,
            check=False,
        )
        return done.stderr if done.returncode else ""

    async def start(self, up: int | None = None) -> HAProxy:
        """Start it and wait until so many servers are up, or all."""
        # The queue of a datagram socket may be as short as ten, and what is beyond is lost.
        self._reading = asyncio.get_running_loop()
        self._reading.add_reader(self._log, self.read_log)
        argv = ["haproxy", "-W", "-S", str(self.directory / "master.sock"), "-f", "haproxy.cfg"]
        with self.log_file.open("ab") as log:
            self.process = subprocess.Popen(
                [*self.within, *argv],
                cwd=self.directory,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        await self.until_up(sum(len(pool.servers) for pool in self.pools) if up is None else up)
        # Until its own loop runs the master drops SIGUSR2, whatever the worker does already.
        await self.until(partial(self._answers, "master.sock", "show proc"))
        return self

    async def __aenter__(self) -> HAProxy:
        return await self.start()

    async def __aexit__(self, *_raised: object) -> None:
        self.stop()

    def stop(self) -> None:
        """End the master and its workers, and keep the log."""
        if self.process is not None:
            self.process.send_signal(signal.SIGTERM)
            self.process.wait(timeout=120)
            self.process = None
        self.read_log()
        if self._reading is not None and not self._reading.is_closed():
            self._reading.remove_reader(self._log)
        self._log.close()
        said = self.log_file.read_text() if self.log_file.exists() else ""
        # A failure in there is none for clients: the request goes to HAProxy's own second choice.
        assert "Lua" not in said, said

    async def restart(self) -> None:
        """End the process and start another one, of the files as they are."""
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(timeout=120)
        await self.start()

    async def command(self, text: str, name: str = "admin.sock") -> str:
        """Send one command to the admin socket, or another, and return its answer."""
        reader, writer = await asyncio.open_unix_connection(self.directory / name)
        writer.write(f"{text}\n".encode())
        writer.write_eof()  # the master goes on listening without
        said = await reader.read()
        writer.close()
        return said.decode().strip()

    async def until(self, condition: object, seconds: float = 120) -> None:
        """Wait until a function (async or not) says so."""
        async with asyncio.timeout(seconds):
            while True:
                said = condition()  # type: ignore[operator]  # async or not
                if await said if asyncio.iscoroutine(said) else said:
                    return
                await asyncio.sleep(0.02)

    async def until_up(self, count: int) -> None:
        """Wait until so many servers are up and checked."""

        async def up() -> bool:
            try:
                return sum(one["status"] == "UP" for one in await self.servers()) == count
            except OSError:
                assert self.process is not None
                assert self.process.poll() is None, self.log_file.read_text()
                return False

        await self.until(up)

    async def statistics(self) -> list[dict[str, str]]:
        """Return HAProxy's statistics of each frontend, backend and server."""
        head, *rows = (await self.command("show stat")).lstrip("# ").splitlines()
        names = head.split(",")
        return [dict(zip(names, row.split(","), strict=False)) for row in rows]

    async def servers(self) -> list[dict[str, str]]:
        """Return HAProxy's statistics of each server."""
        kinds = ("FRONTEND", "BACKEND")
        return [one for one in await self.statistics() if one["svname"] not in kinds]

    async def set_state(self, server: str, state: str) -> None:
        """Drain a server, or make it ready."""
        said = await self.command(f"set server {self.pools[0].deployment}/{server} state {state}")
        assert not said, said

    async def reload(self) -> None:
        """Do as the unit does: keep the servers' state, then have the master start a new worker."""
        assert self.process is not None
        before = self.workers()
        ports = configured_ports((self.directory / "haproxy.cfg").read_text())
        states = kept_state(await self.command("show servers state"), ports, forced_only=False)
        (self.directory / "state").write_text(states)
        os.kill(self.process.pid, signal.SIGUSR2)
        await self.until(lambda: self.workers() - before)
        await self.until(self._answers)
        # It has begun anew, and drops the next SIGUSR2 as after its start.
        await self.until(partial(self._answers, "master.sock", "show proc"))

    async def _answers(self, name: str = "admin.sock", question: str = "show info") -> bool:
        try:
            return bool(await self.command(question, name))
        except OSError:
            return False

    def workers(self) -> set[int]:
        """Return the processes that the master has: one, and after reloads those that end."""
        assert self.process is not None
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text()
        return set(map(int, children.split()))

    def read_log(self) -> list[str]:
        """Return every line logged until now."""
        while True:
            try:
                self.log.append(self._log.recv(65536).decode(errors="replace"))
            except (BlockingIOError, OSError):
                return self.log

    def entries(self) -> list[dict[str, Any]]:
        """Return the log's entries of requests until now; it has notices of servers, too."""
        lines = [line for line in self.read_log() if '"path"' in line]
        return [json.loads(line[line.index("{") :]) for line in lines]
