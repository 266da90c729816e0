# SPDX-License-Identifier: GPL-3.0-or-later

"""HAProxy's runtime socket: its servers' states, how busy they are, and states that outlive it.

Routers also run this file by itself: `haproxy.py save|trim` when haproxy.service reloads, stops
and starts, `expire` and `resolves` every minute, `check` for keepalived. Every table is read by the
names in its first line, which versions 2.4 to 3.x extend at the end.
"""

from __future__ import annotations

import csv
import fcntl
import os
import random
import re
import socket
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Callable, NamedTuple

from ..durable import write_durably

SOCKET = "/run/haproxy/admin.sock"
CONFIGURATION = "/etc/haproxy/haproxy.cfg"
STATE_FILE = "/var/lib/haproxy/server-state"
# Beside the states: until when servers are drained that come back by themselves.
DEADLINES = "drain-deadlines"
# There, too: names for which HAProxy was reloaded, and the minutes until it is done again.
LATE, MOST_MINUTES = "late-names", 60
# Bits of srv_admin_state. Source: HAProxy include/haproxy/server-t.h (SRV_ADMF_*), 2.4 to 3.x.
FORCED_MAINT, FORCED_DRAIN = 0x01, 0x08
NO_ADDRESS = 0x20
ANY_MAINT, ANY_DRAIN = 0x01 | 0x02 | 0x04 | NO_ADDRESS | 0x40, 0x08 | 0x10
ANSWER_SECONDS, CHECK_SECONDS = 10.0, 2.0

# Sends one command and returns the answer.
Ask = Callable[[str], str]


@dataclass(frozen=True)
class ServerState:
    """A server of a backend: how an operator wants it, how it is, and what it has to do.

    ``wanted`` is ready, drain or maint; ``inherited`` says that another server, which this one
    tracks, wants it. ``status`` is HAProxy's word: UP, DOWN, DRAIN, MAINT, NOLB, no check.
    """

    backend: str
    name: str
    wanted: str
    inherited: bool
    status: str
    sessions: int
    queued: int

    @property
    def key(self) -> str:
        return f"{self.backend}/{self.name}"

    @property
    def up(self) -> bool:
        # A rising server says `UP 1/2`; one that is not checked says `no check`.
        return self.wanted == "ready" and self.status.startswith(("UP", "no check"))


def ask(command: str, path: str = SOCKET, seconds: float = ANSWER_SECONDS) -> str:
    """Return HAProxy's answer to one command; raise ConnectionError where nobody answers."""
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as stream:
            stream.settimeout(seconds)
            stream.connect(path)
            stream.sendall(command.encode() + b"\n")
            parts: list[bytes] = []
            while True:
                part = stream.recv(65536)
                if not part:
                    return b"".join(parts).decode(errors="replace")
                parts.append(part)
    except OSError as failure:
        raise ConnectionError(f"{path}: {failure.strerror or failure}") from None


def parse_state(text: str) -> list[dict[str, str]]:
    """Return the rows of `show servers state` by column; values never hold spaces."""
    names: list[str] = []
    rows = []
    for line in text.splitlines():
        if line.startswith("# "):
            names = line[2:].split()
        elif names and line.strip():
            # A row of an older state file may lack the columns that came later.
            rows.append(dict(zip(names, line.split())))
    return [row for row in rows if {"be_name", "srv_name", "srv_admin_state"} <= row.keys()]


def parse_stat(text: str) -> list[dict[str, str]]:
    """Return the rows of `show stat` by column."""
    lines = text.lstrip("\n").splitlines()
    if not lines or not lines[0].startswith("# "):
        return []
    return list(csv.DictReader([lines[0][2:], *(line for line in lines[1:] if line.strip())]))


def _number(text: str | None) -> int:
    return int(text) if text and text.isdecimal() else 0


