# SPDX-License-Identifier: GPL-3.0-or-later

"""What a host tells of itself to node_exporter's textfile collector; hosts run this file by itself,
with the readers of KFD and of plans in place of their imports.

`host_metrics.py SETTINGS` reads what the host is to have (a JSON file of the role telemetry), looks
at sysfs, procfs and systemd, and replaces the text file in one step. What cannot be read is left
out, never guessed. Names, kinds and help are those of knowledge/telemetry/host.yml.
"""

from __future__ import annotations

import glob
import json
import os
import re
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any, Callable, NamedTuple

from .durable import write_durably
from .host_plan import parse_host_plan
from .kfd import FUNCTIONS, read, served_gpus, xgmi_peers

DRIVER = "sys/module/amdgpu/version"
KINDS = {"ce": "correctable", "ue": "uncorrectable", "de": "deferred"}
SYSTEMCTL_SECONDS = 10
RECORD_BYTES = 16384
# What a supervisor records of an engine's start, and its metric.
FIGURES = {
    "weights_bytes_per_gpu": "apiary_replica_weights_bytes",
    "kv_tokens": "apiary_replica_kv_tokens",
}
# What it records of the answers to its questions: metric and label of each part.
QUESTIONS = {
    "counts": ("apiary_replica_quality_questions_total", "result"),
    "answers": ("apiary_replica_quality_answer", "question"),
}
UNITS = ("etc/systemd/system", "run/systemd/generator")
_OCTAL = re.compile(r"\\([0-7]{3})")
_WORD = re.compile(r"[a-z0-9-]{1,32}")
_FUNCTION = re.compile(r"[0-9a-f]{4}:[0-9a-f]{2}:[01][0-9a-f]\.[0-7]$")


class Device(NamedTuple):
    """One GPU, or one partition of it, that the driver serves; ``slot`` is its PCI function."""

    key: str
    slot: str
    node: int
    hive: int
    partition: int


def devices(root: str) -> list[Device]:
    """Return what the driver serves, in bus order, partitions of one GPU behind each other."""
    named = [
        Device(gpu.key, gpu.bdf, gpu.node, gpu.properties.get("hive_id", 0), gpu.partition or 0)
        for gpu in served_gpus(root)
        if gpu.bdf
    ]
    return sorted(named, key=lambda one: (one.slot, one.partition))


def xgmi_pairs(gpus: list[Device], root: str) -> int:
    """Return how many pairs of GPUs the driver has an xGMI link between, in both directions."""
    slots = {gpu.node: gpu.slot for gpu in gpus}
    ways = {
        (gpu.slot, peer)
        for gpu in gpus
        for node in xgmi_peers(gpu.node, root)
        if (peer := slots.get(node)) not in (None, gpu.slot)
    }
    return sum((peer, slot) in ways and slot < str(peer) for slot, peer in ways)


def number(text: str) -> float:
    """Return the first number of a text such as `32.0 GT/s PCIe`, 0 where there is none."""
    found = re.match(r"[0-9]+(\.[0-9]+)?", text)
    return float(found.group()) if found else 0.0


def degraded(slot: str, root: str) -> bool | None:
    """Say whether a link above the GPU runs below what both its ends can; None where unknown.

    Going up, a link joins a device and the port above it; between a switch's own ports is none.
    """
    path = os.path.realpath(os.path.join(root, FUNCTIONS, slot))
    ports = []
    while _FUNCTION.match(os.path.basename(path)):
        ports.append(path)
        path = os.path.dirname(path)
    comparable = False
    for ends in (ports[0:2], *(ports[at : at + 2] for at in range(2, len(ports) - 1, 2))):
        for what in ("width", "speed"):
            now = [number(read(end, f"current_link_{what}")) for end in ends]
            most = [number(read(end, f"max_link_{what}")) for end in ends]
            if not ends or not all(now) or not all(most):
                continue
            comparable = True
            if min(now) < min(most):
                return True
    return False if comparable else None


def errors(slot: str, root: str) -> dict[str, int]:
    """Return {kind: count} over all blocks of a GPU, empty where the driver tells none."""
    counts: dict[str, int] = {}
    for path in glob.glob(os.path.join(root, FUNCTIONS, slot, "ras/*_err_count")):
        for line in read(path).splitlines():
            words = [word.strip() for word in line.split(":", 1)]
            if words[0] in KINDS and words[-1].isdigit():
                kind = KINDS[words[0]]
                counts[kind] = counts.get(kind, 0) + int(words[-1])
    return counts


def replicas(root: str) -> Iterator[dict[str, Any]]:
    """Yield the replicas of the plans that the host keeps; a damaged plan has none."""
    for path in sorted(glob.glob(os.path.join(root, "etc/apiary/*/plan.json"))):
        try:
            plan = parse_host_plan(read(path))
        except ValueError:
            continue
        for index, replica in enumerate(plan.replicas):
            yield {
                "deployment": plan.deployment,
                "replica": str(index),
                "unit": replica.unit,
                "gpus": replica.gpus,
                "numa_node": ",".join(map(str, replica.memory_nodes)),
                "engine_version": plan.engine_version,
            }


