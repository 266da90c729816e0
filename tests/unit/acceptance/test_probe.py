# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What is measured on the host itself: bounded, beside nobody, and told as it was."""

import http.server
import os
import threading
import time
from pathlib import Path

import pytest
from ansible_collections.apiary.instinct.plugins.module_utils.evidence import acceptance as probe

MIB = 2**20


class Answer(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200 if self.path == "/health" else 404)
        self.end_headers()

    def log_message(self, *words):
        """Say nothing."""


@pytest.fixture
def replica():
    with http.server.HTTPServer(("127.0.0.1", 0), Answer) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server.server_port
        server.shutdown()
        thread.join()


def program(tmp_path, text, name="tool"):
    path = tmp_path / name
    path.write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
    path.chmod(0o755)
    return str(path)


def direct(path):
    """Whether the file system here reads past its cache."""
    try:
        os.close(os.open(path, os.O_RDONLY | os.O_DIRECT))
    except OSError:
        return False
    return True


def test_a_replica_is_asked(replica):
    assert probe.health("a", "127.0.0.1", replica) == {"unit": "a", "status": 200}


def test_one_that_does_not_answer_says_why():
    told = probe.health("a", "127.0.0.1", 1)
    assert told["error"].startswith("no answer: ")


def test_reading_ends_at_its_size(tmp_path):
    for name in ("a", "b"):
        (tmp_path / name).write_bytes(os.urandom(8 * MIB))
    (tmp_path / "small").write_bytes(b"x")
    (tmp_path / "link").symlink_to(tmp_path / "a")
    if not direct(tmp_path / "a"):
        pytest.skip("this file system has no direct reading")
    told = probe.read([str(tmp_path)], 12 * MIB, 30.0, 2, MIB)
    # Both readers may be at a block when it is enough.
    assert 12 * MIB <= told["bytes"] <= 14 * MIB
    assert told["files"] == 2
    assert "error" not in told


def test_pieces_are_of_the_largest_files_first(tmp_path):
    (tmp_path / "large").write_bytes(bytes(3 * MIB))
    (tmp_path / "larger").write_bytes(bytes(5 * MIB))
    cut = probe.pieces([str(tmp_path)], 6 * MIB, MIB // 16)
    assert Path(cut[-1][0]).name == "larger"
    assert sum(size for _path, _start, size in cut) == 6 * MIB
    assert all(size <= MIB for _path, _start, size in cut)


def test_nothing_to_read_is_told(tmp_path):
    assert "no file of at least" in probe.read([str(tmp_path)], MIB, 1.0, 1, MIB)["error"]


def test_a_file_system_without_direct_reading_is_told(tmp_path, monkeypatch):
    (tmp_path / "a").write_bytes(bytes(2 * MIB))

    def refuse(path, flags):
        raise OSError(22, "Invalid argument")

    monkeypatch.setattr(probe.os, "open", refuse)
    told = probe.read([str(tmp_path)], MIB, 5.0, 2, MIB)
    assert told["bytes"] == 0
    assert told["error"].startswith("no direct reading: ")


def test_the_first_possible_attempt_is_run(tmp_path):
    tool = program(tmp_path, 'echo "$@"; echo bad >&2; exit 3')
    attempts = [
        {"argv": ["no-such-tool"]},
        {"argv": [tool, "a"], "needs": str(tmp_path / "missing")},
        {"argv": [tool, "b"], "needs": tool},
    ]
    told = probe.run(attempts, 30, 1)
    assert told["argv"] == [tool, "b"]
    assert (told["exit"], told["output"]) == (3, "b\nbad\n")


def test_none_possible_is_not_installed():
    told = probe.run([{"argv": ["no-such-tool"]}], 30, 1)
    assert told == {"installed": False, "error": "not installed: no-such-tool not found"}


def test_one_that_does_not_end_is_ended_with_all_it_started(tmp_path):
    pids = tmp_path / "pids"
    tool = program(tmp_path, f"sleep 600 & echo $! > {pids}; echo begun; wait")
    told = probe.run([{"argv": [tool]}], 1, 1)
    assert "did not end" in told["error"]
    assert "exit" not in told
    child = int(pids.read_text())
    state = Path(f"/proc/{child}/stat")
    while state.exists() and state.read_text().rsplit(")", 1)[1].split()[0] != "Z":
        time.sleep(0.01)  # it has been sent SIGKILL, and dies when it next runs


def test_what_holds_vram_is_not_disturbed(tmp_path):
    held = tmp_path / "sys/class/kfd/kfd/proc/77"
    held.mkdir(parents=True)
    (held / "vram_1").write_text("2147483648\n")
    (held / "vram_2").write_text("2147483648\n")
    tool = program(tmp_path, "echo never")
    told = probe.run([{"argv": [tool]}], 30, 2**30, str(tmp_path))
    assert told == {"installed": True, "error": "not run: process 77 holds 4 GiB of VRAM"}


def test_long_output_keeps_its_end(tmp_path):
    tool = program(tmp_path, "head -c 3000000 /dev/zero | tr '\\0' x; echo; echo met: TRUE")
    told = probe.run([{"argv": [tool]}], 60, 1)
    assert told["output"].endswith("met: TRUE\n")
    assert "bytes left out" in told["output"]
    assert len(told["output"]) < 2 * 2**20


def test_what_all_have_no_time_left_for_is_not_begun(tmp_path, monkeypatch):
    clock = iter([0.0, 0.0, 100.0])
    spent = []
    monkeypatch.setattr(probe.time, "monotonic", lambda: next(clock))
    monkeypatch.setattr(
        probe, "_run", lambda argv, seconds: spent.append(seconds) or {"argv": argv}
    )
    attempts = [{"argv": [program(tmp_path, "exit 0")]}]
    runs = [{"test": "rvs", "name": name, "attempts": attempts} for name in ("gst", "iet")]
    requested = {"runs": runs, "run_seconds": 900, "seconds": 60, "idle_bytes": 0}
    first, second = probe.run_all(requested, root=str(tmp_path))
    assert (first["name"], spent) == ("gst", [60.0])
    assert (second["installed"], second["error"]) == (True, "not run: no time is left for it")
