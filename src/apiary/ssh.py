# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Gather evidence from hosts over SSH: the very collector that the Ansible module runs."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import paramiko
from ansible_collections.apiary.instinct.plugins.module_utils import evidence as collector
from ansible_collections.apiary.instinct.plugins.plugin_utils.findings import ApiaryError, error

COLLECTOR = Path(collector.__file__)


@dataclass(frozen=True)
class SshOptions:
    """How to reach hosts; whatever is None comes from ~/.ssh/config."""

    user: str | None = None
    port: int | None = None
    identity: str | None = None
    known_hosts: str | None = None
    config: str = "~/.ssh/config"
    timeout: float = 15.0


@dataclass(frozen=True)
class Probed:
    """One host's evidence bundle, or the error that kept it from us."""

    host: str
    bundle: dict[str, Any] | None
    failure: ApiaryError | None = None


def probe_many(
    hosts: Iterable[str],
    options: SshOptions,
    parallel: int = 16,
    done: Callable[[Probed], None] = lambda _probed: None,
) -> list[Probed]:
    """Probe hosts in parallel; one that fails never keeps the others from answering."""
    names = list(dict.fromkeys(hosts))
    results: dict[str, Probed] = {}
    with ThreadPoolExecutor(max_workers=max(1, min(parallel, len(names)))) as pool:
        for future in as_completed([pool.submit(_probe, name, options) for name in names]):
            probed = future.result()
            results[probed.host] = probed
            done(probed)
    return [results[name] for name in names]


def _probe(host: str, options: SshOptions) -> Probed:
    try:
        return Probed(host, probe(host, options))
    except ApiaryError as failure:
        return Probed(host, None, failure)


def probe(host: str, options: SshOptions) -> dict[str, Any]:
    """Return one host's evidence bundle.

    Raises ApiaryError: PROBE-UNREACHABLE, PROBE-HOST-KEY, PROBE-AUTH, PROBE-COLLECTOR.
    """
    with ExitStack() as stack:
        client = _connect(host, options, stack)
        try:
            stdin, stdout, stderr = client.exec_command("python3 -", timeout=300)
            stdin.write(COLLECTOR.read_bytes())
            stdin.channel.shutdown_write()
            text = stdout.read().decode(errors="replace")
            complaint = stderr.read().decode(errors="replace")
            status = stdout.channel.recv_exit_status()
        except (paramiko.SSHException, OSError) as failure:
            raise _unreachable(host, f"the connection broke: {failure}") from failure
    try:
        bundle = json.loads(text)
    except json.JSONDecodeError:
        bundle = None
    if status != 0 or not isinstance(bundle, dict):
        last = (complaint.strip() or text.strip() or "no output").splitlines()[-1]
        raise error(
            "PROBE-COLLECTOR",
            host,
            f"the collector ended with status {status}: {last}",
            "the host needs python3, 3.9 or newer, on the login user's PATH",
        )
    return bundle


def _connect(host: str, options: SshOptions, stack: ExitStack) -> paramiko.SSHClient:
    try:
        settings = _settings(host, options)
        sock = _jump(settings, options, stack)
        identities = _identities(settings, options)
        client = paramiko.SSHClient()
        stack.callback(client.close)
        _trust(client, options)
        client.connect(
            settings.get("hostname", host),
            port=options.port or int(settings.get("port", 22)),
            username=options.user or settings.get("user"),
            key_filename=cast("str | None", identities),  # the stubs don't know that lists do
            sock=sock,
            timeout=options.timeout,
            banner_timeout=options.timeout,
            auth_timeout=options.timeout,
        )
    except paramiko.BadHostKeyException as failure:
        raise error(
            "PROBE-HOST-KEY",
            host,
            "the host key is not the known one: somebody may be in between, or it was reinstalled",
            "verify the new key out of band, then replace the host's line in known_hosts",
        ) from failure
    except paramiko.AuthenticationException as failure:
        raise error(
            "PROBE-AUTH",
            host,
            f"login refused: {failure}",
            "check the user and key: --user, --identity, ssh-agent, ~/.ssh/config",
        ) from failure
    except paramiko.SSHException as failure:
        if "not found in known_hosts" in str(failure):
            raise error(
                "PROBE-HOST-KEY",
                host,
                "the host key is not in known_hosts",
                "verify the key and add it (ssh-keyscan prints it), or give --known-hosts FILE",
            ) from failure
        raise _unreachable(host, str(failure)) from failure
    except (OSError, socket.gaierror, EOFError) as failure:
        raise _unreachable(host, str(failure) or type(failure).__name__) from failure
    return client


def _unreachable(host: str, why: str) -> ApiaryError:
    return error(
        "PROBE-UNREACHABLE",
        host,
        f"cannot be reached over SSH: {why}",
        "check the name, the port and that sshd runs: ssh " + host,
    )


def _settings(host: str, options: SshOptions) -> dict[str, Any]:
    path = Path(options.config).expanduser()
    config = paramiko.SSHConfig.from_path(str(path)) if path.is_file() else paramiko.SSHConfig()
    return dict(config.lookup(host))


def _trust(client: paramiko.SSHClient, options: SshOptions) -> None:
    """Accept only hosts whose key is known; there is no option to skip this."""
    if options.known_hosts:
        client.load_host_keys(options.known_hosts)
    else:
        client.load_system_host_keys()
    client.set_missing_host_key_policy(paramiko.RejectPolicy())


def _identities(settings: dict[str, Any], options: SshOptions) -> list[str] | None:
    chosen = [options.identity] if options.identity else settings.get("identityfile", [])
    return [os.path.expanduser(path) for path in chosen] or None


def _jump(
    settings: dict[str, Any], options: SshOptions, stack: ExitStack
) -> paramiko.Channel | None:
    """Return a channel through the ProxyJump host of ssh_config, or None for a direct way."""
    jump = settings.get("proxyjump")
    if not jump or jump == "none":
        return None
    user, _at, rest = str(jump).split(",")[-1].rpartition("@")
    name, _colon, port = rest.partition(":")
    through = SshOptions(
        user=user or None,
        port=int(port) if port else None,
        identity=options.identity,
        known_hosts=options.known_hosts,
        config=options.config,
        timeout=options.timeout,
    )
    client = _connect(name, through, stack)
    transport = client.get_transport()
    if transport is None:  # closed in between
        raise _unreachable(name, "the jump host closed the connection")
    target = (str(settings.get("hostname")), options.port or int(settings.get("port", 22)))
    return transport.open_channel("direct-tcpip", target, ("127.0.0.1", 0), timeout=options.timeout)


def failures(results: Iterable[Probed]) -> Iterator[ApiaryError]:
    """Yield the errors of the hosts that could not be probed."""
    return (probed.failure for probed in results if probed.failure is not None)
