# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Connections to a replica from its own host, in the clear or by TLS."""

from __future__ import annotations

import contextlib
import http.client
import ssl


def certificate(deployment: str) -> str:
    """Return the name of the credential with a host's certificate, its key and the authority.

    No variable of an environment has such a name, as the other credentials are.
    """
    return f"{deployment}.pem"


def connection(
    address: str, port: int, seconds: float, authority: str | None
) -> http.client.HTTPConnection:
    """Return a connection that is not open yet; ``authority`` is the file that verifies TLS.

    Without it nobody is who he says: the connection fails when it is opened.
    """
    if authority is None:
        return http.client.HTTPConnection(address, port, timeout=seconds)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    with contextlib.suppress(OSError):
        context.load_verify_locations(authority)
    return http.client.HTTPSConnection(address, port, timeout=seconds, context=context)