def recorded(unit: str, name: str, root: str) -> dict[str, Any]:
    """Return what a replica's supervisor recorded; its account may have put anything there."""
    path = os.path.join(root, "run/apiary", unit, name)
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        with os.fdopen(descriptor, "rb") as stream:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                return {}
            facts = json.loads(stream.read(RECORD_BYTES))
    except (OSError, ValueError, RecursionError):
        return {}
    return facts if isinstance(facts, dict) else {}


def unit_states(units: list[str]) -> dict[str, dict[str, str]]:
    """Return what systemd says of units by name; nothing where it gives no answer in time."""
    if not units:
        return {}
    command = ["systemctl", "show", "--property=Id,ActiveState,NRestarts", "--", *units]
    try:
        output = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=SYSTEMCTL_SECONDS,
            check=True,
        ).stdout.decode(errors="replace")
    except (OSError, subprocess.SubprocessError):
        return {}
    blocks = [
        dict(line.split("=", 1) for line in block.splitlines() if "=" in line)
        for block in output.split("\n\n")
    ]
    return {block["Id"]: block for block in blocks if "Id" in block}


def mounted(mount: str, unit: str, root: str) -> bool:
    """Say whether something is mounted where systemd has a unit for it; else it need not be.

    The directory below a mount that is gone would answer. fstab's units are the generator's.
    """
    table = read(root, "proc/self/mountinfo")
    units = (os.path.join(root, place, unit) for place in UNITS)
    if not table or not any(os.path.exists(path) for path in units):
        return True
    # Source: proc(5), the fifth field, in which octal stands for blanks and backslashes.
    places = (line.split(" ")[4] for line in table.splitlines())
    wanted = f"/{mount.strip('/')}"
    return any(_OCTAL.sub(lambda code: chr(int(code[1], 8)), one) == wanted for one in places)


def responsive(mount: str, seconds: float) -> bool:
    """Say whether a mount answers in time; who hangs in it is another process, and is ended."""
    child = os.fork()
    if child == 0:
        try:
            os.statvfs(mount)
            os._exit(0)
        except OSError:
            os._exit(1)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return status == 0
        time.sleep(0.02)
    os.kill(child, signal.SIGKILL)
    # One that not even this ends is left behind: the unit does not wait for it (KillMode=process).
    return False


