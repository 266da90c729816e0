# SPDX-License-Identifier: GPL-3.0-or-later

"""What OpenSSH would do to reach a host: what `ssh -G` prints of it, with its tokens replaced."""

from __future__ import annotations

import getpass
import os
import re
import socket
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, replace

from ansible_collections.apiary.instinct.plugins.plugin_utils.findings import ApiaryError, error

# Each changes the route, whom we trust or who we are, and paramiko has no such thing: it is refused
# unless it has this value, which `ssh -G` may leave out.
UNSUPPORTED = {
    "bindinterface": "none",
    "certificatefile": "none",
    "knownhostscommand": "none",
    "proxyusefdpass": "no",
    "revokedhostkeys": "none",
}
FAMILIES = {"any": socket.AF_UNSPEC, "inet": socket.AF_INET, "inet6": socket.AF_INET6}
# `ssh -G` prints some of the values otherwise than ssh_config(5) has them.
_CHECKING = {"true": "yes", "false": "no"}
_WRONG_LINE = re.compile(r"(?P<file>(?!debug).+?):? line (?P<line>\d+): (?P<why>.+)")
HOST = re.compile(r"(?!-)[\w.:%-]+", re.ASCII)
USER = re.compile(r"(?!-)[\w.@+\\-]+")
TARGET = re.compile(
    r"(?P<uri>ssh://)?(?:(?P<user>.+)@)?"
    r"(?:\[(?P<v6>[^][]+)\]|(?P<plain>[^][:@]+)|(?P<bare6>[^][@]*:[^][@]*:[^][@]*))"
    r"(?::(?P<port>[0-9]{1,5}))?(?P<slash>/)?"
)


@dataclass(frozen=True)
class SshOptions:
    """How to reach hosts; whatever is None comes from ssh_config.

    ``user``, ``port`` and ``arguments``, those of ssh(1) that an inventory has, are for the hosts
    themselves, ``identity`` and ``known_hosts`` for the jump hosts before them as well. ``config``
    replaces the user's and the system's ssh_config, as ssh -F does. ``timeout`` bounds each step of
    connecting and ``collect_timeout`` the collector's run, both in seconds. ``python`` is the
    interpreter on the host.
    """

    user: str | None = None
    port: int | None = None
    identity: str | None = None
    known_hosts: str | None = None
    config: str | None = None
    timeout: float = 15.0
    collect_timeout: float = 300.0
    arguments: tuple[str, ...] = ()
    python: str = "python3"


@dataclass(frozen=True)
class Target:
    """A host as a person names it: HOST, USER@HOST, HOST:PORT or ssh://USER@HOST:PORT."""

    host: str
    user: str | None = None
    port: int | None = None

    @property
    def possible(self) -> bool:
        """Return whether the parts are ones that SSH could use."""
        named = HOST.fullmatch(self.host) and (self.user is None or USER.fullmatch(self.user))
        return bool(named) and (self.port is None or 0 < self.port < 65536)

    def __str__(self) -> str:
        name = f"[{self.host}]" if ":" in self.host and self.port else self.host
        user = f"{self.user}@" if self.user else ""
        return user + name + (f":{self.port}" if self.port else "")


@dataclass(frozen=True)
class Settings:
    """All that ssh_config and the options say of one connection."""

    hostname: str
    port: int
    user: str
    host_key_name: str
    known_hosts: tuple[str, ...]
    identities: tuple[str, ...]
    identities_only: bool
    agent: str | None
    checking: str
    jumps: tuple[Target, ...]
    command: str | None
    bind: str | None
    family: int


def parse_target(text: str) -> Target:
    """Read a host as given on the command line or in ProxyJump; raise PROBE-TARGET."""
    match = TARGET.fullmatch(text)
    if match and (match["uri"] or not match["slash"]):
        host = match["v6"] or match["plain"] or match["bare6"]
        port = int(match["port"]) if match["port"] else None
        target = Target(host, match["user"], port)
        if target.possible:
            return target
    raise error("PROBE-TARGET", text, "is no host that SSH could reach")


def target_of(host: Target | str, options: SshOptions) -> Target:
    """Return a host with the options' user and port where it has none; raise PROBE-TARGET."""
    target = parse_target(host) if isinstance(host, str) else host
    return replace(target, user=target.user or options.user, port=target.port or options.port)


def refusal(subject: str, message: str) -> ApiaryError:
    """Return the refusal of what ssh_config says."""
    return error("PROBE-CONFIG", subject, message)


def settings_of(target: Target, options: SshOptions, arguments: tuple[str, ...] = ()) -> Settings:
    """Return one host's settings; raise PROBE-CONFIG for what cannot be read or honoured.

    ``arguments`` of ssh(1) go before ssh_config.
    """
    return _Reading(target, options, _evaluate(target, options, arguments)).settings()


