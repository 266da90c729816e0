# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A replica over hosts: its processes meet at rank 0, and those without HTTP hold their GPUs."""

from __future__ import annotations

import os
import signal
import socket
import time
import typing

from engine_double import hardware
from engine_double.logs import StartupError, info

# How long torch waits for the others of a group.
PATIENCE = 600.0


def share(settings: dict[str, typing.Any]) -> int:
    """Return how many GPUs of the engine are this host's; refuse numbers that do not divide."""
    world = settings["tensor_parallel_size"] * (settings.get("pipeline_parallel_size") or 1)
    nodes = settings.get("nnodes") or 1
    if world % nodes or not 0 <= (settings.get("node_rank") or 0) < nodes:
        raise StartupError(
            "ValueError",
            f"`--nnodes {nodes}` must evenly divide the total world size ({world}), and "
            "`--node-rank` be below it.",
        )
    return int(world // nodes)


def meet(settings: dict[str, typing.Any]) -> list[socket.socket]:
    """Wait until every process of the engine is there; return what ties them while they live."""
    nodes = settings.get("nnodes") or 1
    if nodes == 1:
        return []
    rank, where = settings.get("node_rank") or 0, (settings["master_addr"], settings["master_port"])
    info("parallel_state.py:0", f"node_rank={rank} of {nodes} meets at tcp://{where[0]}:{where[1]}")
    if rank:
        return [_join(where)]
    meeting = socket.create_server(where, backlog=nodes)
    meeting.settimeout(PATIENCE)
    try:
        return [meeting, *(meeting.accept()[0] for _other in range(nodes - 1))]
    except TimeoutError:
        raise _alone(f"{nodes} processes were expected") from None


def _join(where: tuple[str, int]) -> socket.socket:
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        try:
            return socket.create_connection(where, timeout=5)
        except OSError:
            time.sleep(0.2)
    raise _alone(f"nobody answers at {where[0]}:{where[1]}")


def _alone(why: str) -> StartupError:
    return StartupError("DistStoreError", f"Timed out after {PATIENCE:.0f} seconds: {why}")


def work(settings: dict[str, typing.Any], gpus: list[hardware.Gpu]) -> int:
    """Hold this host's GPUs until a signal; the end of rank 0 is not noticed, as in vLLM."""
    claims = hardware.claim(gpus, settings["root"], settings["gpu_memory_utilization"])
    endings, ending = os.pipe()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: os.write(ending, b"."))
    info("serve.py:0", "Launching headless multiproc executor: this process serves no HTTP")
    os.read(endings, 1)
    for held in claims:
        held.close()
    return 0
