# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A headless Chromium, spoken to over its debugging pipe: what it draws, logs and asks for."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import select
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

# A loaded machine draws slowly; nothing waits this long where all is well.
PATIENCE = 60.0
FLAGS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--no-first-run",
    "--disable-dev-shm-usage", "--disable-background-networking", "--disable-component-update",
    "--disable-sync", "--disable-extensions", "--disable-default-apps", "--mute-audio",
    # Whatever the browser itself would like to ask its maker, no name leads anywhere.
    "--host-resolver-rules=MAP * ~NOTFOUND", "--disable-client-side-phishing-detection",
    "--no-pings", "--disable-domain-reliability", "--remote-debugging-pipe", "about:blank",
)  # fmt: skip


class Browser:
    """One tab, and everything that it reported."""

    def __init__(self, process: subprocess.Popen[bytes], to: int, back: int) -> None:
        self.process, self._to, self._back = process, to, back
        self._rest = b""
        self._number = 0
        self.events: list[dict[str, Any]] = []
        target = self._call("Target.createTarget", {"url": "about:blank"}, None)["targetId"]
        attached = self._call("Target.attachToTarget", {"targetId": target, "flatten": True}, None)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network", "Security", "Audits"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Call a method of the tab and return its result."""
        return self._call(method, parameters, self._session)

    def open(self, path: Path) -> None:
        """Open a file and wait until it and what it asks for is loaded."""
        self.events.clear()
        self.call("Page.navigate", url=path.as_uri())
        self.await_event("Page.loadEventFired")

    def view(self, width: int, height: int = 900, scheme: str = "light") -> None:
        """Have a window of this size, and a system of this colour scheme."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width, height=height, deviceScaleFactor=1, mobile=width < 600,
        )  # fmt: skip
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.call("Emulation.setEmulatedMedia", features=features)

    def evaluate(self, expression: str) -> Any:
        """Return the value of an expression in the page; raise what it throws."""
        answer = self.call(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        if "exceptionDetails" in answer:
            raise RuntimeError(answer["exceptionDetails"])
        return answer["result"].get("value")

    def settle(self) -> None:
        """Wait until the page has drawn twice: what changed is on the screen then."""
        self.evaluate(
            "new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done())))"
        )

    def screenshot(self, path: Path, clip: tuple[int, int, int, int] | None = None) -> None:
        """Write a picture of the whole page, or of a part: left, top, width, height."""
        more = {}
        if clip:
            keys = ("x", "y", "width", "height")
            more = {"clip": dict(zip(keys, clip, strict=True)) | {"scale": 1}}
        shot = self.call("Page.captureScreenshot", captureBeyondViewport=True, **more)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(base64.b64decode(shot["data"]))

    def pdf(self, path: Path) -> None:
        """Write the page as it prints."""
        made = self.call("Page.printToPDF", printBackground=False, preferCSSPageSize=True)
        path.write_bytes(base64.b64decode(made["data"]))

    def requests(self) -> list[str]:
        """Return the address of everything that the page asked for."""
        return [
            event["params"]["request"]["url"]
            for event in self.events
            if event["method"] == "Network.requestWillBeSent"
        ]

    def complaints(self) -> list[str]:
        """Return exceptions, errors on the console and what the policy refused."""
        found = []
        for event in self.events:
            method, said = event["method"], event["params"]
            if method == "Runtime.exceptionThrown":
                found.append(json.dumps(said["exceptionDetails"]))
            elif method == "Log.entryAdded" and said["entry"]["level"] in ("error", "warning"):
                found.append(said["entry"]["text"])
            elif method == "Runtime.consoleAPICalled" and said["type"] in ("error", "warning"):
                found.append(json.dumps(said["args"]))
            elif method == "Audits.issueAdded":
                found.append(json.dumps(said["issue"]))
        return found

    def await_event(self, method: str) -> None:
        """Read until an event of this method has come."""
        end = time.monotonic() + PATIENCE
        while not any(event["method"] == method for event in self.events):
            self._read(end)

    def _call(self, method: str, parameters: dict[str, Any], session: str | None) -> dict[str, Any]:
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if session:
            message["sessionId"] = session
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self._to, data) :]
        end = time.monotonic() + PATIENCE
        while True:
            answer = self._read(end)
            if answer.get("id") == self._number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return answer["result"]

    def _read(self, end: float) -> dict[str, Any]:
        """Return the next message; an event is also kept."""
        while b"\0" not in self._rest:
            left = end - time.monotonic()
            ready, _, _ = select.select([self._back], [], [], max(0.0, left))
            data = os.read(self._back, 1 << 20) if ready else b""
            if not data:
                raise TimeoutError(f"Chromium is silent; exit code {self.process.poll()}")
            self._rest += data
        line, self._rest = self._rest.split(b"\0", 1)
        message: dict[str, Any] = json.loads(line)
        if "method" in message:
            self.events.append(message)
        return message


@contextlib.contextmanager
def browser(profile: Path) -> Iterator[Browser]:
    """Start Chromium with an empty profile in a directory, and end it afterwards."""
    commands, to = os.pipe()
    back, answers = os.pipe()
    # Chromium reads commands from descriptor 3 and answers on 4; a shell puts them there.
    script = f'exec 3<&{commands} 4>&{answers}; exec chromium "$@"'
    argv = ["bash", "-c", script, "chromium", f"--user-data-dir={profile}"]
    argv += [f"--log-net-log={profile / 'net-log.json'}", *FLAGS]
    with (profile / "chromium.log").open("wb") as log:
        process = subprocess.Popen(
            argv, pass_fds=(commands, answers), stdin=subprocess.DEVNULL, stdout=log, stderr=log
        )
        os.close(commands)
        os.close(answers)
        made = None
        try:
            made = Browser(process, to, back)
            yield made
        finally:
            if made is not None and process.poll() is None:
                with contextlib.suppress(Exception):
                    made._call("Browser.close", {}, None)
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.terminate()
                process.wait(20)
            os.close(to)
            os.close(back)
