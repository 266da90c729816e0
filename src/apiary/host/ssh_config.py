# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What ssh_config says of a host: read as OpenSSH reads it, or refused where that cannot be."""

from __future__ import annotations

import getpass
import glob
import os
import re
import shlex
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import paramiko
from ansible_collections.apiary.instinct.plugins.plugin_utils.files import read_text
from ansible_collections.apiary.instinct.plugins.plugin_utils.findings import ApiaryError, error

MAX_INCLUDES = 16  # OpenSSH's own limit (readconf.c)
KNOWN_HOSTS = {
    "userknownhostsfile": "~/.ssh/known_hosts ~/.ssh/known_hosts2",
    "globalknownhostsfile": "/etc/ssh/ssh_known_hosts /etc/ssh/ssh_known_hosts2",
}
IDENTITIES = ("~/.ssh/id_rsa", "~/.ssh/id_ecdsa", "~/.ssh/id_ed25519")
# What paramiko evaluates; any other keyword it would take as one that matches.
BARE_CRITERIA = {"all", "canonical", "final"}
CRITERIA = {"exec", "host", "localuser", "originalhost", "user"}
# Each changes the route or whom we trust, so it is refused unless it has this harmless value.
UNSUPPORTED = {"bindinterface": "none", "proxyusefdpass": "no", "revokedhostkeys": "none"}
FAMILIES = {"any": socket.AF_UNSPEC, "inet": socket.AF_INET, "inet6": socket.AF_INET6}
HOST = re.compile(r"(?!-)[\w.:%-]+", re.ASCII)
USER = re.compile(r"(?!-)[\w.@+\\-]+")
TARGET = re.compile(
    r"(?P<uri>ssh://)?(?:(?P<user>.+)@)?"
    r"(?:\[(?P<v6>[^][]+)\]|(?P<plain>[^][:@]+)|(?P<bare6>[^][@]*:[^][@]*:[^][@]*))"
    r"(?::(?P<port>[0-9]{1,5}))?(?P<slash>/)?"
)


class Line(NamedTuple):
    """One line of ssh_config and where it stands, FILE:LINE."""

    text: str
    place: str


@dataclass(frozen=True)
class SshOptions:
    """How to reach hosts; whatever is None comes from ssh_config.

    ``user``, ``port`` and ``lines``, which stand before all of ssh_config, are for the hosts
    themselves, ``identity`` and ``known_hosts`` for the jump hosts before them as well.
    ``timeout`` bounds each step of connecting and ``collect_timeout`` the collector's run, both
    in seconds. ``python`` is the interpreter on the host.
    """

    user: str | None = None
    port: int | None = None
    identity: str | None = None
    known_hosts: str | None = None
    config: str = "~/.ssh/config"
    timeout: float = 15.0
    collect_timeout: float = 300.0
    system_config: str = "/etc/ssh/ssh_config"
    lines: tuple[Line, ...] = ()
    python: str = "python3"


@dataclass(frozen=True)
class Target:
    """A host as a person names it: HOST, USER@HOST, HOST:PORT or ssh://USER@HOST:PORT."""

    host: str
    user: str | None = None
    port: int | None = None

    @property
    def possible(self) -> bool:
        """Say whether the parts are ones that SSH could use."""
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


class _Parser(paramiko.SSHConfig):
    """Paramiko's blocks and matches without its tokens, of which it knows only a few."""

    TOKENS_BY_CONFIG_KEY = {  # noqa: RUF012 - the name and type are paramiko's
        "hostname": ["%h"],
        "match-exec": paramiko.SSHConfig.TOKENS_BY_CONFIG_KEY["match-exec"],
    }


def parse_target(text: str) -> Target:
    """Read a host as given on the command line or in ProxyJump; raise PROBE-TARGET."""
    match = TARGET.fullmatch(text)
    if match and (match["uri"] or not match["slash"]):
        host = match["v6"] or match["plain"] or match["bare6"]
        port = int(match["port"]) if match["port"] else None
        target = Target(host, match["user"], port)
        if target.possible:
            return target
    raise error(
        "PROBE-TARGET",
        text,
        "is no host that SSH could reach",
        "give HOST, USER@HOST, HOST:PORT or ssh://USER@HOST:PORT",
    )


def option_line(text: str, place: str) -> Line:
    """Return `Keyword value` or `Keyword=value` as a line of ssh_config; raise PROBE-CONFIG."""
    return Line(_checked(text.strip(), place), place)


