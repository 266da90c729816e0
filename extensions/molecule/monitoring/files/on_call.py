# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Takes Alertmanager's webhooks and writes each down: on_call.py PORT FILE."""

import json
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer


class Handler(BaseHTTPRequestHandler):
    """One line a call."""

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        told = {"authorization": self.headers["Authorization"], "body": json.loads(body)}
        with open(sys.argv[2], "a", encoding="utf-8") as stream:
            stream.write(json.dumps(told) + "\n")
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_arguments):
        """Say nothing."""


HTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