def server_states(query: Ask) -> list[ServerState]:
    """Return every server of every backend; raise ConnectionError where the answer is no table."""
    counted = {
        (row.get("pxname"), row.get("svname")): row for row in parse_stat(query("show stat"))
    }
    answer = query("show servers state")
    rows = parse_state(answer)
    if not rows and not answer.lstrip().startswith("1"):
        raise ConnectionError(f"show servers state: {answer.strip()[:200] or 'no answer'}")
    states = []
    for row in rows:
        bits = _number(row["srv_admin_state"])
        own = bits & (FORCED_MAINT | FORCED_DRAIN)
        requested = "maint" if bits & ANY_MAINT else "drain" if bits & ANY_DRAIN else "ready"
        stat = counted.get((row["be_name"], row["srv_name"]), {})
        states.append(
            ServerState(
                backend=row["be_name"],
                name=row["srv_name"],
                wanted=requested,
                inherited=requested != "ready" and not own,
                status=stat.get("status") or "",
                sessions=_number(stat.get("scur")),
                queued=_number(stat.get("qcur")),
            )
        )
    return states


def set_state(query: Ask, server: ServerState, state: str) -> None:
    """Set a server to ready, drain or maint; raise ConnectionError with what HAProxy says to it.

    A server that tracks another takes that one's state, and has to be left alone.
    """
    answer = query(f"set server {server.key} state {state}").strip()
    if answer:
        raise ConnectionError(f"set server {server.key} state {state}: {answer}")


def chosen(
    states: list[ServerState], deployment: str | None, names: list[str] | None
) -> list[ServerState]:
    """Return the servers of these names, in whichever backend, or of one deployment's."""
    return [
        state
        for state in states
        if (deployment is None or state.backend == deployment)
        and (names is None or state.name in names)
    ]


_SECTION = re.compile(r"(backend|listen)\s+(\S+)")
_OTHER = re.compile(r"(global|defaults|frontend|peers|resolvers|cache|program|userlist|ring)\b")
_FRONTEND = re.compile(r"^frontend apiary-in-(\S+)\n\s+bind \S+:(\d+)\s", re.MULTILINE)
_SERVER = re.compile(r"server\s+(\S+)\s+(\S+):(\d+)(?:\s|$)")


def configured_ports(configuration: str) -> dict[tuple[str, str], tuple[str, str]]:
    """Return of every (backend, server) of a haproxy.cfg its port, and 1 where it speaks TLS."""
    ports: dict[tuple[str, str], tuple[str, str]] = {}
    backend = None
    for line in configuration.splitlines():
        word = line.strip()
        section = _SECTION.match(word)
        if section:
            backend = section.group(2)
        elif _OTHER.match(word):
            backend = None
        else:
            server = _SERVER.match(word)
            if server and backend is not None:
                tls = "1" if " ssl " in f"{word} " else "0"
                ports[backend, server.group(1)] = server.group(3), tls
    return ports


def frontend_ports(configuration: str) -> dict[str, int]:
    """Return the port of every deployment of a haproxy.cfg that is Apiary's."""
    return {name: int(port) for name, port in _FRONTEND.findall(configuration)}


def kept_state(text: str, ports: dict[tuple[str, str], tuple[str, str]], forced_only: bool) -> str:
    """Return a state file for the configuration that has these servers at these ports.

    HAProxy takes a server's port and whether it speaks TLS from the state file, not from a
    configuration that has changed since (haproxy/haproxy issues 1412, 2506), so that both are
    written anew and servers that are gone are left out. With ``forced_only`` only what an operator
    took out is kept: whether the others are up was true when it was written, and is checked anew.
    """
    names: list[str] = []
    lines = []
    for line in text.splitlines():
        if line.startswith("# "):
            names = line[2:].split()
            lines.append(line)
            continue
        values = line.split()
        if not names or len(values) < len(names):
            continue
        row = dict(zip(names, values))
        port = ports.get((row.get("be_name", ""), row.get("srv_name", "")))
        bits = _number(row.get("srv_admin_state"))
        if port is None or (forced_only and not bits & (FORCED_MAINT | FORCED_DRAIN)):
            continue
        for name, value in zip(("srv_port", "srv_use_ssl"), port):
            if name in names:
                values[names.index(name)] = value
        lines.append(" ".join(values))
    return "\n".join(["1", *lines]) + "\n"