def keyword(text: str) -> str:
    """Return the keyword of a line of ssh_config in lower case, "" where it has none."""
    return _split(text)[0]


def refusal(subject: str, message: str, remedy: str = "correct ssh_config") -> ApiaryError:
    """Return the refusal of what ssh_config says."""
    return error("PROBE-CONFIG", subject, message, remedy)


def load_config(options: SshOptions) -> tuple[Line, ...]:
    """Return the lines of ssh_config, the user's before the system's, includes in their place.

    Raises PROBE-CONFIG, or FILE-UNREADABLE for a file that is there and cannot be read.
    """
    lines: list[Line] = []
    for name, base in ((options.config, "~/.ssh"), (options.system_config, "/etc/ssh")):
        path = os.path.expanduser(name)
        if os.path.exists(path):
            # Each file starts outside of every block.
            lines += [Line("Host *", path), *_read(path, os.path.expanduser(base), "Host *", 0)]
    return tuple(lines)


def _read(path: str, base: str, block: str, depth: int) -> Iterator[Line]:
    conditional = block.lower() not in ("host *", "match all")
    for number, raw in enumerate(read_text(path).splitlines(), 1):
        place = f"{path}:{number}"
        text = raw.strip()
        if not text or text.startswith("#"):
            continue
        text = _checked(text, place)
        key, value = _split(text)
        if key != "include":
            if key in ("host", "match"):
                if depth and conditional:
                    raise refusal(
                        place, f"{text}: a block within a file that {block} includes", "inline it"
                    )
                block = text
            yield Line(text, place)
            continue
        if depth == MAX_INCLUDES:
            raise refusal(place, f"Include goes deeper than {MAX_INCLUDES} files")
        for pattern in _words(value, place):
            for name in sorted(glob.glob(os.path.join(base, os.path.expanduser(pattern)))):
                if os.path.isfile(name):
                    yield from _read(name, base, block, depth + 1)
                    yield Line(block, place)  # the included file's last block ends with the file


def _split(text: str) -> tuple[str, str]:
    match = paramiko.SSHConfig.SETTINGS_REGEX.match(text)
    return (match.group(1).lower(), match.group(2).strip()) if match else ("", "")


def _words(value: str, place: str) -> list[str]:
    try:
        return shlex.split(value)
    except ValueError as failure:
        raise refusal(place, f"{value}: {failure}") from failure


def _checked(text: str, place: str) -> str:
    """Return a line without its comment, and with Match's keywords in lower case."""
    if not text.lower().startswith("proxycommand"):
        text = re.sub(r'\s+#[^"]*$', "", text)
    key, value = _split(text)
    if key == "match":
        text = "Match " + shlex.join(_criteria(_words(value, place), place))
    elif key in KNOWN_HOSTS:
        # Paramiko takes the double quotes off one name, and then its blanks would part it.
        text = f"{key} {shlex.join(_words(value, place))}"
    try:
        paramiko.SSHConfig.from_text(text)
    except (paramiko.SSHException, ValueError) as failure:
        raise refusal(place, f"cannot be read: {failure}") from failure
    return text


def _criteria(words: list[str], place: str) -> Iterator[str]:
    rest = iter(words)
    for word in rest:
        keyword = word.lower().removeprefix("!")
        if keyword in CRITERIA:
            yield word.lower()
            yield from (argument for argument in [next(rest, None)] if argument is not None)
        elif keyword in BARE_CRITERIA:
            yield word.lower()
        else:
            raise refusal(place, f"Match {word} is not supported", "use Host or Match host instead")


def settings_of(target: Target, lines: tuple[Line, ...], options: SshOptions) -> Settings:
    """Return one host's settings; raise PROBE-CONFIG for what cannot be honoured."""
    return _Reading(target, lines, options).settings()


