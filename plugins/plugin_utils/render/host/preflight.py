# SPDX-License-Identifier: GPL-3.0-or-later

"""What must hold before an engine may start, and what an unclean end before it has left behind."""

from __future__ import annotations

import contextlib
import fnmatch
import json
import os
import re
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from typing import Any

from ....module_utils.finding import ApiaryError, Finding
from ....module_utils.kfd import read
from . import gpus
from .context import Context, replica_error


def inside(context: Context) -> tuple[Callable[[Context], object], ...]:
    """Return the checks in their order; the cheap ones that cannot heal come first."""
    del context
    return (check_binding, check_isolation, check_health, check_port, check_weights, wait_memory)


def outside(context: Context) -> tuple[Callable[[Context], object], ...]:
    """Return those that hold for the host whoever asks: nothing of the unit or its own use."""
    del context
    return (check_present, check_health, check_weights)


def check_present(context: Context) -> None:
    gpus.present(context.spec.gpus, context.root)


def check_isolation(context: Context) -> list[str]:
    """Refuse other GPUs than the planned ones; return their keys in HIP's order."""
    return gpus.visible_devices(context.spec.gpus, context.root)


def cpulist(text: str) -> set[int]:
    """Return the numbers of a kernel list: 0-3,8."""
    numbers: set[int] = set()
    for part in filter(None, text.split(",")):
        first, _dash, last = part.partition("-")
        numbers.update(range(int(first), int(last or first) + 1))
    return numbers


def check_binding(context: Context) -> None:
    """Refuse CPUs and memory nodes of others; fewer than planned are told only.

    The kernel's word counts, not the unit's: /proc/self/status and the policy of our own pages.
    """
    status = dict(
        line.split(":", 1)
        for line in read(os.path.join(context.root, "proc/self/status")).splitlines()
        if ":" in line
    )
    spec = context.spec
    if spec.cpus:
        _compare(
            context,
            "CPUs",
            cpulist(spec.cpus),
            cpulist(status.get("Cpus_allowed_list", "").strip()),
        )
    allowed = cpulist(status.get("Mems_allowed_list", "").strip())
    # With one node there is nothing to choose, and no policy to see.
    if spec.memory_nodes and len(allowed) > 1:
        bound = memory_policy(read(os.path.join(context.root, "proc/self/numa_maps")))
        _compare(context, "memory nodes", set(spec.memory_nodes), bound or allowed)


def memory_policy(numa_maps: str) -> set[int] | None:
    """Return the nodes that a process's pages come from; None for the kernel's default.

    Source: numa(7), second field of /proc/PID/numa_maps: bind:0, interleave:0-1, default.
    """
    for line in numa_maps.splitlines():
        match = re.match(
            r"\S+ (?:bind|interleave|weighted interleave|prefer[^:]*)[^:]*:([\d,-]+)", line
        )
        if match:
            return cpulist(match[1])
    return None


def _compare(context: Context, what: str, planned: set[int], found: set[int]) -> None:
    if found == planned:
        return
    message = f"planned {what} {ranges(planned)}, in effect {ranges(found) or 'none'}"
    if found - planned or not found:
        raise replica_error("REPLICA-BINDING", message)
    context.report(replica_error("REPLICA-BINDING", message, minor=True))


def ranges(numbers: set[int]) -> str:
    """Return numbers as the kernel lists them: 0-3,8."""
    parts: list[list[int]] = []
    for number in sorted(numbers):
        if parts and number == parts[-1][1] + 1:
            parts[-1][1] = number
        else:
            parts.append([number, number])
    return ",".join(f"{a}-{b}" if a != b else str(a) for a, b in parts)


def check_health(context: Context) -> None:
    """Refuse GPUs with uncorrectable errors; one that doesn't tell (a guest's) passes."""
    rule = context.life["gpu"]["health"]
    sick = []
    for key in context.spec.gpus:
        for name in rule["files"]:
            match = re.search(rule["pattern"], gpus.device_file(key, name, context.root))
            if match and int(match[1]) > rule["limit"]:
                sick.append(f"{key} ({match[1]} in {name})")
    if sick:
        raise replica_error(
            "REPLICA-GPU-SICK", f"uncorrectable errors on planned GPU {', '.join(sick)}"
        )


