# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A stand-in for an OpenTelemetry collector by gRPC: `grpc_collector.py FILE` prints its port.

Each request goes into the file as it came, a line of hex. Runs with the packages that vLLM brings.
"""

from __future__ import annotations

import sys
from concurrent import futures
from pathlib import Path

import grpc

SERVICE = "opentelemetry.proto.collector.trace.v1.TraceService"


def main() -> None:
    kept = Path(sys.argv[1])

    def export(request: bytes, _context: object) -> bytes:
        with kept.open("a") as stream:
            stream.write(request.hex() + "\n")
        return b""

    server = grpc.server(futures.ThreadPoolExecutor(2))
    handlers = {"Export": grpc.unary_unary_rpc_method_handler(export)}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    print(port, flush=True)
    server.wait_for_termination()


if __name__ == "__main__":
    main()
