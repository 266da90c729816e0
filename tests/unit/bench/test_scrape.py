# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What engines answer besides the load: names with several addresses, answers without end."""

from __future__ import annotations

import socket

from ansible_collections.apiary.instinct.plugins.module_utils.load import sse
from ansible_collections.apiary.instinct.plugins.module_utils.load.scrape import ask

from support.bench.load_servers import mock


def test_an_engine_that_listens_on_one_of_a_name_s_addresses_is_asked_there(monkeypatch):
    with mock() as url, socket.create_server(("127.0.0.1", 0)) as closed:
        unreachable = closed.getsockname()
        closed.close()
        resolve = socket.getaddrinfo

        def several(*arguments, **options):
            first, *others = resolve(*arguments, **options)
            return [(*first[:4], unreachable), first, *others]

        monkeypatch.setattr(socket, "getaddrinfo", several)
        assert ask(f"{url}/health", 5)[0] == 200


def test_an_answer_that_is_too_large_is_given_up(monkeypatch):
    monkeypatch.setattr(sse, "MOST_BODY", 8)
    with mock() as url:
        assert ask(f"{url}/v1/models", 5) == (None, "the answer is larger than 0 MiB")
