# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""How each kind of fault is made and ended, and what it may take along."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from dataclasses import dataclass, field

from chaos.sequence import Step
from loss.fleet import CORE, WORKER, Fleet, Replica, kill_tree
from loss.moment import NOTICED

STORE = "chaos-store"  # the units of the file server: prepare.yml
# HAProxy's worker has a root of its own.
CLOCKS = ("/run/chaos/clock", "/var/lib/haproxy/run/chaos/clock")
# As much as the programs of a host write there, and a file beside that leaves no room for more.
FULL = """
set -e; mkdir -p {path} /run/chaos/full
mount -t tmpfs -o size=4m chaos-full /run/chaos/full
cp -a {path}/. /run/chaos/full/
mount --bind /run/chaos/full {path}
head -c 16M /dev/zero > {path}/.chaos-fill 2>/dev/null || true
"""
ROOM = """
umount -l {path}; rm -f /run/chaos/full/.chaos-fill
cp -a /run/chaos/full/. {path}/; umount -l /run/chaos/full
"""
STATE, ROUTER_STATE = "/var/lib/apiary", "/var/lib/haproxy"


def nothing() -> None:
    """Mend what mends itself."""


@dataclass
class Broken:
    """A fault that was made: what ends it, and what may fail because of it.

    ``replicas`` may fail requests, and ``routers`` (as HOST:PORT) anything that went over them.
    Without either it is something that must cost nothing. ``back`` is within how many calm starts
    of a replica all is whole again, ``noticed`` are the seconds until routers leave a replica alone
    that is dead. Before ``felt`` all may look whole: a hang shows late.
    """

    mend: Callable[[], object] = nothing
    replicas: frozenset[str] = frozenset()
    routers: frozenset[str] = frozenset()
    felt: Callable[[], bool] = lambda: True
    cut: bool = True
    noticed: float = NOTICED
    back: float = 6


