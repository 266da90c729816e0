# SPDX-License-Identifier: GPL-3.0-or-later

"""Gather evidence from hosts over SSH: the very collector that the Ansible module runs."""

from __future__ import annotations

import json
import shlex
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import paramiko
from ansible_collections.apiary.instinct.plugins.module_utils.evidence import gpu as collector
from ansible_collections.apiary.instinct.plugins.plugin_utils.documents import knowledge
from ansible_collections.apiary.instinct.plugins.plugin_utils.evidence.types import (
    bounded,
    check_size,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.findings import ApiaryError, error
from ansible_collections.apiary.instinct.plugins.plugin_utils.host.program import standalone

from apiary.host.ssh.config import SshOptions, Target, parse_target, target_of
from apiary.host.ssh.connect import Connector, run, unreachable, words

__all__ = ["ProbeRequest", "Probed", "SshOptions", "failures", "labels", "probe_each"]


@dataclass(frozen=True)
class ProbeRequest:
    """A host to probe: what it is called, and how it is reached.

    ``target`` is a Target, or what a person typed for one; None is this machine. ``secret`` says
    that an inventory has a password or a private key for it, which Ansible logs in with.
    """

    name: str
    target: Target | str | None
    options: SshOptions
    secret: bool = False


@dataclass(frozen=True)
class Probed:
    """One host's evidence bundle, or the error that kept it from us."""

    host: str
    bundle: dict[str, Any] | None
    failure: ApiaryError | None = None


def probe_each(request: Iterable[ProbeRequest], parallel: int = 16) -> Iterator[Probed]:
    """Probe hosts in parallel and yield each as it is done; one that fails keeps no other."""
    waiting = list(request)
    with ThreadPoolExecutor(max_workers=max(1, min(parallel, len(waiting)))) as pool:
        futures = [pool.submit(_probe, host) for host in waiting]
        try:
            for future in as_completed(futures):
                yield future.result()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)  # Ctrl-C: start no further ones
            raise


def labels(hosts: Iterable[str]) -> dict[str, str]:
    """Return the name to show, and to call the file by, of each host as it was given."""
    targets: dict[str, Target | None] = {}
    for host in hosts:
        try:
            targets[host] = parse_target(host)
        except ApiaryError:
            targets[host] = None
    shared = Counter(target.host for target in targets.values() if target)
    return {
        name: name if target is None else target.host if shared[target.host] == 1 else str(target)
        for name, target in targets.items()
    }


def failures(results: Iterable[Probed]) -> Iterator[ApiaryError]:
    """Yield the errors of the hosts that could not be probed, one that many share only once."""
    seen: dict[object, ApiaryError] = {}
    for probed in results:
        if probed.failure is not None:
            seen.setdefault(probed.failure.findings, probed.failure)
    return iter(seen.values())


def _probe(request: ProbeRequest) -> Probed:
    host = request.name
    try:
        if request.target is None:
            return Probed(host, collector.collect(knowledge("evidence.yml")["gpu"]))
        return Probed(host, _gather(request))
    except ApiaryError as failure:
        return Probed(host, None, failure)
    except Exception as failure:  # whatever it is, the other hosts go on
        unforeseen = error(
            "PROBE-FAILED", host, f"an error nobody foresaw: {type(failure).__name__}: {failure}"
        )
        return Probed(host, None, unforeseen)


def _gather(request: ProbeRequest) -> dict[str, Any]:
    host, options = request.name, request.options
    target = target_of(request.target or host, options)
    if not target.possible:
        raise error("PROBE-TARGET", host, f"{target} is no host that SSH could reach")
    with ExitStack() as stack:
        transport = Connector(options, stack).connect(target, host)
        command = f"{shlex.quote(options.python)} -"
        try:
            status, text, complaint = run(transport, options, command, collector_program())
        except (paramiko.SSHException, OSError, EOFError) as failure:
            raise unreachable(host, f"the connection broke: {words(failure)}", target) from failure
    problem = f"ended with status {status}"
    check_size(len(text.encode()), host)
    if status == 0:
        try:
            bundle = json.loads(text)
            if isinstance(bundle, dict):
                bounded(bundle, host)
                return bundle
        except (ValueError, RecursionError):
            pass
        problem = "printed no JSON object"
    elif status is None:
        problem = f"did not end within {options.collect_timeout:g} s"
    elif status == -1:
        problem = "ended without a status"
    last = (complaint.strip() or text.strip() or "no output").splitlines()[-1]
    raise error(
        "PROBE-COLLECTOR", host, f"the collector {problem}: {last[:200]}", python=options.python
    )


@cache
def collector_program() -> bytes:
    """Return the collector as one file, and what it is to collect."""
    tables = json.dumps(knowledge("evidence.yml")["gpu"])
    return f"{standalone(Path(collector.__file__))}\nmain({tables!r})\n".encode()
