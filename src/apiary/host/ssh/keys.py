# SPDX-License-Identifier: GPL-3.0-or-later

"""Whom to trust and who we are: known_hosts, private keys and the agent, as OpenSSH uses them."""

from __future__ import annotations

import base64
import binascii
import os
import socket
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any, cast

import paramiko
from ansible_collections.apiary.instinct.plugins.plugin_utils.files import read_text
from ansible_collections.apiary.instinct.plugins.plugin_utils.findings import ApiaryError, error

from apiary.host.ssh.config import Settings, SshOptions


@dataclass
class KnownKeys:
    """What the known_hosts files say of one host: key blobs with their type and place."""

    trusted: dict[bytes, tuple[str, str]] = field(default_factory=dict)
    revoked: dict[bytes, str] = field(default_factory=dict)
    unreadable: list[str] = field(default_factory=list)
    authorities: list[str] = field(default_factory=list)

    def types(self) -> set[str]:
        """Return the algorithms whose signature the host can give for a key we know."""
        types = {kind for kind, _place in self.trusted.values()}
        return types | ({"rsa-sha2-256", "rsa-sha2-512"} if "ssh-rsa" in types else set())


def known_keys(settings: Settings, options: SshOptions) -> KnownKeys:
    """Return a host's keys from its known_hosts files; a missing file has none.

    Raises FILE-UNREADABLE for the file that the caller gave, or for one that may not be read.
    """
    keys = KnownKeys()
    for name in settings.known_hosts:
        if not options.known_hosts and not os.path.isfile(name):
            continue
        read_text(name)
        lines = _lines(name, settings.host_key_name)
        for found, line in zip(lines[::2], lines[1::2], strict=False):
            number, _blank, status = found.rpartition(": line ")[2].partition(" ")
            place = f"{name}:{number}"
            kind, text = line.split()[1 + bool(status) :][:2]
            try:
                blob = base64.b64decode(text, validate=True)
            except binascii.Error:
                keys.unreadable.append(place)
                continue
            if status == "REVOKED":
                keys.revoked[blob] = place
            elif status:
                keys.authorities.append(place)
            else:
                keys.trusted.setdefault(blob, (kind, place))
    return keys


def _lines(name: str, host: str) -> list[str]:
    """Return `# Host … found: line N [CA|REVOKED]` and the line, for each that is for a host."""
    command = ["ssh-keygen", "-F", host, "-f", name]
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
    return done.stdout.splitlines()


def check_host_key(host: str, key: paramiko.PKey, keys: KnownKeys, settings: Settings) -> None:
    """Accept only a key that is known; there is no option to skip this. Raises PROBE-HOST-KEY."""
    blob = key.asbytes()
    if blob in keys.trusted and blob not in keys.revoked:
        return
    shown = f"{key.get_name()} {key.fingerprint}"
    files = ", ".join(settings.known_hosts) or "known_hosts"
    if blob in keys.revoked:
        why = f"is revoked by {keys.revoked[blob]}"
    elif keys.trusted:
        places = ", ".join(place for _kind, place in keys.trusted.values())
        why = f"is not the known one of {places}: somebody may be in between, or the host was "
        why += "reinstalled"
    else:
        notes = [f"of {settings.host_key_name} is not in {files}"]
        notes += [f"{place} cannot be read" for place in keys.unreadable[:3]]
        notes += [f"{place}: host certificates are not supported" for place in keys.authorities[:3]]
        if settings.checking not in ("yes", "ask"):
            notes.append(f"StrictHostKeyChecking {settings.checking} is not followed")
        why = "; ".join(notes)
    raise error("PROBE-HOST-KEY", host, f"the host key {shown} {why}")


class _Agent(paramiko.agent.AgentSSH):
    """The agent behind a socket; paramiko.Agent knows only that of the environment."""

    def __init__(self, connection: socket.socket) -> None:
        super().__init__()
        cast(Any, self)._connect(connection)  # what paramiko.Agent does with its own


