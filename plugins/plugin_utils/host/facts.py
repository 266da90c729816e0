# SPDX-License-Identifier: GPL-3.0-or-later

"""What evidence says of a host's system: release, kernel, command line, guest or not."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass

from ..documents import knowledge
from ..evidence.types import CommandOutput, Evidence
from ..findings import error

# Other units of ours (tuning at boot, naming GPUs) serve nothing.
_REPLICA = re.compile(r"apiary-.+-\d+\.service$")
_VRAM = re.compile(r"/sys/class/kfd/kfd/proc/(\d+)/vram_\d+$")
_UP = ("active", "activating", "reloading")
# What module_utils/evidence/host.py leaves of a password in an address.
HIDDEN = "://***@"


@dataclass(frozen=True)
class OsRelease:
    """/etc/os-release: ``id`` is debian, ubuntu, rhel, ol …; ``version`` is VERSION_ID."""

    id: str
    version: str
    name: str

    @property
    def major(self) -> str:
        """The version up to its first dot."""
        return self.version.split(".")[0]


def os_release(evidence: Evidence) -> OsRelease:
    """Return the host's release; raise HOST-NO-RELEASE where the host does not tell."""
    values = {}
    for line in evidence.files.get("/etc/os-release", "").splitlines():
        key, equals, value = line.partition("=")
        if equals:
            values[key.strip()] = _unquoted(value)
    if "ID" not in values:
        raise error("HOST-NO-RELEASE", evidence.host, "has no readable /etc/os-release with an ID")
    return OsRelease(
        id=values["ID"],
        version=values.get("VERSION_ID", ""),
        name=values.get("PRETTY_NAME", values["ID"]),
    )


def _unquoted(value: str) -> str:
    """Return a value without its quotes; one that is quoted wrongly stays as it is."""
    try:
        return " ".join(shlex.split(value))
    except ValueError:
        return value.strip()


def package_manager(evidence: Evidence) -> str:
    """Return the host's package manager, as converge names it."""
    return "apt" if os_release(evidence).id in ("debian", "ubuntu") else "dnf"


def default_interface(evidence: Evidence) -> str | None:
    """Return the network interface of the default IPv4 route, the one with the least metric."""
    rows = [line.split() for line in evidence.files.get("/proc/net/route", "").splitlines()[1:]]
    routes = [(int(row[6]), row[0]) for row in rows if len(row) > 7 and row[1] == row[7] == "0" * 8]
    return min(routes)[1] if routes else None


def version(evidence: Evidence, command: str) -> str | None:
    """Return the major and minor version that a program reported, None where it did not run."""
    output = evidence.commands.get(command)
    if output is None or output.exit != 0:
        return None
    match = re.search(r"version ([0-9]+[.][0-9]+)", output.stdout + output.stderr)
    return match.group(1) if match else None


def kernel_release(evidence: Evidence) -> str | None:
    """Return the running kernel's release, as `uname -r` prints it."""
    return evidence.files.get("/proc/sys/kernel/osrelease", "").strip() or None


def boot_id(evidence: Evidence) -> str | None:
    """Return the identity of this boot."""
    return evidence.files.get("/proc/sys/kernel/random/boot_id", "").strip() or None


def kernel_arguments(evidence: Evidence) -> tuple[str, ...]:
    """Return the words of the running kernel's command line."""
    return tuple(evidence.files.get("/proc/cmdline", "").split())


def virtualization(evidence: Evidence) -> str | None:
    """Return what systemd-detect-virt says ("none", "kvm", "docker" …), or None if it did not."""
    said = evidence.commands.get("virtualization")
    return (said.stdout.strip() or None) if said else None


def is_guest(evidence: Evidence) -> bool:
    """Say whether the host is a virtual machine; its GPUs then are virtual functions.

    A container counts as its machine: the simulated hosts of the lab are containers.
    """
    machines: list[str] = knowledge("host/virtualization.yml")["virtual_machines"]
    return virtualization(evidence) in machines


def unknown(evidence: Evidence, path: str) -> str | None:
    """Return why evidence does not have a file's very text, so that it can't be written anew."""
    text = evidence.files.get(path)
    if text is None:
        if path in evidence.unreadable:
            return f"a file that could not be read ({evidence.unreadable[path]})"
        late = "ETIMEDOUT" in evidence.unreadable.values()
        return "nothing of it, as reading files ran out of time" if late else None
    if HIDDEN in text:
        return f"an address with a password, which evidence hides ({HIDDEN})"
    return "bytes that are no UTF-8" if "\ufffd" in text else None


def command(evidence: Evidence, name: str) -> CommandOutput | None:
    """Return a command that ended with exit code 0, the first of its forms that did."""
    for label, said in sorted(evidence.commands.items()):
        if (label == name or re.fullmatch(re.escape(name) + r"_\d+", label)) and said.exit == 0:
            return said
    return None


def output(evidence: Evidence, name: str) -> str:
    """Return what a command printed, whatever its exit code; nothing where it was not run."""
    said = evidence.commands.get(name)
    return said.stdout if said else ""


def serving_replicas(evidence: Evidence) -> tuple[str, ...]:
    """Return what serves: replica units that are up or coming up, and processes that hold VRAM.

    The units are apiary-DEPLOYMENT-NUMBER.service. Pods and containers show by their processes.
    Where systemd gave no answer, that is in the list: nobody knows that nothing serves.
    """
    said = evidence.commands.get("replicas")
    if said and said.exit != 0:
        return ("perhaps replicas (systemctl gave no answer)", *_gpu_processes(evidence))
    units = []
    for line in (said.stdout if said else "").splitlines():
        words = line.split()
        if len(words) > 2 and _REPLICA.match(words[0]) and words[2] in _UP:
            units.append(words[0])
    return (*units, *_gpu_processes(evidence))


def _gpu_processes(evidence: Evidence) -> Iterator[str]:
    """Yield the processes that hold more VRAM than a tool that only looks."""
    held: dict[str, int] = {}
    for path, text in evidence.files.items():
        found = _VRAM.match(path)
        if found and text.strip().isdigit():
            held[found[1]] = held.get(found[1], 0) + int(text)
    least: int = knowledge("host/workloads.yml")["vram"]["bytes"]
    for process, size in sorted(held.items()):
        if size > least:
            yield f"process {process} with {size / 2**30:.0f} GiB of VRAM"