@dataclass
class Faults:
    """The faults of one lab; the name of each method is a kind, with _ for -."""

    fleet: Fleet
    batched: int = 32768
    begun: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def make(self, step: Step) -> Broken:
        """Make the fault of a step."""
        broken: Broken = getattr(self, step.kind.replace("-", "_"))(step)
        return broken

    # What dies.

    def kill_core(self, step: Step) -> Broken:
        return self._signal(step, CORE, "KILL")

    def kill_worker(self, step: Step) -> Broken:
        return self._signal(step, WORKER, "KILL")

    def kill_supervisor(self, step: Step) -> Broken:
        return self._signal(step, "main", "KILL")

    def hang_core(self, step: Step) -> Broken:
        replica = self._replica(step.part)
        limits = self.fleet.plans[replica.host]["deployment"]["limits"]
        broken = self._signal(step, CORE, "STOP")
        broken.noticed = limits["hang_timeout_seconds"] + 10
        return broken

    def kill_router(self, step: Step) -> Broken:
        self.fleet.run(step.part, "systemctl kill --kill-whom=all --signal=KILL haproxy")
        return self._of_router(step, nothing)

    def hang_router(self, step: Step) -> Broken:
        return self._of_router(step, self._stopped(step.part, "haproxy"))

    def kill_monitor(self, step: Step) -> Broken:
        self.fleet.run(step.part, "systemctl kill --kill-whom=all --signal=KILL prometheus")
        return Broken()

    def hang_monitor(self, step: Step) -> Broken:
        return Broken(self._stopped(step.part, "prometheus"))

    def power_gpu(self, step: Step) -> Broken:
        return Broken(self._off(step.part), self._on(step.part), back=8)

    def power_router(self, step: Step) -> Broken:
        return self._of_router(step, self._off(step.part))

    def power_site(self, step: Step) -> Broken:
        """Everything is without power, and what stores the weights comes back last."""
        hosts = [host for host in self.fleet.hosts if host not in self.fleet.named("storage")]
        stores = [self._off(host) for host in self.fleet.named("storage")]
        for on in [self._off(host) for host in hosts]:
            on()

        def mend() -> None:
            for on in stores:
                on()

        everything = frozenset(replica.name for replica in self.fleet.replicas)
        routers = frozenset(map(self._endpoint, self.fleet.routers))
        # Nobody serves until the first replica does.
        return Broken(mend, everything, routers, noticed=float("inf"), back=16)

    # What is cut off, full, or in another time.

    def cut_gpu(self, step: Step) -> Broken:
        # No packet says that it is gone: what was in flight ends when TCP gives up.
        return Broken(self.fleet.cut(step.part), self._on(step.part), noticed=5)

    def cut_router(self, step: Step) -> Broken:
        return self._of_router(step, self.fleet.cut(step.part))

    def cut_monitor(self, step: Step) -> Broken:
        return Broken(self.fleet.cut(step.part))

    def cut_storage(self, step: Step) -> Broken:
        return self._while_a_replica_starts(step, self.fleet.cut(step.part))

    def full_gpu(self, step: Step) -> Broken:
        """A replica dies while the disk is full, and one that has room again has it back."""
        self.fleet.run(step.part, FULL.format(path=STATE))
        here = [replica for replica in self.fleet.replicas if replica.host == step.part]
        return self._while_a_replica_starts(step, self._room(step.part), here)

    def full_router(self, step: Step) -> Broken:
        """A router reloads while it has no room for its servers' states."""
        self.fleet.run(step.part, FULL.format(path=ROUTER_STATE))
        self.fleet.run(step.part, "systemctl reload haproxy", check=False)
        return Broken(self._room(step.part, ROUTER_STATE))

    def clock_gpu(self, step: Step) -> Broken:
        return self._jump(step)

    def clock_router(self, step: Step) -> Broken:
        return self._jump(step)

    # What has the weights.

    def stall_storage(self, step: Step) -> Broken:
        self.fleet.run(step.part, f"systemctl kill --signal=STOP '{STORE}@*'")

        def mend() -> None:
            self.fleet.run(step.part, f"systemctl kill --signal=CONT '{STORE}@*'")

        return self._while_a_replica_starts(step, mend)

    def kill_storage(self, step: Step) -> Broken:
        """Who has files open is told an error, and nobody answers until it is mended."""
        self.fleet.run(step.part, f"systemctl stop {STORE}.socket")
        self.fleet.run(step.part, f"systemctl kill --signal=KILL '{STORE}@*'", check=False)

        def mend() -> None:
            self.fleet.run(step.part, f"systemctl start {STORE}.socket")

        return self._while_a_replica_starts(step, mend)

    # What an operator does on purpose costs nothing, also if it is interrupted.

    def drain(self, step: Step) -> Broken:
        self.fleet.playbook("drain", "-e", f"target={step.part}")
        return Broken(lambda: self.fleet.playbook("undrain", "-e", f"target={step.part}"))

    def reload(self, step: Step) -> Broken:
        self.fleet.run(step.part, "systemctl reload haproxy")
        return Broken()

    def restart(self, step: Step) -> Broken:
        replica = self._replica(step.part)
        self.fleet.run(replica.host, f"systemctl restart {replica.unit}")
        return Broken()

    def rollout(self, step: Step) -> Broken:
        self.fleet.playbook("rollout", *self._change())
        return Broken()

    def rollout_killed(self, step: Step) -> Broken:
        """The controller dies in the middle and nobody comes: routers end the drain."""
        process = self.fleet.begin("rollout", *self._change())
        self.begun.append(process)
        return Broken(lambda: kill_tree(process), back=16)

    def settle(self) -> None:
        """Let replicas that serve be good ones, as they are after ten minutes."""
        for host in self.fleet.named("gpu_hosts"):
            self.fleet.run(host, "rm -f /run/apiary/*/starts", check=False)

    def end(self) -> None:
        """End what a run that was interrupted left at work."""
        for process in self.begun:
            if process.poll() is None:
                kill_tree(process)

    def _change(self) -> tuple[str, str]:
        """Return a setting that no replica has had lately, also if a rollout before was killed."""
        self.batched = self.batched - 512 if self.batched > 16384 else 32768
        return "-e", f"loss_batched_tokens={self.batched}"

    def _replica(self, name: str) -> Replica:
        return next(replica for replica in self.fleet.replicas if replica.name == name)

    def _on(self, host: str) -> frozenset[str]:
        return frozenset(one.name for one in self.fleet.replicas if one.host == host)

    def _endpoint(self, router: str) -> str:
        return "{}:{}".format(*self.fleet.endpoint(router))

    def _of_router(self, step: Step, mend: Callable[[], object]) -> Broken:
        return Broken(mend, routers=frozenset({self._endpoint(step.part)}))

    def _signal(self, step: Step, name: str, word: str) -> Broken:
        replica = self._replica(step.part)
        pids = self.fleet.processes(replica)[name]
        felt = self._restarted(replica)
        pid = pids[int(step.chance * len(pids))]
        self.fleet.run(replica.host, f"kill -{word} {pid}")
        return Broken(replicas=frozenset({replica.name}), felt=felt, cut=name == "main")

    def _restarted(self, replica: Replica) -> Callable[[], bool]:
        """Return what tells whether systemd has started a replica again since now."""
        before = self.fleet.restarts(replica)
        return lambda: self.fleet.restarts(replica) > before

    def _stopped(self, host: str, unit: str) -> Callable[[], object]:
        self.fleet.run(host, f"systemctl kill --kill-whom=all --signal=STOP {unit}")
        go_on = f"systemctl kill --kill-whom=all --signal=CONT {unit}"
        return lambda: self.fleet.run(host, go_on, check=False)

    def _off(self, host: str) -> Callable[[], object]:
        self.fleet.docker("kill", host)
        return lambda: self.fleet.docker("start", host)

    def _room(self, host: str, path: str = STATE) -> Callable[[], object]:
        return lambda: self.fleet.run(host, ROOM.format(path=path))

    def _jump(self, step: Step) -> Broken:
        """Set the programs' clock of a host, up to two days back or on."""
        seconds = round((step.chance - 0.5) * 4 * 86400)
        self._clock(step.part, f"{seconds:+d}")
        return Broken(lambda: self._clock(step.part, "+0"))

    def _clock(self, host: str, offset: str) -> None:
        for path in CLOCKS:
            self.fleet.run(host, f"test ! -e {path} || echo '{offset}' > {path}")

    def _while_a_replica_starts(
        self, step: Step, mend: Callable[[], object], among: list[Replica] | None = None
    ) -> Broken:
        """Kill a replica's engine, so that it starts while something else is broken."""
        replicas = among or self.fleet.replicas
        replica = replicas[int(step.chance * len(replicas))]
        (core,) = self.fleet.processes(replica)[CORE]
        felt = self._restarted(replica)
        self.fleet.run(replica.host, f"kill -KILL {core}")
        return Broken(mend, frozenset({replica.name}), felt=felt, cut=False, back=12)