def hardware(settings: dict[str, Any], root: str) -> Iterator[tuple[str, dict[str, str], float]]:
    """Yield what the GPUs and their driver show."""
    gpus = devices(root)
    of_gpu = {key: one for one in replicas(root) for key in one["gpus"]}
    for place, gpu in enumerate(gpus):
        owner = of_gpu.get(gpu.key, {})
        node = read(root, FUNCTIONS, gpu.slot, "numa_node")
        yield (
            "apiary_gpu_info",
            {
                "gpu": gpu.key,
                "gpu_id": str(place),
                "serial_number": read(root, FUNCTIONS, gpu.slot, "serial_number"),
                "numa_node": "" if node == "-1" else node,
                "hive": f"{gpu.hive:016x}" if gpu.hive else "",
                "model": settings["models"].get(read(root, FUNCTIONS, gpu.slot, "device")[2:], ""),
                "deployment": owner.get("deployment", ""),
                "replica": owner.get("replica", ""),
            },
            1,
        )
    served = {gpu.key for gpu in gpus}
    for key, owner in sorted(of_gpu.items()):
        whose = {name: owner[name] for name in ("deployment", "replica")}
        yield ("apiary_planned_gpu_present", {"gpu": key, **whose}, int(key in served))
    slots = sorted({gpu.slot for gpu in gpus})
    yield ("apiary_gpus_present", {}, len(slots))
    if settings["gpus"] is not None:
        yield ("apiary_gpus_expected", {}, settings["gpus"])
    if not settings["guest"]:
        if settings["mesh"]:
            yield ("apiary_xgmi_links_expected", {}, len(slots) * (len(slots) - 1) // 2)
        yield ("apiary_xgmi_links_present", {}, xgmi_pairs(gpus, root))
        for slot in slots:
            state = degraded(slot, root)
            if state is not None:
                yield ("apiary_pcie_link_degraded", {"gpu": slot}, int(state))
            for kind, count in sorted(errors(slot, root).items()):
                yield ("apiary_gpu_ras_errors_total", {"gpu": slot, "kind": kind}, count)
    version, expected = read(root, DRIVER), settings["driver"] or ""
    yield ("apiary_driver_info", {"version": version, "expected": expected}, 1)
    if expected:
        yield ("apiary_driver_as_expected", {}, int(version == expected))


def system(settings: dict[str, Any], root: str) -> Iterator[tuple[str, dict[str, str], float]]:
    """Yield what the kernel, the mounts and the units show."""
    balancing = read(root, "proc/sys/kernel/numa_balancing")
    if settings["gpu_host"] and balancing.isdigit():
        yield ("apiary_numa_balancing", {}, int(balancing != "0"))
    words = read(root, "proc/cmdline").split()
    if settings["arguments"] and words:
        lacks = [word for word in settings["arguments"] if word not in words]
        yield ("apiary_cmdline_as_expected", {}, int(not lacks))
    flag = os.path.join(root, "run/reboot-required")
    yield ("apiary_reboot_required", {}, int(os.path.exists(flag)))
    for mount, unit in settings["mounts"].items():
        place = os.path.join(root, mount.lstrip("/"))
        answers = mounted(mount, unit, root) and responsive(place, settings["mount_seconds"])
        yield ("apiary_weights_mount_responsive", {"mount": mount}, int(answers))


def answered(
    record: dict[str, Any], whose: dict[str, str]
) -> Iterator[tuple[str, dict[str, str], float]]:
    """Yield the results of the questions that a replica's supervisor sends it."""
    recipe = record.get("recipe")
    if not isinstance(recipe, str) or not _WORD.fullmatch(recipe):
        return
    for part, (name, label) in QUESTIONS.items():
        values: Any = record.get(part)
        for key, value in list(values.items())[:64] if isinstance(values, dict) else ():
            if isinstance(value, int) and 0 <= value < 2**53 and _WORD.fullmatch(key):
                yield (name, {**whose, "recipe": recipe, label: key}, int(value))


def serving(
    settings: dict[str, Any], root: str, states: Callable[[list[str]], dict[str, dict[str, str]]]
) -> Iterator[tuple[str, dict[str, str], float]]:
    """Yield what becomes of the replicas that the host's plans have."""
    planned = list(replicas(root))
    reported = states([one["unit"] for one in planned])
    for one in planned:
        whose = {"deployment": one["deployment"], "replica": one["replica"]}
        yield (
            "apiary_replica_info",
            {
                **whose,
                "unit": one["unit"],
                "numa_node": one["numa_node"],
                "gpus": ",".join(one["gpus"]),
                "engine_version": one["engine_version"],
            },
            1,
        )
        died = recorded(one["unit"], "died.json", root)
        at = died.get("at")
        if died.get("cause") in settings["causes"] and isinstance(at, int) and 0 < at < 2**40:
            labels = {**whose, "cause": died["cause"]}
            yield ("apiary_replica_died_timestamp_seconds", labels, int(at))
        figures = recorded(one["unit"], "figures.json", root)
        for source in ("planned", "actual"):
            numbers: Any = figures.get(source)
            for figure, name in FIGURES.items() if isinstance(numbers, dict) else ():
                value = numbers.get(figure)
                if isinstance(value, int) and 0 <= value < 2**60:
                    yield (name, {**whose, "source": source}, int(value))
        yield from answered(recorded(one["unit"], "quality.json", root), whose)
        state = reported.get(one["unit"])
        if state:
            now = state.get("ActiveState")
            yield ("apiary_replica_unit_active", whose, int(now == "active"))
            yield ("apiary_replica_unit_stopped", whose, int(now in ("inactive", "failed")))
            restarts = state.get("NRestarts", "")
            if restarts.isdigit():
                yield ("apiary_replica_restarts_total", whose, int(restarts))


def escaped(value: str) -> str:
    """Return a label's value as the text format has it."""
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def exposition(samples: list[Any], facts: dict[str, dict[str, Any]]) -> str:
    """Return the text file; a metric's lines stand together, in the order of the facts."""
    lines = []
    for name, fact in facts.items():
        own = [(labels, value) for found, labels, value in samples if found == name]
        if not own:
            continue
        lines += [f"# HELP {name} {fact['help']}", f"# TYPE {name} {fact['kind']}"]
        for labels, value in own:
            pairs = ",".join(f'{label}="{escaped(text)}"' for label, text in labels.items())
            lines.append(f"{name}{{{pairs}}} {value}" if pairs else f"{name} {value}")
    return "\n".join(lines) + "\n"


def gather(
    settings: dict[str, Any],
    now: float,
    root: str = "/",
    states: Callable[[list[str]], dict[str, dict[str, str]]] = unit_states,
) -> str:
    """Return the text file's contents."""
    samples = [*system(settings, root), *serving(settings, root, states)]
    if settings["gpu_host"]:
        samples = [*hardware(settings, root), *samples]
    samples.append(("apiary_textfile_written_seconds", {}, int(now)))
    return exposition(samples, settings["metrics"])


def main() -> None:
    """Write the file that the settings name."""
    settings = json.loads(read(sys.argv[1]))
    # In one step; the collector reads no other ending than .prom.
    write_durably(settings["file"], gather(settings, time.time()))


if __name__ == "__main__":
    main()
