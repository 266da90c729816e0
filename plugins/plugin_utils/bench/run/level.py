# SPDX-License-Identifier: GPL-3.0-or-later

"""What a load host has to run for one level: a Load becomes the request of bench_run."""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass, replace
from typing import Any, Literal

from ...documents import knowledge, to_document
from ...numbers import parse_cpulist
from .. import command
from ..types import Load, Raw, Target

Backend = Literal["vllm", "builtin"]
# What bench_run fills in.
DIRECTORY, MOCK = "@DIR@", "@MOCK@"


@dataclass(frozen=True)
class Client:
    """The load generator: which one, how it is called, and what it may use of its host.

    ``command`` starts `vllm` of the server's own environment; with ``image`` it is a
    container of ``engine`` (docker or podman) instead. ``version`` is of that vLLM. ``cpus`` are
    the ones that it is kept to, ``apart_from`` those whose NUMA nodes it avoids. ``gpus`` is
    `none`, `sysfs` (the load host serves) or the URL of an exporter. ``session_header`` has a
    session's key.
    """

    backend: Backend
    version: str | None
    command: tuple[str, ...] = ("vllm",)
    image: str | None = None
    engine: str = "docker"
    cores: int = 1
    cpus: tuple[int, ...] = ()
    apart_from: tuple[int, ...] | None = None
    gpus: str = "none"
    self_test: bool = True
    timeout: float | None = None
    session_header: str | None = None


