# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""SSH servers in this process, for `apiary probe` to reach; every wait is bounded."""

import contextlib
import socket
import subprocess
import sys
import threading

import paramiko
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

BOUND = 120  # seconds; a wait that reaches it has failed


def key(path, password=None, mode=0o600):
    """A new private key at a path with its public half beside it."""
    cipher = (
        serialization.BestAvailableEncryption(password.encode())
        if password
        else serialization.NoEncryption()
    )
    private = Ed25519PrivateKey.generate()
    encoding, form = serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH
    path.write_bytes(private.private_bytes(encoding, form, cipher))
    path.chmod(mode)
    made = paramiko.Ed25519Key.from_private_key_file(str(path), password)
    path.with_name(path.name + ".pub").write_text(f"{made.get_name()} {made.get_base64()}\n")
    return made


def real_python(command, script):
    """What a host does: run the command that it was sent."""
    assert command == b"python3 -"
    done = subprocess.run([sys.executable, "-"], input=script, capture_output=True, check=False)
    return done.stdout, done.stderr, done.returncode


def canned(out, complaint=b"", status=0):
    """A host that gives this answer to whatever it is asked."""
    return lambda command, script: (out, complaint, status)


class Session(paramiko.ServerInterface):
    """One connection of a server."""

    def __init__(self, server):
        self.server = server

    def get_allowed_auths(self, username):
        return self.server.methods

    def check_auth_publickey(self, username, key):
        self.server.logins.append(username)
        good = key in self.server.accepted
        return paramiko.AUTH_SUCCESSFUL if good else paramiko.AUTH_FAILED

    def check_channel_request(self, kind, chanid):
        return paramiko.OPEN_SUCCEEDED

    def check_channel_exec_request(self, channel, command):
        self.server.ready.wait(BOUND)
        self.server.start(self.execute, channel, command)
        return True

    def execute(self, channel, command):
        channel.settimeout(BOUND)
        script = channel.recv(1)  # by then the client has been told that the command runs
        while self.server.reads and (part := channel.recv(1 << 16)):
            script += part
        out, complaint, status = self.server.answer(command, script)
        with contextlib.suppress(OSError, EOFError, paramiko.SSHException):
            channel.sendall(out)
            channel.sendall_stderr(complaint)
            if status is not None:
                channel.send_exit_status(status)
                channel.close()

    def check_channel_direct_tcpip_request(self, chanid, origin, destination):
        self.server.forwarded.append(destination)
        if not self.server.forwards:
            return paramiko.OPEN_FAILED_ADMINISTRATIVELY_PROHIBITED
        self.server.start(self.forward, socket.create_connection(destination, BOUND))
        return paramiko.OPEN_SUCCEEDED

    def forward(self, remote):
        channel = self.transport.accept(BOUND)
        if channel is None:  # the client has gone again
            remote.close()
            return
        back = self.server.start(pump, remote, channel)
        pump(channel, remote)
        back.join(BOUND)


def pump(source, target):
    """Carry bytes one way until either end is gone."""
    with contextlib.suppress(OSError, EOFError, paramiko.SSHException), source, target:
        while data := source.recv(1 << 16):
            target.sendall(data)
        if isinstance(target, socket.socket):
            target.shutdown(socket.SHUT_RDWR)


class Server:
    """An SSH server on a port of loopback."""

    def __init__(self, host_key, accepted):
        self.host_key, self.accepted = host_key, [accepted]
        self.answer, self.reads, self.forwards = real_python, True, True
        self.methods = "publickey"
        self.ready = threading.Event()
        self.ready.set()
        self.logins, self.forwarded = [], []
        self.threads, self.transports = [], []
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.start(self.listen)

    def start(self, work, *arguments):
        thread = threading.Thread(target=work, args=arguments)
        self.threads.append(thread)
        thread.start()
        return thread

    def listen(self):
        with contextlib.suppress(OSError):  # closed: the test is over
            while True:
                client, _address = self.listener.accept()
                transport = paramiko.Transport(client)
                self.transports.append(transport)
                transport.add_server_key(self.host_key)
                session = Session(self)
                session.transport = transport
                transport.start_server(event=threading.Event(), server=session)

    def close(self):
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        for transport in self.transports:
            transport.close()
        for thread in self.transports:  # they start the others
            thread.join(BOUND)
        for thread in self.threads:
            thread.join(BOUND)
