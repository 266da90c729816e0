# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a host shows for a support bundle: units, journals, states, versions; nothing is changed."""

from __future__ import annotations

import fnmatch
import glob
import os
from typing import Callable

from ..router.haproxy import ask

# Runs a command; returns its exit code, stdout and stderr.
Run = Callable[[list[str]], tuple[int, str, str]]

UNITS = (
    "apiary*",
    "weights-*",
    "haproxy.service",
    "keepalived.service",
    "docker.service",
    "prometheus*",
    "alertmanager*",
    "grafana-server.service",
    "device-metrics-exporter*",
    "amd-metrics-exporter*",
    "gpuagent*",
)
# Several of one kind would be most of the bundle; the first of them tell as much.
MOST_UNITS = 64
FILES = (
    "/proc/cmdline",
    "/proc/meminfo",
    "/proc/mounts",
    "/proc/loadavg",
    "/proc/uptime",
    "/proc/pressure/*",
    "/proc/sys/kernel/numa_balancing",
    "/etc/os-release",
    "/etc/default/grub",
    "/etc/default/grub.d/*.cfg",
    "/etc/sysctl.d/*apiary*",
    "/etc/modprobe.d/*amdgpu*",
    "/etc/modprobe.d/*apiary*",
    "/opt/rocm/.info/version",
    "/sys/module/amdgpu/version",
    "/etc/apiary/*.json",
    "/etc/apiary/*/*.json",
    "/etc/systemd/system/apiary*",
    "/etc/systemd/system/apiary*.d/*.conf",
    "/etc/systemd/system/weights-*",
    "/etc/containers/systemd/apiary*",
    "/etc/haproxy/haproxy.cfg",
    "/etc/haproxy/apiary/router.json",
    "/etc/keepalived/keepalived.conf",
)
# Secrets that lie on a host: the command masks their values wherever they stand.
CREDENTIALS = ("/etc/apiary/*/credentials/*",)
# Units whose own text and journal are taken; they are ours, or of what we set up.
OURS = ("apiary*", "weights-*", "haproxy.service", "keepalived.service")
# What of a unit's state is taken: no environment, no arguments.
PROPERTIES = (
    "Id,Type,LoadState,ActiveState,SubState,Result,UnitFileState,FragmentPath,"
    "DropInPaths,NeedDaemonReload,Requires,Wants,After,Restart,NRestarts,MainPID,"
    "ExecMainCode,ExecMainStatus,ExecMainStartTimestamp,ExecMainExitTimestamp,"
    "ActiveEnterTimestamp,InactiveEnterTimestamp,StateChangeTimestamp,StatusText,"
    "WatchdogUSec,TimeoutStartUSec,TimeoutStopUSec,MemoryCurrent,MemoryPeak,"
    "CPUUsageNSec,TasksCurrent,CPUAffinity,NUMAPolicy,NUMAMask,AllowedCPUs,"
    "AllowedMemoryNodes,LimitMEMLOCK,LimitNOFILE"
)
# Whatever a pattern above finds, these are never read.
NEVER = ("*/credentials/*", "*.pem", "*.key", "*password*", "*secret*", "*/.*")
COMMANDS = (
    ("uname", ["uname", "-a"]),
    ("systemd-version", ["systemctl", "--version"]),
    ("python-version", ["python3", "--version"]),
    ("rocm-smi-driver", ["rocm-smi", "--showdriverversion"]),
    ("amd-smi-version", ["amd-smi", "version"]),
    ("haproxy-version", ["haproxy", "-v"]),
    ("docker-version", ["docker", "--version"]),
    ("podman-version", ["podman", "--version"]),
    ("packages-dpkg", ["dpkg-query", "--show", "amdgpu*", "rocm*", "haproxy", "keepalived"]),
    ("packages-rpm", ["rpm", "--query", "--all", "amdgpu*", "rocm*", "haproxy", "keepalived"]),
    ("disks", ["df", "--human-readable", "--local"]),
    ("memory", ["free", "--mebi"]),
    ("clock", ["timedatectl"]),
    ("addresses", ["ip", "-brief", "address"]),
    ("listening", ["ss", "--listening", "--numeric", "--tcp", "--processes"]),
    ("processes", ["ps", "-eo", "pid,ppid,user,stat,etimes,rss,psr,comm", "--sort=-rss"]),
    ("failed-units", ["systemctl", "--no-pager", "--plain", "--failed"]),
)
HAPROXY = ("show info", "show stat", "show servers state", "show errors")