def shard_count(load: Load, urls: int, cores: int, parts: int = 1) -> int:
    """Return by how many processes a load is sent.

    Enough that none measures its own delay, no more than cores or than there are streams, and a
    multiple of the URLs and of the workload's parts, where there are as many streams as that.
    """
    facts = knowledge("bench/run.yml")["shards"]
    if load.concurrency is not None:
        wanted = math.ceil(load.concurrency / facts["concurrency_per_process"])
        most = min(load.concurrency, load.requests)
    else:
        tokens = (load.request_rate or 0.0) * load.workload.output_tokens
        wanted = math.ceil(tokens / facts["tokens_per_second_per_process"])
        most = load.requests
    step = urls * parts
    if most < step:
        return max(1, most if parts == 1 else most // parts * parts)
    each = math.ceil(max(1, min(wanted, cores)) / step)
    return int(min(each * step, most // step * step))


def crowded(load: Load, cores: int) -> bool:
    """Return whether the load needs more client processes than the load host has cores."""
    return shard_count(load, 1, 1 << 30, 1) > cores


def free_cpus(nodes: dict[str, str], busy: tuple[int, ...]) -> tuple[int, ...]:
    """Return the CPUs of the NUMA nodes on which no replica runs; none where they run on all.

    ``nodes`` are the cpulists of nodes, ``busy`` the CPUs that replicas are bound to.
    """
    apart = [
        parse_cpulist(cpus) for cpus in nodes.values() if not set(parse_cpulist(cpus)) & set(busy)
    ]
    return tuple(sorted(cpu for cpus in apart for cpu in cpus))


def limit_seconds(load: Load) -> float:
    """Return after how long a level has hung."""
    facts = knowledge("bench/run.yml")["timeout"]
    if load.concurrency is not None:
        sent = facts["seconds_per_wave"] * math.ceil(load.requests / load.concurrency)
    else:
        sent = 2 * load.requests / (load.request_rate or 1.0)
    return float(max(facts["least_seconds"], sent))


def mock_times(before: Raw | None) -> tuple[float, float]:
    """Return the mock's TTFT and ITL in seconds: the ITL of the level before, within bounds."""
    facts = knowledge("bench/run.yml")["self_test"]
    gaps = [
        gap
        for shard in (before.shards if before else ())
        for request in (shard.get("itls") or ())[:200]
        for gap in request
    ]
    itl = statistics.median(gaps) if gaps else facts["itl_seconds"]
    bounded = min(max(itl, facts["itl_least_seconds"]), facts["itl_most_seconds"])
    return float(facts["ttft_seconds"]), float(bounded)


def mock_load(load: Load) -> Load:
    """Return the load of a self-test: as many streams, a few short requests each."""
    facts = knowledge("bench/run.yml")["self_test"]
    streams = load.concurrency or min(load.requests, facts["requests_least"])
    requests = min(max(facts["waves"] * streams, facts["requests_least"]), max(load.requests, 1))
    output = min(load.workload.output_tokens, facts["output_tokens"])
    return replace(
        load, requests=requests, warmups=0, workload=replace(load.workload, output_tokens=output)
    )


def request_of(load: Load, target: Target, client: Client, tested: Raw | None) -> dict[str, Any]:
    """Return what bench_run is requested, but the secrets.

    ``tested`` is the raw result of the level before; its times are those of this one's self-test.
    """
    facts = knowledge("bench/run.yml")
    if unsendable(load, client):
        client = replace(client, backend="builtin")
    # One process of vLLM's client sends one part of a mixed workload.
    parts = len(load.workload.parts) if client.backend == "vllm" else 0
    shards = shard_count(load, len(target.urls), client.cores, parts or 1)
    # Fewer streams than addresses: not all are used.
    target = replace(target, urls=target.urls[:shards])
    sampling = facts["sampling"]
    request = {
        "do": "level",
        "load": to_document(load),
        "backend": client.backend,
        "version": client.version,
        "shards": _shards(load, target, client, shards, "shard"),
        "environment": {},
        "metrics": list(target.metrics),
        "gauges": sampling["gauges"],
        "sample": sampling["seconds"],
        "http_seconds": sampling["http_seconds"],
        "gpus": client.gpus,
        "exporter": {name: facts["exporter"][name] for name in ("power_w", "clock_mhz", "key")},
        "timeout_seconds": client.timeout or limit_seconds(load),
        "cpus": list(client.cpus),
        "contained": client.image is not None,
        "self_test": None,
    }
    if client.self_test:
        ttft, itl = mock_times(tested)
        mocks = replace(target, urls=(MOCK,), metrics=())
        request["self_test"] = {
            "ttft_seconds": ttft,
            "itl_seconds": itl,
            "mock": ["--ttft", f"{ttft:g}", "--itl", f"{itl:g}", "--model", target.model],
            "shards": _shards(mock_load(load), mocks, client, shards, "test"),
            "timeout_seconds": facts["self_test"]["timeout_seconds"],
        }
    return request


def unsendable(load: Load, client: Client) -> str | None:
    """Return why vLLM's own client cannot send a load, which the builtin one sends then.

    Raises ApiaryError with BENCH-VERSION for a version whose client is not known.
    """
    if client.backend != "vllm":
        return None
    why = command.refusal(load, client.version or "")
    return why and f"vllm bench serve of {client.version} {why}"


def inspection_of(target: Target, client: Client) -> dict[str, Any]:
    """Return what bench_run is requested before the first level, but the secrets.

    A vLLM whose version is given is not requested it: to say it, it loads all of torch.
    """
    sampling = knowledge("bench/run.yml")["sampling"]
    reported = []
    if client.backend == "vllm" and not client.version:
        reported = [*_command(client, 0, target.tokenizer), "--version"]
    return {
        "do": "inspect",
        "urls": list(target.urls),
        "metrics": list(target.metrics),
        "model": target.model,
        "client": reported,
        "http_seconds": sampling["http_seconds"],
        "answer_seconds": sampling["answer_seconds"],
    }


def _shards(
    load: Load, target: Target, client: Client, shards: int, name: str
) -> list[dict[str, Any]]:
    """Return argv and result file of each process."""
    found = []
    for shard in range(shards):
        file = f"{name}-{shard}.json"
        if client.backend == "vllm":
            argv = command.argv(
                load,
                target,
                shard,
                shards,
                client.version or "",
                DIRECTORY,
                file,
                _command(client, shard, target.tokenizer),
            )
        else:
            header = client.session_header
            argv = command.builtin_argv(load, target, shard, shards, DIRECTORY, file, header)
        one: dict[str, Any] = {"argv": list(argv), "result": file}
        if client.backend == "vllm" and client.image:
            remove = knowledge("bench/run.yml")["container"]["remove"]
            one["after"] = [client.engine, *(word.format(shard=shard) for word in remove)]
        found.append(one)
    return found


def _command(client: Client, shard: int, tokenizer: str | None) -> tuple[str, ...]:
    """Return what starts `vllm`, in a container where there is an image."""
    if client.image is None or client.backend != "vllm":
        return client.command
    facts = knowledge("bench/run.yml")["container"]
    words = tuple(word.format(shard=shard) for word in facts["argv"])
    # A tokenizer by path lies on the load host.
    mount = ("-v", f"{tokenizer}:{tokenizer}:ro") if (tokenizer or "").startswith("/") else ()
    return (client.engine, *words, *mount, "--entrypoint", facts["entrypoint"], client.image)
