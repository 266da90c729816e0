# SPDX-License-Identifier: GPL-3.0-or-later

"""The virtual address of several routers as the files of keepalived."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass

from ..documents import knowledge
from ..findings import error
from .unit import RenderedFile, secret_reference, templates

CONFIGURATION = "/etc/keepalived/keepalived.conf"
PASSWORD = "/etc/keepalived/apiary-password.conf"  # noqa: S105 - a file's name
SECRET = "virtual_password"  # noqa: S105 - the name by which the role passes it
_INTERFACE = re.compile(r"[A-Za-z0-9_.@:-]{1,15}", re.ASCII)


@dataclass(frozen=True)
class Peer:
    """A router by its name in the inventory and the address that the others reach it at."""

    host: str
    address: str


@dataclass(frozen=True)
class VirtualAddress:
    """Addresses, each with its prefix length, that one of several routers has.

    ``peers`` are all routers, this one among them, the first preferred. ``router_id`` is theirs
    alone in the network (1–255); ``password`` says whether there is one (``password_file``).
    """

    addresses: tuple[str, ...]
    interface: str
    peers: tuple[Peer, ...]
    router_id: int = 51
    password: bool = False


def render_keepalived(
    virtual: VirtualAddress, name: str, python: str, program: str
) -> RenderedFile:
    """Return keepalived's configuration on the router ``name``.

    ``python`` runs ``program``, which says whether HAProxy answers. Raises ApiaryError with
    ROUTER-VIRTUAL for what keepalived could not mean.
    """
    _check(virtual, name)
    facts = knowledge("keepalived.yml")
    place = [peer.host for peer in virtual.peers].index(name)
    text = templates().get_template("keepalived.conf.j2")
    return RenderedFile(
        CONFIGURATION,
        "0644",
        text.render(
            virtual=virtual,
            name=name,
            own=virtual.peers[place].address,
            others=[peer.address for peer in virtual.peers if peer.host != name],
            priority=facts["priority"]["first"] - facts["priority"]["step"] * place,
            facts=facts,
            python=python,
            program=program,
            password=PASSWORD if virtual.password else None,
        ),
    )


def password_file(password: str) -> RenderedFile:
    """Return the file that refers to the routers' password; raise ROUTER-VIRTUAL for a bad one."""
    limits = knowledge("keepalived.yml")["limits"]
    if not re.fullmatch(limits["password"], password, re.ASCII):
        raise error(
            "ROUTER-VIRTUAL",
            "the password",
            f"is not {limits['password_text']}",
            source=limits["source"],
        )
    text = templates().get_template("keepalived_password.conf.j2")
    return RenderedFile(PASSWORD, "0600", text.render(password=secret_reference(SECRET)))


def _check(virtual: VirtualAddress, name: str) -> None:
    limits = knowledge("keepalived.yml")["limits"]

    def refuse(subject: str, message: str) -> None:
        raise error("ROUTER-VIRTUAL", subject, message, source=limits["source"])

    for address in virtual.addresses:
        try:
            if "/" not in address:
                raise ValueError
            ipaddress.ip_interface(address)
        except ValueError:
            refuse(name, f"{address!r} is no address with a prefix")
    if len({ipaddress.ip_interface(text).version for text in virtual.addresses}) > 1:
        refuse(name, "has addresses of both IPv4 and IPv6")
    if not _INTERFACE.fullmatch(virtual.interface):
        refuse(name, f"interface {virtual.interface!r} is none")
    if not 1 <= virtual.router_id <= limits["router_id"]:
        refuse(name, f"id {virtual.router_id} is not 1 to {limits['router_id']}")
    if name not in [peer.host for peer in virtual.peers]:
        refuse(name, "is not among the routers that share the address")
    most = knowledge("keepalived.yml")["priority"]
    if len(virtual.peers) > (most["first"] - 1) // most["step"]:
        refuse(name, f"{len(virtual.peers)} routers are too many for one address")
    for peer in virtual.peers:
        try:
            ipaddress.ip_address(peer.address)
        except ValueError:
            refuse(peer.host, f"{peer.address!r} is no IP address, and keepalived needs one")
