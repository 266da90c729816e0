# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What runs on the load host: processes that all end, files that are gone, and what was seen."""

import http.server
import json
import os
import signal
import threading
import time
from pathlib import Path

import pytest
from ansible_collections.apiary.instinct.plugins.module_utils.evidence import gpu as gpu_sensors
from ansible_collections.apiary.instinct.plugins.module_utils.load import (
    processes as bench_processes,
)
from ansible_collections.apiary.instinct.plugins.module_utils.load import run as bench_run
from ansible_collections.apiary.instinct.plugins.module_utils.load import scrape as bench_scrape

ROOT = Path(__file__).parents[3]
KEY = "sk-planted-4711"
# A client that measured two requests; the clock is the one of the load host.
SHARD = """
import json, os, sys, time
key = os.environ.get("OPENAI_API_KEY")
print("asked with", key)
json.dump({"completed": 2, "failed": 0, "duration": 0.01, "start_times": [time.perf_counter()],
           "request_rate": float("inf"), "generated_texts": ["x"], "key": key,
           "cpus": sorted(os.sched_getaffinity(0))}, open(sys.argv[1], "w"))
"""
PAGE = """
# HELP vllm:num_requests_running …
vllm:num_requests_running{engine="0"} 3
vllm:num_requests_running{engine="1"} 4.0
vllm:kv_cache_usage_perc{engine="0",model_name="a b"} 0.25
vllm:kv_cache_usage_perc{engine="1",model_name="a b"} 0.5
vllm:prompt_tokens_total{engine="0"} 10
"""
WANTED = {"vllm:num_requests_running": "sum", "vllm:kv_cache_usage_perc": "max"}


class Engine(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        text = self.server.pages.get(self.path)
        self.send_response(404 if text is None else 200)
        self.end_headers()
        self.wfile.write((text or "").encode())

    def log_message(self, *_words):
        """Say nothing."""


@pytest.fixture
def engine():
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Engine)
    server.pages = {"/metrics": PAGE}
    server.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


def shard(number, program=SHARD):
    file = f"shard-{number}.json"
    return {"argv": ["@PYTHON@", "-c", program, f"@DIR@/{file}"], "result": file}


def request(*shards, **changes):
    return {
        "do": "level",
        "load": {"phase": "fixed"},
        "backend": "builtin",
        "version": None,
        "shards": list(shards),
        "environment": {},
        "secrets": {"OPENAI_API_KEY": KEY},
        "metrics": [],
        "gauges": WANTED,
        "sample": 0.02,
        "http_seconds": 5,
        "gpus": "none",
        "exporter": {"power_w": ["power"], "clock_mhz": ["clock"], "key": ["gpu_id"]},
        "timeout_seconds": 60,
        "cpus": [],
        "contained": False,
        "self_test": None,
        **changes,
    }


