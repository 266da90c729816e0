# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Other names for hosts and addresses, the same for each wherever it stands."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable

_V4 = re.compile(r"(?<![\w.])(?:\d{1,3}\.){3}\d{1,3}(?![\w])(?!\.\d)")
_V6 = re.compile(r"(?<![\w:])(?:[0-9a-fA-F]{0,4}:){2,7}[0-9a-fA-F]{0,4}(?:%\w+)?(?![\w:])")
_MAC = re.compile(r"(?<![\w:-])(?:[0-9a-fA-F]{2}[:-]){5}[0-9a-fA-F]{2}(?![\w:-])")
_MAIL = re.compile(r"(?<![\w.+-])[\w.+-]+@[\w-]+\.[\w.-]+")


class Anonymizer:
    """Renames hosts as host-1, addresses as address-1, in the order in which they are met."""

    def __init__(self, hosts: Iterable[str]) -> None:
        self.names: dict[str, str] = {}
        domains: dict[str, None] = {}
        for name in hosts:
            if self._address(name) is not None:
                self._new(name, "address")
                continue
            self._new(name.lower(), "host")
            short, _dot, domain = name.lower().partition(".")
            if domain:
                self.names.setdefault(short, self.names[name.lower()])
                domains[domain] = None
        for domain in domains:
            self._new(domain, "domain")
        names = sorted(self.names, key=lambda name: (-len(name), name))
        self._known = (
            re.compile(rf"(?<![\w-])(?:{'|'.join(map(re.escape, names))})(?![\w-])", re.IGNORECASE)
            if names
            else None
        )

    def text(self, text: str) -> str:
        """Return a text with other names."""
        text = _MAIL.sub("[removed:mail]", text)
        if self._known is not None:
            text = self._known.sub(lambda match: self.names[match[0].lower()], text)
        text = _MAC.sub(lambda match: self._new(match[0].lower(), "mac"), text)
        for pattern in (_V4, _V6):
            text = pattern.sub(self._renamed, text)
        return text

    def _renamed(self, match: re.Match[str]) -> str:
        address = self._address(match[0])
        if address is None or address.is_loopback or address.is_unspecified:
            return match[0]
        if match[0].startswith("255."):
            return match[0]  # a mask
        return self._new(str(address), "address")

    def _new(self, name: str, kind: str) -> str:
        if name not in self.names:
            number = 1 + len({name for name in self.names.values() if name.startswith(f"{kind}-")})
            self.names[name] = f"{kind}-{number}"
        return self.names[name]

    @staticmethod
    def _address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
        try:
            return ipaddress.ip_address(text.partition("%")[0])
        except ValueError:
            return None
