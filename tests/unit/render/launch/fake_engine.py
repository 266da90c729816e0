# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A stand-in for an engine: an API process and a core process, with the manners it is told.

Its one argument is JSON: port, and which habits to have; see DEFAULTS.
"""

import ctypes
import http.server
import json
import os
import select
import signal
import ssl
import sys
import threading
import time

DEFAULTS = {
    "port": 0,
    # Lines of the start, each flushed; then how long the start lasts.
    "lines": [],
    "start_seconds": 0.0,
    # SIGTERM while it starts has no effect.
    "deaf": False,
    # Exit with this status after the start instead of serving.
    "exit": None,
    # What a completion gets instead of an answer.
    "refuse": None,
    # Serves on after SIGTERM until nothing is in flight.
    "drains": False,
    "token_seconds": 0.0,
    # Tokens that others are given meanwhile, a second.
    "busy": 0,
    "metrics": True,
    # Raw bytes on standard output and error before all else, in hex.
    "stdout": "",
    "stderr": "",
    "key": None,
    # Those of a file of options (--config); all are written down, as older vLLM does.
    "keys": None,
    # What the core process is called, and how long the API process outlives it.
    "core_name": None,
    "outlives": 0,
    # The API process ends with status 1 and leaves its core behind.
    "forsakes": False,
}
BUSY = "vllm:num_requests_running"


class Api(http.server.BaseHTTPRequestHandler):
    """The routes that a supervisor asks."""

    protocol_version = "HTTP/1.1"

    def do_GET(self):
        server = self.server
        if self.path == "/health":
            return self.answer(200, "")
        if not server.habits["metrics"]:
            time.sleep(3600)
        tokens = server.tokens + server.habits["busy"] * time.monotonic()
        page = f'# HELP x\n{BUSY}{{engine="0",model_name="m"}} {float(server.running)}\n'
        page += 'vllm:num_requests_waiting{engine="0"} 0.0\n'
        page += f'vllm:generation_tokens_total{{engine="0"}} {tokens}\n'
        return self.answer(200, page)

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        server = self.server
        keys = server.habits["keys"] or [server.habits["key"]]
        if any(keys) and self.headers.get("Authorization") not in [f"Bearer {key}" for key in keys]:
            return self.answer(401, '{"error": "Unauthorized"}')
        if server.habits["refuse"]:
            return self.answer(server.habits["refuse"], '{"error": "no such model"}')
        with server.lock:
            server.running += 1
        try:
            for _ in range(body["max_tokens"]):
                if not server.core_token():
                    return self.answer(500, '{"error": "EngineDeadError"}')
                server.tokens += 1
        finally:
            with server.lock:
                server.running -= 1
        return self.answer(200, json.dumps({"choices": [{"text": "x"}]}))

    def answer(self, status, text):
        self.send_response(status)
        self.send_header("Content-Length", str(len(text.encode())))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_arguments):
        pass


class Server(http.server.ThreadingHTTPServer):
    """Passes each token through the core process, so that a stopped core makes none."""

    request_queue_size = 64

    def __init__(self, habits):
        super().__init__(("127.0.0.1", habits["port"]), Api)
        self.habits, self.lock = habits, threading.Lock()
        self.running, self.tokens = 0, 0
        self.turn = threading.Lock()
        asked, self.ask = os.pipe()
        self.told, tell = os.pipe()
        self.core = os.fork()
        if self.core == 0:
            os.close(self.ask)
            if habits["core_name"]:
                # PR_SET_NAME
                ctypes.CDLL(None).prctl(15, habits["core_name"].encode(), 0, 0, 0)
            while os.read(asked, 1) or habits["forsakes"]:
                time.sleep(600 if habits["forsakes"] else habits["token_seconds"])
                os.write(tell, b"t")
            os._exit(0)
        os.close(asked)
        os.close(tell)

    def core_token(self):
        with self.turn:
            os.write(self.ask, b"a")
            return os.read(self.told, 1)

    def get_request(self):
        try:
            return super().get_request()
        except ssl.SSLError as failure:
            print(f"refused: {failure.reason}", flush=True)
            raise


def main():
    habits = {**DEFAULTS, **json.loads(sys.argv[1])}
    if "--config" in sys.argv:
        with open(sys.argv[sys.argv.index("--config") + 1], encoding="utf-8") as stream:
            habits["keys"] = json.load(stream)["api-key"]
        print(f"non-default args: {{'api_key': {habits['keys']}}}", flush=True)
    signal.signal(signal.SIGTERM, signal.SIG_IGN if habits["deaf"] else signal.SIG_DFL)
    os.write(1, bytes.fromhex(habits["stdout"]))
    os.write(2, bytes.fromhex(habits["stderr"]))
    for line in habits["lines"]:
        print(line, flush=True)
    time.sleep(habits["start_seconds"])
    if habits["exit"] is not None:
        sys.exit(habits["exit"])
    server = Server(habits)
    if "--ssl-certfile" in sys.argv:
        files = [sys.argv[sys.argv.index(f"--ssl-{name}") + 1] for name in ("certfile", "keyfile")]
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*files)
        server.socket = context.wrap_socket(server.socket, server_side=True)
    stops, stop = os.pipe()
    signal.signal(signal.SIGTERM, lambda *_: os.write(stop, b"s"))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print(f"core {server.core}", flush=True)
    if habits["forsakes"]:
        os._exit(1)
    # As vLLM: an engine whose core is gone ends with status 0.
    while not select.select([stops], [], [], 0.05)[0]:
        if os.waitpid(server.core, os.WNOHANG)[0]:
            time.sleep(habits["outlives"] or 0.1)
            os._exit(0)
    while habits["drains"] and server.running:
        time.sleep(0.01)
    time.sleep(0.05)
    os.kill(server.core, signal.SIGKILL)
    os._exit(0)


if __name__ == "__main__":
    main()
