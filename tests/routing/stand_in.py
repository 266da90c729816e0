# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A stand-in for replicas of a host: one HTTP server for each port, which says who it is.

`stand_in.py HOST PORT…`; a request may ask for a delay (`{"seconds": 2}`). Standard library only.
"""

from __future__ import annotations

import http.server
import json
import sys
import threading
import time


class Replica(http.server.ThreadingHTTPServer):
    """A replica by its name, and how many requests it works on."""

    daemon_threads = True

    def __init__(self, name: str, port: int) -> None:
        super().__init__(("0.0.0.0", port), Handler)
        self.name, self.running, self.lock = name, 0, threading.Lock()

    def count(self, change: int) -> None:
        with self.lock:
            self.running += change


class Handler(http.server.BaseHTTPRequestHandler):
    """Answers as much as a router and its tests ask for."""

    protocol_version = "HTTP/1.1"
    server: Replica

    def log_message(self, *_arguments: object) -> None:
        """Say nothing; the journal of a lab host has better things to keep."""

    def answer(self, text: str, kind: str = "application/json") -> None:
        body = text.encode()
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self) -> None:
        if self.path == "/metrics":
            running = f'vllm:num_requests_running{{engine="0"}} {self.server.running:.1f}\n'
            self.answer(running + 'vllm:num_requests_waiting{engine="0"} 0.0\n', "text/plain")
        else:
            self.answer(json.dumps({"replica": self.server.name}))

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.count(1)
        try:
            time.sleep(asked.get("seconds", 0))
            told = {"replica": self.server.name, "authorization": self.headers["Authorization"]}
            self.answer(json.dumps(told))
        finally:
            self.server.count(-1)


def main() -> None:
    replicas = [
        Replica(f"{sys.argv[1]}-{index}", int(port)) for index, port in enumerate(sys.argv[2:])
    ]
    for one in replicas[1:]:
        threading.Thread(target=one.serve_forever, daemon=True).start()
    replicas[0].serve_forever()


if __name__ == "__main__":
    main()
