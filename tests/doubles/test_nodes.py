# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A replica over hosts: its processes meet, and only the first serves HTTP."""

from __future__ import annotations

import socket

import pytest

from .conftest import free_port


@pytest.fixture
def rank(start):
    """Start a rank of an engine of TP4/PP2 on two hosts, each with half of the GPUs."""
    meeting = str(free_port())

    def rank(number, *more):
        return start(
            *("--tensor-parallel-size", "4", "--pipeline-parallel-size", "2", "--nnodes", "2"),
            *("--node-rank", str(number), "--master-addr", "127.0.0.1", "--master-port", meeting),
            *("--headless",) * (number > 0),
            *more,
            HIP_VISIBLE_DEVICES="4,5,6,7" if number else "0,1,2,3",
        )

    return rank


def test_the_first_waits_for_the_second_and_serves_alone(rank):
    first = rank(0)
    first.await_line("meets at tcp://127.0.0.1:")
    assert "Application startup complete." not in first.log
    second = rank(1)
    first.ready()
    second.await_line("serves no HTTP")
    assert first.get("/health")[0] == 200
    with socket.socket() as probe:
        assert probe.connect_ex(("127.0.0.1", second.port)) != 0
    assert first.terminate() == 0
    assert second.process.poll() is None  # it does not notice
    assert second.terminate() == 0


def test_numbers_that_do_not_divide_are_refused(rank):
    refused = rank(0, "--nnodes", "3")
    assert refused.end() == 1
    assert "must evenly divide" in refused.log
