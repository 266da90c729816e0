# SPDX-License-Identifier: GPL-3.0-or-later

"""Open SSH connections as ssh_config says: direct, through jump hosts or a ProxyCommand."""

from __future__ import annotations

import contextlib
import logging
import os
import select
import signal
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass

import paramiko
from ansible_collections.apiary.instinct.plugins.plugin_utils.evidence.types import MOST_BYTES
from ansible_collections.apiary.instinct.plugins.plugin_utils.findings import ApiaryError, error

from apiary.host.ssh.config import Settings, SshOptions, Target, refusal, settings_of
from apiary.host.ssh.keys import check_host_key, known_keys, log_in, refused

MAX_JUMPS = 8
MAX_COMPLAINT = 1 << 16  # bytes of stderr, of which a finding shows the end

# Paramiko logs the tracebacks of its threads; a person gets findings instead.
logging.getLogger("paramiko").addHandler(logging.NullHandler())


@dataclass(frozen=True)
class Connector:
    """Opens the connections of one host: to itself and to the jump hosts before it."""

    options: SshOptions
    stack: ExitStack

    def connect(
        self,
        target: Target,
        host: str,
        jumps: tuple[Target, ...] | None = None,
        trail: tuple[str, ...] = (),
    ) -> paramiko.Transport:
        """Return a transport that is logged in.

        ``jumps`` of None are those of ssh_config; ``trail`` are the hosts that need this one.
        """
        trail = (*trail, target.host)
        if target.host in trail[:-1] or len(trail) > MAX_JUMPS + 1:
            raise refusal(
                host,
                f"ProxyJump leads back to itself or over more than {MAX_JUMPS} hosts: "
                + " → ".join(trail)
                + f"; a block `Host {target.host}` with `ProxyJump none` first ends it",
            )
        # An inventory's arguments are for this host alone, not for its jump hosts.
        own = self.options.arguments if len(trail) == 1 else ()
        settings = settings_of(target, self.options, own)
        command = settings.command if jumps is None else None
        jumps = settings.jumps if jumps is None else jumps
        keys = known_keys(settings, self.options)
        explain: Callable[[], str] = str
        sock: socket.socket | paramiko.Channel
        try:
            if command:
                sock, explain = self._command(command)
            elif jumps:
                sock = self._jump(jumps, host, trail, (settings.hostname, settings.port))
            else:
                sock = self._direct(settings)
            transport = paramiko.Transport(sock)
            self.stack.callback(_close, transport, self.options.timeout)
            self._handshake(transport, keys.types())
            check_host_key(host, transport.get_remote_server_key(), keys, settings)
            log_in(transport, host, settings, self.options, self.stack)
        except paramiko.AuthenticationException as failure:
            raise refused(host, settings, [words(failure)]) from failure
        except (paramiko.SSHException, OSError, EOFError) as failure:
            raise unreachable(host, words(failure) + explain(), target) from failure
        return transport

    def _handshake(self, transport: paramiko.Transport, known_types: set[str]) -> None:
        timeout = self.options.timeout
        transport.banner_timeout = transport.handshake_timeout = transport.auth_timeout = timeout
        security = transport.get_security_options()
        # A server shows one key only: ask for one that we know.
        security.key_types = sorted(security.key_types, key=lambda kind: kind not in known_types)
        transport.start_client(timeout=timeout)
        if not transport.initial_kex_done:  # start_client returns at its time limit
            raise TimeoutError(f"no SSH handshake within {timeout:g} s")

    def _direct(self, settings: Settings) -> socket.socket:
        """Connect to the first address that answers."""
        last: OSError = OSError("no address")
        for family, kind, protocol, _name, address in socket.getaddrinfo(
            settings.hostname, settings.port, settings.family, socket.SOCK_STREAM
        ):
            sock = self.stack.enter_context(socket.socket(family, kind, protocol))
            sock.settimeout(self.options.timeout)
            try:
                if settings.bind:
                    sock.bind((settings.bind, 0))
                sock.connect(address)
                return sock
            except OSError as failure:
                sock.close()
                last = failure
        raise last

    def _jump(
        self, jumps: tuple[Target, ...], host: str, trail: tuple[str, ...], address: tuple[str, int]
    ) -> paramiko.Channel:
        """Open a channel through the last jump host, which the ones before it lead to."""
        name = str(jumps[-1])
        try:
            # Only the first one's own ProxyJump counts: the others are reached as listed here.
            through = self.connect(jumps[-1], name, jumps[:-1] or None, trail)
        except ApiaryError as failure:
            raise ApiaryError(
                *(
                    finding.about(host).reworded(message=f"jump host {name}: {finding.message}")
                    if finding.subject == name
                    else finding
                    for finding in failure.findings
                )
            ) from failure
        try:
            channel = through.open_channel(
                "direct-tcpip", address, ("127.0.0.1", 0), timeout=self.options.timeout
            )
        except (paramiko.SSHException, OSError, EOFError) as failure:
            raise unreachable(host, f"jump host {name} lets nobody on: {failure}") from failure
        self.stack.callback(channel.close)
        return channel

    def _command(self, command: str) -> tuple[socket.socket, Callable[[], str]]:
        """Run ProxyCommand by the shell, as OpenSSH does; return the socket that it serves.

        Paramiko's own ProxyCommand spins at the command's end and leaves it behind.
        """
        ours, theirs = socket.socketpair()
        self.stack.callback(ours.close)
        reported = self.stack.enter_context(tempfile.TemporaryFile())  # noqa: SIM115 - it is one
        with theirs:
            process = subprocess.Popen(
                ["/bin/sh", "-c", f"exec {command}"],
                stdin=theirs.fileno(),
                stdout=theirs.fileno(),
                stderr=reported,
                start_new_session=True,
            )
        self.stack.callback(_end, process)

        def explain() -> str:
            reported.seek(0)
            lines = reported.read(1 << 16).decode(errors="replace").strip().splitlines()
            return "; ".join(["", f"ProxyCommand {command}", *lines[-1:]])

        return ours, explain