def offers(
    settings: Settings, options: SshOptions, stack: ExitStack, notes: list[str]
) -> Iterator[paramiko.PKey]:
    """Yield the keys to log in with, the agent's before those of files, as OpenSSH does.

    What could not be used is put into ``notes``. Raises FILE-UNREADABLE for options.identity.
    """
    if options.identity:
        read_text(os.path.expanduser(options.identity))
    held = {key.asbytes(): key for key in _held(settings, options, stack, notes)}
    own: dict[bytes, paramiko.PKey] = {}
    for name in settings.identities:
        public = _public(name)
        if public in held:
            own[public] = held[public]
        elif os.path.isfile(name) and not name.endswith(".pub"):
            key = _private(name)
            if isinstance(key, str):
                notes.append(f"{name} {key}")
            else:
                own[key.asbytes()] = held.get(key.asbytes(), key)
    yield from (key for blob, key in own.items() if blob in held)
    if not settings.identities_only:
        yield from (key for blob, key in held.items() if blob not in own)
    yield from (key for blob, key in own.items() if blob not in held)


def _private(name: str) -> paramiko.PKey | str:
    """Load a private key that OpenSSH would load as well, or return why it cannot be used."""
    status = os.stat(name)
    if status.st_uid == os.getuid() and status.st_mode & 0o077:
        mode = status.st_mode & 0o777
        return f"is ignored: others may read it (mode {mode:04o}, not 0600)"
    try:
        return paramiko.PKey.from_path(name)
    except OSError as failure:
        return f"cannot be read: {failure.strerror}"
    except (TypeError, paramiko.PasswordRequiredException):
        return "is encrypted and no agent holds it: ssh-add it"
    except Exception as failure:  # each kind of key has errors of its own
        return f"is no private key we can use: {failure}"


def _public(name: str) -> bytes | None:
    """Return the blob of the public key that lies beside a private one."""
    name = name if name.endswith(".pub") else name + ".pub"
    try:
        with open(name, encoding="ascii") as file:
            return base64.b64decode(file.read().split()[1])
    except (OSError, ValueError, IndexError):
        return None


def _held(
    settings: Settings, options: SshOptions, stack: ExitStack, notes: list[str]
) -> tuple[paramiko.PKey, ...]:
    if settings.agent is None:
        return ()
    connection = stack.enter_context(socket.socket(socket.AF_UNIX))
    connection.settimeout(options.timeout)
    try:
        connection.connect(settings.agent)
        return _Agent(connection).get_keys()
    except (OSError, paramiko.SSHException) as failure:
        notes.append(f"the agent {settings.agent} does not answer: {failure}")
        return ()


def log_in(
    transport: paramiko.Transport,
    host: str,
    settings: Settings,
    options: SshOptions,
    stack: ExitStack,
) -> None:
    """Authenticate by public key; raise PROBE-AUTH with all that was tried."""
    notes: list[str] = []
    tried = 0
    try:
        transport.auth_none(settings.user)
        return
    except paramiko.BadAuthenticationType as failure:
        accepted = failure.allowed_types
    if "publickey" not in accepted:
        raise refused(host, settings, [f"the host takes no keys, only {', '.join(accepted)}"])
    for key in offers(settings, options, stack, notes):
        tried += 1
        try:
            further = transport.auth_publickey(settings.user, key)
        except paramiko.AuthenticationException as failure:
            if not transport.is_active():
                notes.append(f"the host hung up after {tried} keys: {failure}")
                break
            continue
        if not further:
            return
        notes.append(f"the host asks for more than a key: {', '.join(further)}")
        break
    notes.insert(0, f"{tried} keys refused" if tried else "there is no key to offer")
    raise refused(host, settings, notes)


def refused(host: str, settings: Settings, notes: list[str]) -> ApiaryError:
    """Return the refusal of a login."""
    return error("PROBE-AUTH", host, f"login as {settings.user} refused: {'; '.join(notes)}")