@pytest.fixture(autouse=True)
def own_temporary_directory(tmp_path, monkeypatch):
    """Where levels work; nothing of them may be left there."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    yield
    assert list(tmp_path.iterdir()) == []


def test_shards_run_together_and_their_results_come_back():
    cpu = min(os.sched_getaffinity(0))
    raw = bench_run.run(request(shard(0), shard(1), cpus=[cpu]))
    assert [one["completed"] for one in raw["shards"]] == [2, 2]
    assert raw["shards"][0]["cpus"] == [cpu]
    assert raw["exit_codes"] == [0, 0]
    assert raw["shards"][0]["request_rate"] == "inf"  # JSON has no word for it
    assert "generated_texts" not in raw["shards"][0]
    assert raw["cpu_seconds"] >= 0
    assert raw["cores"] == 1
    assert raw["argv"][1][-1] == "@DIR@/shard-1.json"
    json.dumps(raw, allow_nan=False)


def test_the_key_is_given_by_environment_and_said_by_nobody():
    raw = bench_run.run(request(shard(0)))
    assert raw["shards"][0].pop("key") == KEY  # the client had it
    assert "asked with ***" in raw["log"]
    assert KEY not in json.dumps(raw)


def test_a_shard_that_fails_ends_the_others():
    began = time.monotonic()
    raw = bench_run.run(
        request(
            shard(0, "import sys; sys.exit('no such tokenizer')"),
            shard(1, "import time; time.sleep(300)"),
        )
    )
    assert raw["exit_codes"] == [1, -15]
    assert raw["shards"] == [{}, {}]
    assert "no such tokenizer" in raw["log"]
    assert time.monotonic() - began < 200


def test_what_takes_too_long_is_ended_with_all_that_it_started(tmp_path):
    # The child ignores SIGTERM, and so does its own child.
    stubborn = (
        "import os, signal, sys, time\n"
        "signal.signal(15, signal.SIG_IGN)\n"
        "child = os.fork()\n"
        "open(sys.argv[1] + ('.child' if not child else ''), 'w').write(str(os.getpid()))\n"
        "time.sleep(300)\n"
    )
    seen = []

    def watch(children, seconds):
        while len(seen) < 2:
            seen[:] = [path.read_text() for path in children.directory.glob("shard-0.json*")]
            seen[:] = [number for number in seen if number]
            time.sleep(0.01)
        return original(children, seconds)

    original = bench_processes.Children.wait
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bench_processes.Children, "wait", watch)
        patch.setattr(bench_processes, "GRACE_SECONDS", 0.1)
        raw = bench_run.run(request(shard(0, stubborn), timeout_seconds=0.01))
    assert raw["exit_codes"] == [bench_processes.TIMED_OUT]
    assert "not done within 0.01 s" in raw["log"]
    for number in seen:
        assert gone(int(number))


def gone(number, seconds=60):
    """Whether a process ends; one that nobody has awaited yet has ended, too."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        try:
            state = Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            return True
        if state == "Z":
            return True
        time.sleep(0.01)
    return False


def test_the_end_of_its_process_leaves_nothing(monkeypatch, tmp_path):
    """As timeout(1) and a cancelled CI job end it."""
    before = signal.getsignal(signal.SIGTERM)
    monkeypatch.setattr(bench_run, "level", lambda *_all: os.kill(os.getpid(), signal.SIGTERM))
    with pytest.raises(KeyboardInterrupt):
        bench_run.run(request())
    assert list(tmp_path.glob("apiary-bench-*")) == []
    assert signal.getsignal(signal.SIGTERM) is before


def test_an_interrupt_ends_all(monkeypatch):
    started = []

    def interrupted(children, _seconds):
        started.extend(one.pid for one in children.running)
        raise KeyboardInterrupt

    monkeypatch.setattr(bench_processes.Children, "wait", interrupted)
    with pytest.raises(KeyboardInterrupt):
        bench_run.run(request(shard(0, "import time; time.sleep(300)")))
    assert all(gone(number) for number in started)


def test_a_program_that_is_not_there_says_so():
    raw = bench_run.run(request({"argv": ["/no/such/vllm"], "result": "x.json"}))
    assert raw["exit_codes"] == [1]
    assert "/no/such/vllm: No such file" in raw["log"]


def test_a_container_is_removed_however_its_command_ended(tmp_path_factory):
    note = tmp_path_factory.mktemp("note") / "removed"
    after = ["/bin/sh", "-c", f"echo @NAME@ >> {note}"]
    bench_run.run(request({**shard(0, "import sys; sys.exit(3)"), "after": after}))
    assert note.read_text().startswith("apiary-bench-")


def test_a_container_is_named_when_its_client_is_requested_for_its_version():
    request = {"do": "inspect", "urls": [], "metrics": [], "model": "m", "http_seconds": 1}
    client = ["echo", "--name", "@NAME@-0", "-v", "@DIR@:@DIR@"]
    reported = bench_run.run({**request, "secrets": {}, "client": client})
    assert "@" not in reported["client"]["text"]
    assert "--name apiary-bench-" in reported["client"]["text"]


def test_metrics_are_read_before_during_and_after(engine):
    url = f"{engine.url}/metrics"
    slow = SHARD + "\ntime.sleep(0.3)"
    program = slow.replace('"duration": 0.01', '"duration": 300')
    raw = bench_run.run(request(shard(0, program), metrics=[url], secrets={}))
    (scrape,) = raw["metrics"]
    assert scrape["before"] == scrape["after"] == PAGE
    _at, gauges = scrape["samples"][0]
    assert gauges == {"vllm:num_requests_running": 7.0, "vllm:kv_cache_usage_perc": 0.5}


