# SPDX-License-Identifier: GPL-3.0-or-later

"""A service that takes a configuration: what systemd, its socket and its own API report of it."""

from __future__ import annotations

import base64
import json
import re
import ssl
import time
import urllib.request
from typing import Any

from ..finding import ApiaryError, error
from ..router import haproxy
from .types import Host, Resource

# What refusals are called, by the area of the service.
CODES = {
    "ROUTER": {"config": "ROUTER-CONFIG", "reload": "ROUTER-RELOAD", "service": "ROUTER-SERVICE"},
    "MONITORING": {
        "config": "MONITORING-CONFIG",
        "reload": "MONITORING-RELOAD",
        "service": "MONITORING-SERVICE",
    },
}
# A process with thousands of servers is up well within it.
RELOAD_SECONDS, CONFIRM_SECONDS = 10, 30


class Service:
    """The service of a configuration resource on this host."""

    def __init__(self, host: Host, resource: Resource) -> None:
        self.host, self.resource = host, resource
        self.name: str = resource["service"]

    def refusal(self, what: str, message: str) -> ApiaryError:
        """Return a refusal with the code of the resource's area."""
        return error(CODES[self.resource["area"]][what], self.name, message)

    def must(self, *words: str) -> None:
        """Run systemctl with these words and the unit's name; raise ApiaryError where it fails."""
        code, output = self.host.systemctl(*words, "--", self.name)
        if code:
            message = f"systemctl {' '.join(words)}: {output.strip()}\n{self.journal()}"
            raise self.refusal("service", message)

    def journal(self) -> str:
        words = ["journalctl", "--unit", self.name, "--no-pager", "--output=cat", "-n", "12"]
        return self.host.run(words)[1]

    def process(self) -> str | None:
        """Return the id of the process that answers on the socket, None where none does."""
        try:
            output = haproxy.ask("show info", self.resource["socket"], 2)
        except ConnectionError:
            return None
        match = re.search(r"^Pid: ([0-9]+)$", output, re.MULTILINE)
        return match.group(1) if match else None

    def reload(self) -> bool:
        """Reload, and return whether a new process took over."""
        if not self.resource["socket"]:
            return self.host.systemctl("reload", "--", self.name)[0] == 0
        before = self.process()
        if self.host.systemctl("reload", "--", self.name)[0]:
            return False
        end = time.monotonic() + RELOAD_SECONDS
        while time.monotonic() < end:
            now = self.process()
            if now is not None and now != before:
                return True
            time.sleep(0.1)
        return False

    def confirmed(self) -> bool:
        """Return whether the service's API reports that its last reload succeeded.

        A reload signals nothing back; Prometheus keeps the former configuration where it fails.
        """
        if not self.resource["confirm_url"]:
            return True
        end = time.monotonic() + CONFIRM_SECONDS
        while time.monotonic() < end:
            if _reported(self.resource["confirm_url"], self.resource["confirm_access"]):
                return True
            time.sleep(0.5)
        return False


def _reported(url: str, access: str | None) -> bool:
    try:
        return answer(url, access)["data"]["reloadConfigSuccess"] is True
    except (OSError, ValueError, KeyError, TypeError):
        return False


def answer(url: str, access: str | None) -> Any:
    """Return a program's document; ``access`` has the authority and password that it takes."""
    context = ssl.create_default_context(cafile=f"{access}/authority.pem" if access else None)
    # Programs of this host: no proxy stands between.
    handlers = (urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context))
    opener = urllib.request.build_opener(*handlers)
    if access:
        with open(f"{access}/monitoring.password", encoding="ascii") as stream:
            shown = base64.b64encode(f"apiary:{stream.read()}".encode()).decode()
        opener.addheaders.append(("Authorization", f"Basic {shown}"))
    with opener.open(url, timeout=5) as response:
        return json.loads(response.read())
