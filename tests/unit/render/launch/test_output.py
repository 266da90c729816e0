# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

import os
import threading

import pytest
from ansible_collections.apiary.instinct.plugins.plugin_utils.render.host import output

from support.waiting import await_true


class Collected:
    """A sink that keeps what it is given, call by call."""

    def __init__(self):
        self.parts = []

    def put(self, data):
        self.parts.append(data)


def pumped(*writes):
    """What a sink gets of some writes to a pipe, and the lines that were seen."""
    reading, writing = os.pipe()
    sink, seen = Collected(), []
    pump = output.Pump(reading, sink, seen.append)
    pump.start()
    for data in writes:
        os.write(writing, data)
    os.close(writing)
    pump.join(120)
    return sink.parts, seen


def test_no_byte_changes():
    """Partial lines, huge lines, carriage returns and bytes that are no text."""
    data = b"\xff\xfe no text\n\n" + b"x" * 50_000 + b"\nbar 1%\rbar 2%\r\nlast, without an end"
    parts, seen = pumped(data)
    assert b"".join(parts) == data
    assert seen[0] == "\ufffd\ufffd no text"
    assert seen[-2:] == ["bar 1%", "bar 2%"]


def test_lines_are_handed_on_whole_so_that_ours_do_not_cut_them():
    parts, seen = pumped(b"Loading we", b"ights\nnext", b" line\n", b"rest")
    assert all(part.endswith(b"\n") for part in parts[:-1])
    assert parts[-1] == b"rest"
    assert seen == ["Loading weights", "next line"]


def test_a_line_without_end_is_not_kept_for_ever(monkeypatch):
    monkeypatch.setattr(output, "LINE_BYTES", 100)
    monkeypatch.setattr(output, "READ_BYTES", 60)
    parts, _seen = pumped(*[b"y" * 60] * 50)
    assert b"".join(parts) == b"y" * 3000
    assert len(parts) > 1


def test_what_the_journal_does_not_take_is_dropped_and_counted(monkeypatch):
    monkeypatch.setattr(output, "HELD_BYTES", 100_000)
    reading, writing = os.pipe()
    sink = output.Sink(writing)
    line = b"z" * 999 + b"\n"
    # A pipe holds 64 KiB, and nobody reads yet.
    for _ in range(400):
        sink.put(line)
    got = []
    reader = threading.Thread(
        target=lambda: got.extend(iter(lambda: os.read(reading, 65536), b"")), daemon=True
    )
    reader.start()
    await_true(lambda: not sink._bytes)
    sink.put(b"after\n")
    sink.close(120)
    os.close(writing)
    reader.join(120)
    os.close(reading)
    got = b"".join(got)
    note = got.split(b"warning: the journal was too slow; lines dropped: ")[1]
    dropped = int(note.split(b"\n")[0])
    assert got.count(line) + dropped == 400
    assert got.endswith(b"after\n")


@pytest.mark.parametrize(
    ("by_systemd", "wanted"), [(True, b"<3>error: x\n"), (False, b"error: x\n")]
)
def test_findings_have_their_priority_in_the_journal(capfdbinary, by_systemd, wanted):
    journal = output.Journal(by_systemd)
    journal.say("error: x", "error")
    journal.close()
    assert capfdbinary.readouterr().err == wanted