def test_an_engine_that_dies_meanwhile_is_no_failure_of_the_level():
    raw = bench_run.run(request(shard(0), metrics=["http://127.0.0.1:1/metrics"]))
    assert raw["metrics"] == [
        {"url": "http://127.0.0.1:1/metrics", "before": None, "after": None, "samples": []}
    ]


def test_only_what_was_seen_while_requests_ran_is_kept():
    shards = [{"start_times": [5.0, 7.0], "duration": 4.0}, {"duration": 2.0}, {}]
    window = bench_run.window_of(shards, begun=1.0, ended=10.0)
    assert window == (5.0, 10.0)
    found = [(4.9, "a"), (5.0, "b"), (10.0, "c"), (10.1, "d")]
    assert list(bench_run.within(found, window)) == [(0.0, "b"), (5.0, "c")]
    # Another clock than ours says nothing.
    assert bench_run.window_of([{"start_times": [5e9], "duration": 1}], 1.0, 10.0) == (1.0, 10.0)


def test_only_the_cpu_time_of_the_window_counts():
    found = [(0.0, 0.0), (10.0, 9.0), (20.0, 10.0), (30.0, 10.5)]
    assert bench_processes.cpu_within(found, (10.0, 30.0)) == 1.5  # not the nine of the start
    assert bench_processes.cpu_within(found, (15.0, 20.0)) == 0.5
    assert bench_processes.cpu_within(found, (0.0, 40.0)) == 10.5
    assert bench_processes.cpu_within([(5.0, 1.0)], (0.0, 1.0)) == 0.0


def test_gpus_are_read_from_sysfs(tmp_path_factory):
    root = tmp_path_factory.mktemp("drm")
    device = root / "devices" / "0000:05:00.0"
    sensors = device / "hwmon/hwmon3"
    sensors.mkdir(parents=True)
    for card in ("card1", "card1-DP-1"):
        (root / card).mkdir()
        (root / card / "device").symlink_to(device)
    (sensors / "name").write_text("amdgpu\n")
    (sensors / "power1_average").write_text("750000000\n")
    (sensors / "freq1_input").write_text("2100000000\n")
    known = gpu_sensors.cards(root)
    reading = {"key": "0000:05:00.0", "power_w": 750.0, "clock_mhz": 2100.0}
    assert gpu_sensors.readings(known) == [reading]
    (sensors / "power1_average").unlink()
    (sensors / "power1_input").write_text("700000000\n")
    (sensors / "freq1_input").write_text("")
    assert gpu_sensors.readings(known) == [{**reading, "power_w": 700.0, "clock_mhz": None}]


def test_gpus_are_read_from_an_exporter(engine):
    engine.pages["/gpus"] = (
        'amd_gpu_package_power{gpu_id="1",hostname="gpu-001"} 600\n'
        'amd_gpu_clock{gpu_id="1",hostname="gpu-001",clock_index="0"} 2100\n'
        'amd_gpu_clock{gpu_id="1",hostname="gpu-001",clock_index="1"} 1900\n'
        "amd_gpu_clock{} what\n"
    )
    engine.pages["/more"] = 'amd_gpu_package_power{gpu_id="1",hostname="gpu-002"} 500\n'
    names = {"power_w": ["gpu_package_power"], "clock_mhz": ["gpu_clock"], "key": ["gpu_id"]}
    first = {"key": "gpu-001/1", "power_w": 600.0, "clock_mhz": 1900.0}
    second = {"key": "gpu-002/1", "power_w": 500.0, "clock_mhz": None}
    assert bench_scrape.exported(f"{engine.url}/gpus", names, 5) == [first]
    both = f"{engine.url}/gpus,{engine.url}/more"
    assert bench_scrape.exported(both, names, 5) == [first, second]


@pytest.mark.parametrize("url", ["http://127.0.0.1:1/x", "http://127.0.0.1:99999/x"])
def test_who_does_not_answer_is_told_as_such(url):
    status, why = bench_scrape.ask(url, 5)
    assert status is None
    assert why


def test_a_key_that_no_header_can_have_is_not_shown(engine):
    assert bench_scrape.ask(engine.url, 5, "sk-\nplanted") == (None, "ValueError")