def _evaluate(
    target: Target, options: SshOptions, arguments: tuple[str, ...]
) -> dict[str, list[str]]:
    """Return what OpenSSH makes of its configuration: the values by keyword in lower case."""
    command = ["ssh", "-G", "-T"]
    command += ["-F", os.path.expanduser(options.config)] if options.config else []
    command += ["-l", target.user] if target.user else []
    command += ["-p", str(target.port)] if target.port else []
    try:
        done = subprocess.run(
            [*command, *arguments, "--", target.host],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
            timeout=options.timeout,
        )
    except FileNotFoundError as failure:
        raise error("PROBE-OPENSSH", "ssh", "there is no such program") from failure
    except subprocess.TimeoutExpired as failure:
        why = f"`ssh -G` did not end within {options.timeout:g} s"
        raise refusal(target.host, why) from failure
    if done.returncode:
        raise _unread(target, done.stderr.strip().splitlines())
    values: dict[str, list[str]] = {}
    for printed in done.stdout.splitlines():
        key, _blank, value = printed.partition(" ")
        values.setdefault(key.lower(), []).append(value)
    # Not every OpenSSH prints it.
    host = values.get("host", [target.host])[0]
    if host != target.host:
        raise refusal(target.host, f"{' '.join(arguments)}: {host!r} is no option of ssh")
    return values


def _unread(target: Target, printed: list[str]) -> ApiaryError:
    """Return the refusal of a line that OpenSSH cannot read, or of what it complained of."""
    for text in printed:
        match = _WRONG_LINE.fullmatch(text)
        if match:
            named = match["file"] != "command-line"
            place = f"{match['file']}:{match['line']}" if named else target.host
            return refusal(place, match["why"])
    return refusal(target.host, printed[0] if printed else "`ssh -G` failed and printed nothing")


class _Reading:
    """One host's values, and what their tokens stand for: `ssh -G` prints some as they were."""

    def __init__(
        self, target: Target, options: SshOptions, values: Mapping[str, list[str]]
    ) -> None:
        self.target, self.options, self.values = target, options, values
        self.tokens = {"n": target.host, "d": os.path.expanduser("~"), "u": getpass.getuser()}

    def value(self, key: str, default: str = "") -> str:
        """Return the first value of a keyword, which is the one that counts."""
        return self.values.get(key, [default])[0]

    def refuse(self, key: str, why: str) -> ApiaryError:
        """Return the refusal of a value."""
        return refusal(self.target.host, f"{key} {self.value(key)}: {why}")

    def expand(self, key: str, value: str) -> str:
        """Return a value with its tokens replaced; an unknown one is refused."""

        def token(match: re.Match[str]) -> str:
            if match[0] == "%%":
                return "%"
            if match[1] not in self.tokens:
                raise self.refuse(key, f"{match[0]} is not supported")
            return self.tokens[match[1]]

        return re.sub(r"%(.?)", token, value)

    def path(self, key: str, value: str) -> str:
        """Return a file name with tokens, variables of the environment and ~ replaced."""
        return os.path.expanduser(os.path.expandvars(self.expand(key, value)))

    def settings(self) -> Settings:
        for key, harmless in UNSUPPORTED.items():
            if self.value(key, harmless).lower() != harmless:
                raise self.refuse(key, "is not supported and would change the route or the trust")
        hostname = self.value("hostname", self.target.host)
        if not HOST.fullmatch(hostname):
            raise self.refuse("hostname", "is no host name")
        user = self.value("user", self.tokens["u"])
        if not USER.fullmatch(user):
            raise self.refuse("user", "is no user name")
        port = int(self.value("port", "22"))
        name = hostname if port == 22 else f"[{hostname}]:{port}"
        name = self.value("hostkeyalias", name)
        self.tokens |= {"h": hostname, "p": str(port), "r": user, "k": name}
        jumps, command = self.route()
        checking = self.value("stricthostkeychecking", "yes")
        return Settings(
            hostname=hostname,
            port=port,
            user=user,
            host_key_name=name,
            known_hosts=self.known_hosts(),
            identities=self.identities(),
            identities_only=self.value("identitiesonly") == "yes",
            agent=self.agent(),
            checking=_CHECKING.get(checking, checking),
            jumps=jumps,
            command=command,
            bind=self.value("bindaddress") or None,
            family=FAMILIES[self.value("addressfamily", "any")],
        )

    def route(self) -> tuple[tuple[Target, ...], str | None]:
        """Return the jump hosts, the first one to reach first, or the ProxyCommand."""
        command, jump = self.value("proxycommand", "none"), self.value("proxyjump", "none")
        if command != "none":
            return (), self.expand("proxycommand", command)
        if jump == "none":
            return (), None
        hops = self.expand("proxyjump", jump).split(",")
        return tuple(parse_target(hop.strip()) for hop in hops), None

    def known_hosts(self) -> tuple[str, ...]:
        if self.options.known_hosts:
            return (os.path.expanduser(self.options.known_hosts),)
        return tuple(
            self.path(key, name)
            for key in ("userknownhostsfile", "globalknownhostsfile")
            for name in self.value(key).split()
            if name.lower() != "none"
        )

    def identities(self) -> tuple[str, ...]:
        first = [self.options.identity] if self.options.identity else []
        names = [*first, *self.values.get("identityfile", ())]
        paths = (self.path("identityfile", name) for name in names if name.lower() != "none")
        return tuple(dict.fromkeys(paths))

    def agent(self) -> str | None:
        """Return the agent's socket, or None for no agent."""
        value = self.value("identityagent", "SSH_AUTH_SOCK")
        if value.lower() == "none":
            return None
        if value == "SSH_AUTH_SOCK":
            return os.environ.get(value)
        return self.path("identityagent", value)