class Look:
    """Collects texts by name; each is cut to so many bytes, all of them to so many."""

    def __init__(self, run: Run, since: str, lines: int, item_bytes: int, total_bytes: int) -> None:
        self.run, self.since, self.lines = run, since, lines
        self.item_bytes, self.left = item_bytes, total_bytes
        self.items: dict[str, str] = {}
        self.problems: dict[str, str] = {}

    def everything(self) -> None:
        """Look at all there is, the small things first."""
        for path in _found(FILES):
            self.file(path)
        for name, argv in COMMANDS:
            self.command(f"commands/{name}.txt", argv)
        units = self.units()
        for unit in units:
            properties = f"--property={PROPERTIES}"
            self.command(
                f"units/{unit}.show", ["systemctl", "--no-pager", "show", properties, unit]
            )
        ours = [unit for unit in units if any(fnmatch.fnmatch(unit, name) for name in OURS)]
        for unit in ours:
            self.command(f"units/{unit}.cat", ["systemctl", "--no-pager", "cat", unit])
        if os.path.exists("/run/haproxy/admin.sock"):
            for command in HAPROXY:
                self.haproxy(command)
        bounded = ["--no-pager", "--output=short-iso", f"--since={self.since}"]
        bounded += [f"--lines={self.lines}"]
        self.command("journals/kernel.log", ["journalctl", "--dmesg", *bounded], keep_end=True)
        for unit in ours:
            argv = ["journalctl", f"--unit={unit}", *bounded]
            self.command(f"journals/{unit}.log", argv, keep_end=True)

    def secrets(self) -> list[str]:
        """Return the values of the host's credentials."""
        paths = sorted(path for pattern in CREDENTIALS for path in glob.glob(pattern))
        values = []
        for path in paths:
            try:
                with open(path, encoding="utf-8", errors="replace") as stream:
                    values += stream.read(self.item_bytes).splitlines()
            except OSError as failure:
                self.problems[path] = failure.strerror or str(failure)
        return values

    def units(self) -> list[str]:
        """Return the units that there are of those that matter here."""
        argv = ["systemctl", "--no-pager", "--plain", "--no-legend", "list-units", "--all", *UNITS]
        status, out, err = self.run(argv)
        if status:
            self.problems["units"] = err.strip()[:500] or f"status {status}"
            return []
        self.put("units/list.txt", out)
        matches = sorted({line.split()[0] for line in out.splitlines() if line.split()})
        if len(matches) > MOST_UNITS:
            self.problems["units"] = f"only the first {MOST_UNITS} of {len(matches)} were looked at"
        return matches[:MOST_UNITS]

    def file(self, path: str) -> None:
        """Take a file's text."""
        try:
            with open(path, "rb") as stream:
                content = stream.read(self.item_bytes + 1)
        except OSError as failure:
            self.problems[path] = failure.strerror or str(failure)
            return
        self.put(f"files{path}", content.decode("utf-8", "replace"))

    def command(self, name: str, argv: list[str], keep_end: bool = False) -> None:
        """Take what a command prints; one that is not there is no problem."""
        status, out, err = self.run(argv)
        if status and not out.strip():
            missing = "No such file" in err or "not found" in err
            if not missing:
                self.problems[name] = (err.strip() or f"status {status}").splitlines()[0][:300]
            return
        self.put(name, out + (f"\n# stderr\n{err}" if err.strip() else ""), keep_end)

    def haproxy(self, command: str) -> None:
        """Take HAProxy's answer at its runtime socket."""
        name = f"haproxy/{command.replace(' ', '-')}.txt"
        try:
            self.put(name, ask(command))
        except ConnectionError as failure:
            self.problems[name] = str(failure)

    def put(self, name: str, text: str, keep_end: bool = False) -> None:
        """Keep a text, cut to what is left; of a log the end is what matters."""
        room = min(self.item_bytes, self.left)
        if room <= 0:
            self.problems[name] = "left out: the host's texts are as large as they may be"
            return
        if len(text) > room:
            text = text[-room:] if keep_end else text[:room]
            self.problems[name] = f"cut to {room} characters"
        self.left -= len(text)
        self.items[name] = text


def _found(patterns: tuple[str, ...]) -> list[str]:
    paths = dict.fromkeys(path for pattern in patterns for path in sorted(glob.glob(pattern)))
    return [
        path
        for path in paths
        if os.path.isfile(path) and not any(fnmatch.fnmatch(path, forbidden) for forbidden in NEVER)
    ]