class _Reading:
    """One host's look-up: the values, and what their tokens stand for."""

    def __init__(self, target: Target, lines: tuple[Line, ...], options: SshOptions) -> None:
        self.target, self.lines, self.options = target, lines, options
        # What the caller fixes comes first: the first value wins, and Match sees it.
        first = [f"User {target.user}"] if target.user else []
        first += [f"Port {target.port}"] if target.port else []
        parser = _Parser()
        parser.parse([*first, *(line.text for line in lines)])
        try:
            self.values = parser.lookup(target.host)
        except (paramiko.SSHException, KeyError, ValueError) as failure:
            raise refusal(target.host, f"ssh_config cannot be applied: {failure!r}") from failure
        self.tokens = {"n": target.host, "d": os.path.expanduser("~"), "u": getpass.getuser()}

    def refuse(self, key: str, why: str) -> ApiaryError:
        """Return the refusal of a value, with the host it is for and the place of its line."""
        value = self.values.get(key)
        for text, place in self.lines:
            found, given = _split(text)
            if found == key and (value is None or given.strip('"') in value):
                return refusal(self.target.host, f"{place}: {text}: {why}")
        return refusal(self.target.host, f"{key} {value}: {why}")

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
        """Return a file name with tokens, ${VARIABLE} and ~ replaced."""

        def variable(match: re.Match[str]) -> str:
            if match[1] not in os.environ:
                raise self.refuse(key, f"{match[0]} is not in the environment")
            return os.environ[match[1]]

        return os.path.expanduser(re.sub(r"\$\{(\w+)\}", variable, self.expand(key, value)))

    def settings(self) -> Settings:
        for key, harmless in UNSUPPORTED.items():
            if self.values.get(key, harmless).lower() != harmless:
                raise self.refuse(key, "is not supported and would change the route or the trust")
        hostname = self.values["hostname"].lower()
        if not HOST.fullmatch(hostname):
            raise self.refuse("hostname", "is no host name")
        user = self.values.get("user") or self.tokens["u"]
        if not USER.fullmatch(user):
            raise self.refuse("user", "is no user name")
        port = self.values.get("port", "22")
        if not re.fullmatch("[0-9]{1,5}", port) or not 0 < int(port) < 65536:
            raise self.refuse("port", "is no port")
        name = hostname if port == "22" else f"[{hostname}]:{int(port)}"
        name = self.values.get("hostkeyalias") or name
        self.tokens |= {"h": hostname, "p": str(int(port)), "r": user, "k": name}
        family = self.values.get("addressfamily", "any").lower()
        if family not in FAMILIES:
            raise self.refuse("addressfamily", "is no address family")
        jumps, command = self.route()
        return Settings(
            hostname=hostname,
            port=int(port),
            user=user,
            host_key_name=name,
            known_hosts=self.known_hosts(),
            identities=self.identities(),
            identities_only=self.values.get("identitiesonly", "no").lower() in ("yes", "true"),
            agent=self.agent(),
            checking=self.values.get("stricthostkeychecking", "yes").lower(),
            jumps=jumps,
            command=command,
            bind=self.values.get("bindaddress"),
            family=FAMILIES[family],
        )

    def route(self) -> tuple[tuple[Target, ...], str | None]:
        """Return the jump hosts, the first one to reach first, or the ProxyCommand."""
        # Of the two, the one that comes first wins; dict keeps that order.
        key = next((key for key in self.values if key in ("proxyjump", "proxycommand")), "")
        value: str | None = self.values.get(key)  # paramiko turns ProxyCommand none into None
        if value is None or value.lower() == "none":
            return (), None
        if key == "proxycommand":
            return (), self.expand(key, value)
        try:
            hops = [hop.strip() for hop in self.expand(key, value).split(",")]
            return tuple(parse_target(hop) for hop in hops), None
        except ApiaryError as failure:
            if failure.findings[0].code == "PROBE-CONFIG":
                raise
            subject = failure.findings[0].subject
            raise self.refuse(key, f"{subject!r} is no host that SSH could reach") from failure

    def known_hosts(self) -> tuple[str, ...]:
        if self.options.known_hosts:
            return (os.path.expanduser(self.options.known_hosts),)
        files = [
            (key, word)
            for key, default in KNOWN_HOSTS.items()
            for word in _words(self.values.get(key, default), key)
        ]
        return tuple(self.path(key, word) for key, word in files if word.lower() != "none")

    def identities(self) -> tuple[str, ...]:
        # Paramiko keeps a list here, unlike its type says.
        given = list(self.values.get("identityfile", ()))
        if self.options.identity:
            given.insert(0, self.options.identity)
        names = [name for name in given or IDENTITIES if name.lower() != "none"]
        return tuple(dict.fromkeys(self.path("identityfile", name) for name in names))

    def agent(self) -> str | None:
        """Return the agent's socket, or None for no agent."""
        value = self.values.get("identityagent", "SSH_AUTH_SOCK")
        if value.lower() == "none":
            return None
        if value == "SSH_AUTH_SOCK" or re.fullmatch(r"\$\w+", value):
            return os.environ.get(value.removeprefix("$"))
        return self.path("identityagent", value)