def _close(transport: paramiko.Transport, timeout: float) -> None:
    """Close a transport and see its thread end, which paramiko does not await."""
    transport.close()
    if transport.is_alive():
        transport.join(timeout)


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a ProxyCommand with all that it started."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(5)
            return


def run(
    transport: paramiko.Transport, options: SshOptions, command: str, sent: bytes
) -> tuple[int | None, str, str]:
    """Run a command on its stdin; return its status (None: cut short), stdout and stderr."""
    deadline = time.monotonic() + options.collect_timeout
    out, complaint = bytearray(), bytearray()

    def text() -> tuple[str, str]:
        return out.decode(errors="replace"), complaint.decode(errors="replace")

    with transport.open_session(timeout=options.timeout) as channel:
        channel.settimeout(options.timeout)
        _start(channel, command, options.timeout)
        with contextlib.suppress(OSError):  # whoever does not read says why on stderr
            channel.sendall(sent)
            channel.shutdown_write()
        poll = select.poll()  # unlike select(), for any number of open files
        poll.register(channel.fileno(), select.POLLIN)
        while True:
            ended = channel.eof_received or channel.closed  # before the last look at data
            left = deadline - time.monotonic()
            if left < 0 or len(out) > MOST_BYTES:
                return (None, *text())
            if channel.recv_ready():
                out += channel.recv(1 << 16)
            elif channel.recv_stderr_ready():
                complaint += channel.recv_stderr(1 << 16)
                del complaint[:-MAX_COMPLAINT]
            elif ended:
                break
            else:
                poll.poll(left * 1000)
        if not channel.status_event.wait(max(0.0, deadline - time.monotonic())):
            return (None, *text())
        return (channel.exit_status, *text())


def _start(channel: paramiko.Channel, command: str, timeout: float) -> None:
    """Start a command; paramiko itself would await the server's answer for ever."""
    watchdog = threading.Timer(timeout, channel.close)
    watchdog.start()
    try:
        channel.exec_command(command)
    finally:
        watchdog.cancel()
        watchdog.join()


def words(failure: BaseException) -> str:
    return str(failure) or type(failure).__name__


def unreachable(host: str, why: str, target: Target | None = None) -> ApiaryError:
    """Return the refusal of a host; an inventory may call it otherwise than it is reached."""
    other = str(target) if target and target.host not in host else None
    return error(
        "PROBE-UNREACHABLE",
        host,
        f"cannot be reached over SSH{f' at {other}' if other else ''}: {why}",
        target=f"ssh://{other}" if other else host,
    )
