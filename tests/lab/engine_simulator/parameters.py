# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a simulated deployment, its client and its faults are like. Times are seconds."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import yaml
from ansible_collections.apiary.instinct.plugins.plugin_utils.documents import from_document

PARAMETERS = Path(__file__).parent / "parameters"


@dataclass(frozen=True)
class Engine:
    """One engine. A step takes ``step`` + ``sequence`` for each sequence that decodes +
    ``kv_token`` for each token of their contexts + ``prefill_token`` for each prompt token
    computed in it (chunked prefill: at most ``max_num_batched_tokens`` of both together) +
    ``image`` for each image encoded + ``offload_token`` for each token that comes back from the
    host's memory, which holds ``offload_tokens`` of what the KV cache (``kv_tokens``) has no room
    for + ``experts`` by the share of experts that its tokens touch,
    when each token takes ``expert_share`` of them. ``jit`` is added to the first step of each batch
    size (by powers of two) in a level. ``network`` lies between client and engine;
    a piece of an answer has ``stream_interval`` tokens.
    """

    step: float
    sequence: float
    kv_token: float
    prefill_token: float
    kv_tokens: int
    experts: float = 0.0
    expert_share: float = 0.0
    max_num_seqs: int = 1024
    max_num_batched_tokens: int = 8192
    block_size: int = 16
    prefix_caching: bool = True
    image: float = 0.0
    offload_tokens: int = 0
    offload_token: float = 0.0
    jit: float = 0.0
    network: float = 0.0005
    stream_interval: int = 1


@dataclass(frozen=True)
class Parameters:
    """A deployment: ``replicas`` equal engines behind one address.

    ``routing``: `shard` gives a load process to one replica, as a target of several URLs does;
    `least` is a router that picks the replica with the fewest requests. The ``*_cov`` are the
    coefficients of variation of one step, of all of one level, and of one engine run of the engine.
    """

    name: str
    model: str
    engine: Engine
    replicas: int = 1
    gpus_per_replica: int = 8
    routing: Literal["shard", "least"] = "shard"
    step_cov: float = 0.01
    level_cov: float = 0.002
    engine_run_cov: float = 0.01
    version: str = "0.32.0"
    sources: tuple[str, ...] = ()
    fit: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Client:
    """The load generator. One of its ``processes`` spends ``chunk`` of processor time on each
    streamed chunk and ``request`` on each request, and burns the share ``idle`` of a core beside.
    ``slots`` caps what it really has in flight. ``identical``: it sends one prompt over and over,
    whatever was asked; what it asks has ``input_factor`` times the tokens of the workload.
    The first process ends with ``exit_code`` and loses the last ``lost`` of its results.
    ``metrics``: it can read the engines' /metrics. ``buffered``: what lies before it holds back
    an answer until it is whole.
    """

    processes: int = 1
    cores: int = 64
    chunk: float = 0.0
    request: float = 0.0
    idle: float = 0.0
    slots: int | None = None
    identical: bool = False
    input_factor: float = 1.0
    exit_code: int = 0
    lost: int = 0
    self_test: bool = True
    metrics: bool = True
    buffered: bool = False


@dataclass(frozen=True)
class Faults:
    """What goes wrong: a share of requests gets an error, or stops early without ignore_eos; the
    engine dies so many seconds into the level; or it began anew in it, between two requests.
    """

    error_share: float = 0.0
    stop_share: float = 0.0
    crash_after: float | None = None
    restarted: bool = False


class _Dumper(yaml.SafeDumper):
    """Indents lists in mappings, as yamllint wants it."""

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        """Never leave a list where its key stands."""
        super().increase_indent(flow, False)


def dumped(data: Any) -> str:
    """Return data as YAML text in its own order."""
    text: str = yaml.dump(data, Dumper=_Dumper, sort_keys=False, width=98)
    return text


def names() -> tuple[str, ...]:
    """Return the names of the parameter sets kept beside this file."""
    return tuple(sorted(path.stem for path in PARAMETERS.glob("*.yml")))


def parameters(name: str) -> Parameters:
    """Return one parameter set by its name."""
    path = PARAMETERS / f"{name}.yml"
    data = yaml.safe_load(path.read_text(encoding="utf-8"))
    return from_document(Parameters, {"name": name, **data}, str(path))