def wait_memory(context: Context) -> None:
    """Wait until the GPUs' memory is free; raises REPLICA-GPU-BUSY with who holds it."""
    limits = context.life["gpu"]["busy"]
    deadline = time.monotonic() + limits["wait_seconds"]
    while True:
        used = {key: gpus.used_bytes(key, context.root) or 0 for key in context.spec.gpus}
        busy = {key: count for key, count in used.items() if count > limits["bytes"]}
        if not busy:
            return
        shown = ", ".join(f"{key} ({count / 2**30:.1f} GiB)" for key, count in busy.items())
        if time.monotonic() >= deadline:
            raise replica_error(
                "REPLICA-GPU-BUSY",
                f"memory of planned GPU {shown} is in use{_holders(context, set(busy))}",
            )
        context.notifier.status(f"waiting for memory of GPU {shown}")
        context.pause(limits["poll_seconds"])


def check_share(context: Context, command: list[str]) -> None:
    """Report a gpu_memory_utilization above what is free: vLLM refuses to start with it."""
    given = re.search(r" --gpu-memory-utilization[ =](\d?\.?\d{1,9})(?: |$)", " ".join(command))
    lacking = []
    for key in context.spec.gpus if given else ():
        used = gpus.used_bytes(key, context.root)
        total = gpus.device_file(key, "mem_info_vram_total", context.root)
        if given and used and total.isdigit() and used > (1 - float(given[1])) * int(total):
            lacking.append(f"{key} ({used / 2**30:.1f} of {int(total) / 2**30:.1f} GiB in use)")
    if given and lacking:
        message = f"engines want {given[1]} of each GPU's memory: {', '.join(lacking)}"
        context.report(replica_error("REPLICA-GPU-SHARE", message))


def _holders(context: Context, keys: set[str]) -> str:
    host = gpus.gpus_of_host(context.root)
    ids = {host[key].gpu_id for key in keys if key in host}
    names = [
        f"{pid} ({read(os.path.join(context.root, 'proc', str(pid), 'comm')) or 'unknown'})"
        for pid, held in sorted(gpus.holders(context.root).items())
        if held & ids
    ]
    return f" by process {', '.join(names)}" if names else ""


def check_port(context: Context) -> None:
    """Refuse a port that somebody serves: his answers would pass for this replica's."""
    host, port = context.spec.listen_address, context.spec.port
    if context.spec.headless:
        return
    try:
        family, _type, _protocol, _name, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        socket.create_server(address[:2], family=family, backlog=1).close()
    except OSError as failure:
        raise replica_error(
            "REPLICA-PORT-BUSY",
            f"cannot listen on {host} port {port}: {os.strerror(failure.errno or 0)}",
        ) from failure


def check_weights(context: Context) -> None:
    """Refuse weights that aren't there or aren't what was published."""
    facts, directory = context.life["weights"], context.spec.weights
    program = facts["check"]
    if os.access(program, os.X_OK):
        _ask_checker(context, [program, "--json", directory])
    elif not os.path.exists(os.path.join(directory, facts["needs"])):
        raise replica_error("REPLICA-WEIGHTS", f"{directory} has no {facts['needs']}")
    else:
        message = f"{program} is not there: nobody compares {directory} with what was published"
        context.report(replica_error("REPLICA-WEIGHTS", message, minor=True))


def passing_refusal(context: Context) -> ApiaryError | None:
    """Return why weights are not there yet; None where they are, or are wrong for good."""
    try:
        check_weights(context)
    except ApiaryError as refusal:
        entry = context.life["refusals"]["entries"].get(refusal.findings[0].code)
        return refusal if entry is None or entry["kind"] == "transient" else None
    return None