def read(path: str) -> str:
    """Return a file's text, nothing where there is none."""
    try:
        with open(path, encoding="utf-8", errors="replace") as stream:
            return stream.read()
    except FileNotFoundError:
        return ""


def replace_file(path: str, content: str) -> None:
    """Replace a file, if it differs; HAProxy may read it at any moment, also after a power cut."""
    if read(path) == content:
        return
    write_durably(path, content)


@contextmanager
def locked(state_file: str) -> Iterator[None]:
    """Hold the directory of the states: several hosts may be drained at once."""
    lock = os.open(os.path.dirname(state_file), os.O_RDONLY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


def save(
    query: Ask, forced_only: bool, configuration: str = CONFIGURATION, state_file: str = STATE_FILE
) -> None:
    """Write what the next HAProxy starts from; raise OSError. Who asks last must write last."""
    with locked(state_file):
        _save(query, forced_only, configuration, state_file)


def _save(query: Ask, forced_only: bool, configuration: str, state_file: str) -> None:
    answer = query("show servers state")
    if not answer.startswith("1"):
        raise ConnectionError(f"show servers state: {answer.strip()[:200] or 'no answer'}")
    ports = configured_ports(read(configuration))
    replace_file(state_file, kept_state(answer, ports, forced_only))


class Moment(NamedTuple):
    """A time in seconds since 1970, and since a boot: nobody sets that clock."""

    wall: int
    boot: str
    up: int

    def later(self, seconds: float) -> Moment:
        return Moment(int(self.wall + seconds), self.boot, int(self.up + seconds))

    def is_over(self, now: Moment) -> bool:
        """Return whether it is over; the day's time counts only where there was a boot since."""
        return self.up <= now.up if self.boot == now.boot else self.wall <= now.wall


def moment() -> Moment:
    """Return the present moment."""
    boot = read("/proc/sys/kernel/random/boot_id").strip() or "-"
    return Moment(int(time.time()), boot, int(time.clock_gettime(time.CLOCK_BOOTTIME)))


def deadlines(state_file: str = STATE_FILE, name: str = DEADLINES) -> dict[str, Moment]:
    """Return when each server comes back by itself, by backend/server."""
    lines = read(os.path.join(os.path.dirname(state_file), name)).splitlines()
    rows = (line.rsplit(None, 3) for line in lines)
    return {
        row[0]: Moment(int(row[1]), row[2], int(row[3]))
        for row in rows
        if len(row) == 4 and row[1].isdecimal() and row[3].isdecimal()
    }


def _set_deadlines(changes: dict[str, Moment | None], state_file: str) -> None:
    merged = {**deadlines(state_file), **changes}
    present = {key: until for key, until in merged.items() if until is not None}
    _write_deadlines(present, state_file, DEADLINES)


def _write_deadlines(moments: dict[str, Moment], state_file: str, name: str) -> None:
    rows = sorted(moments.items())
    text = "".join(f"{key} {end.wall} {end.boot} {end.up}\n" for key, end in rows)
    replace_file(os.path.join(os.path.dirname(state_file), name), text)


def schedule(
    servers: Iterable[ServerState], until: Moment | None, state_file: str = STATE_FILE
) -> None:
    """Write when servers that are about to be drained come back, if nobody brings them before.

    Without ``until`` they stay out, as those do that somebody has drained so before.
    """
    with locked(state_file):
        former = deadlines(state_file)
        keys = [
            server.key
            for server in servers
            if not until or server.wanted == "ready" or server.key in former
        ]
        _set_deadlines(dict.fromkeys(keys, until), state_file)


def expire(
    query: Ask, now: Moment, configuration: str = CONFIGURATION, state_file: str = STATE_FILE
) -> list[str]:
    """Bring back what was drained until now, and return it; raise OSError.

    Whether a replica then gets requests is for its health checks to say; what somebody has put into
    maintenance since stays there. A deadline goes last, so that a run that was cut off is completed
    by the next one.
    """
    with locked(state_file):
        due = [key for key, until in deadlines(state_file).items() if until.is_over(now)]
        if not due:
            return []
        servers = [server for server in server_states(query) if server.key in due]
        drained = [one for one in servers if one.wanted == "drain" and not one.inherited]
        for server in drained:
            set_state(query, server, "ready")
        _save(query, True, configuration, state_file)
        _set_deadlines(dict.fromkeys(due), state_file)
    return [server.key for server in drained]


def resolves(
    query: Ask, look_up: Callable[[str], object], now: Moment, state_file: str = STATE_FILE
) -> str | None:
    """Return a name that has an address now and had none when HAProxy started.

    Its servers are in maintenance until HAProxy reloads: by itself it looks up no name again, and
    its socket gives no address to a server that never had one. A name that it lacks all the same
    is due again after 2, 4, 8, … minutes. ``look_up`` raises OSError, and UnicodeError for what can
    be no name.
    """
    rows = parse_state(query("show servers state"))
    late = (row for row in rows if _number(row["srv_admin_state"]) & NO_ADDRESS)
    names = sorted({row.get("srv_fqdn", "-") for row in late} - {"-"})
    words = ((*key.partition(" "), until) for key, until in deadlines(state_file, LATE).items())
    waits = {key: (_number(text) or 1, end) for key, _space, text, end in words if key in names}
    due = [name for name in names if name not in waits or waits[name][1].is_over(now)]
    # Some may time out until the unit's time is over: another one is the first each time.
    random.shuffle(due)
    result = None
    for name in due:
        with suppress(OSError, UnicodeError):
            look_up(name)
            result = name
            break
    if result is not None:
        # The reload tries them all.
        for name in {result, *waits}:
            minutes = min(2 * waits.get(name, (1, now))[0], MOST_MINUTES)
            waits[name] = minutes, now.later(60 * minutes)
    moments = {f"{name} {minutes}": until for name, (minutes, until) in waits.items()}
    _write_deadlines(moments, state_file, LATE)
    return result


def main(arguments: list[str]) -> int:
    """Save all states before a reload (`save`), or leave of the saved what was forced (`trim`).

    A reload follows at once, so that what is down stays down; a start may come hours later.
    `expire` ends drains whose time is over, `resolves` says whether a reload gives servers the
    address that they lack, `check` whether HAProxy answers at all.
    """
    try:
        if arguments == ["save"]:
            save(ask, forced_only=False)
        elif arguments == ["expire"]:
            for key in expire(ask, moment()):
                sys.stderr.write(f"ROUTER-DRAIN-EXPIRED: {key}: the time of its drain is over\n")
        elif arguments == ["trim"]:
            ports = configured_ports(read(CONFIGURATION))
            replace_file(STATE_FILE, kept_state(read(STATE_FILE), ports, forced_only=True))
        elif arguments == ["resolves"]:
            name = resolves(ask, lambda name: socket.getaddrinfo(name, None), moment())
            if name is None:
                return 1
            sys.stderr.write(f"ROUTER-NAME-LATE: {name}: has an address now, HAProxy reloads\n")
        elif arguments == ["check"]:
            return 0 if "Pid: " in ask("show info", seconds=CHECK_SECONDS) else 1
        else:
            sys.stderr.write("usage: haproxy.py save|trim|expire|resolves|check\n")
            return 2
    except OSError as failure:
        # The service goes on without it; the journal has the line.
        sys.stderr.write(f"ROUTER-STATE: {' '.join(arguments)}: {failure}\n")
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