def _ask_checker(context: Context, command: list[str]) -> None:
    limit = context.life["weights"]["limit_seconds"]
    deadline = time.monotonic() + limit
    # Not communicate(): what reads a dead file server cannot even be killed.
    with os.fdopen(os.memfd_create("weights-check"), "w+b") as output:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT
        )
        while process.poll() is None and time.monotonic() < deadline:
            context.pause(0.05)
        if process.returncode is None:
            process.send_signal(signal.SIGKILL)
            process.returncode = -signal.SIGKILL  # nobody waits: it may never end
            raise replica_error(
                "REPLICA-WEIGHTS", f"{context.spec.weights} could not be read within {limit} s"
            )
        output.seek(0)
        text = output.read().decode("utf-8", "replace")
    try:
        (model,) = json.loads(text)["models"]
        finding = _finding(model["finding"])
        kinds = {one["kind"] for one in model.get("deviations", ())}
    except (ValueError, KeyError, TypeError) as failure:
        raise replica_error(
            "REPLICA-WEIGHTS",
            f"{command[0]} ended with status {process.returncode}: {text.strip()[-300:]}",
        ) from failure
    if finding is not None:
        message = f"{finding.subject}: {finding.message}"
        # Another size or hash, or more code, stays; what could not be read may be there again.
        if kinds and not kinds & set(context.life["weights"]["lasting"]):
            raise replica_error("REPLICA-WEIGHTS", message)
        refusal = ApiaryError(finding.reworded(message=message))
        if finding.severity == "error":
            raise refusal
        context.report(refusal)


def _finding(document: dict[str, Any] | None) -> Finding | None:
    """Return the finding of weights-check, which has explained it."""
    if document is None:
        return None
    names = ("code", "severity", "subject", "message", "remedy")
    return Finding.from_fields(**{name: document[name] for name in names}, source=None)


def own_group(context: Context) -> str | None:
    """Return the directory of the unit's control group; None where we run outside of the unit.

    Source: cgroups(7): 0::PATH with version 2, N:name=systemd:PATH with version 1.
    """
    unified = legacy = None
    for line in read(os.path.join(context.root, "proc/self/cgroup")).splitlines():
        number, controllers, path = line.split(":", 2)
        # Never another's processes: only a group that is named as the unit is.
        if os.path.basename(path) != context.spec.unit:
            continue
        if number == "0":
            unified = path
        elif controllers == "name=systemd":
            legacy = path
    places = [("systemd", legacy), ("unified", unified), ("", unified)]
    for base, group in places:
        directory = os.path.join(context.root, "sys/fs/cgroup", base, (group or "").lstrip("/"))
        if group and os.path.exists(os.path.join(directory, "cgroup.procs")):
            return directory
    return None


def end_processes(context: Context) -> None:
    """Kill what runs beside us in the unit's control group; raises REPLICA-LEFTOVER."""
    group = own_group(context)
    if group is None:
        return
    deadline = time.monotonic() + context.life["leftovers"]["limit_seconds"]
    signalled = False
    while True:
        listed = read(os.path.join(group, "cgroup.procs")).split()
        others = [int(pid) for pid in listed if pid != str(os.getpid())]
        if not others:
            return
        names = ", ".join(f"{pid} ({_name(context, pid)})" for pid in others)
        if not signalled:
            context.journal.say(f"ending processes that an earlier run left: {names}")
            signalled = True
        if time.monotonic() >= deadline:
            raise replica_error(
                "REPLICA-LEFTOVER", f"process {names} of an earlier run does not end"
            )
        for pid in others:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        context.pause(0.1)


def _name(context: Context, pid: int) -> str:
    return read(os.path.join(context.root, "proc", str(pid), "comm")) or "gone"


# What newer AITER writes into its lock: the holder's process number and host.
_OWNER = re.compile(r"\d{1,10}\n[\w.-]{1,255}\n?")


def _is_baton(path: str) -> bool:
    size = os.path.getsize(path)
    return size == 0 or (size < 300 and _OWNER.fullmatch(read(path) + "\n") is not None)


def remove_locks(context: Context) -> list[str]:
    """Remove stale locks of compilers below this replica's own caches; return their paths.

    $CACHE_DIRECTORY names those of the unit. Nobody else uses them, and our engine doesn't run.
    """
    removed = []
    names = context.life["leftovers"]["locks"]["names"]
    for top in filter(None, context.environment.get("CACHE_DIRECTORY", "").split(":")):
        for directory, _folders, files in os.walk(top):
            for name in files:
                if not any(fnmatch.fnmatchcase(name, pattern) for pattern in names):
                    continue
                path = os.path.join(directory, name)
                with contextlib.suppress(OSError):
                    if not os.path.islink(path) and _is_baton(path):
                        os.unlink(path)
                        removed.append(path)
    if removed:
        context.journal.say(f"removed stale locks: {', '.join(removed)}")
    return removed
