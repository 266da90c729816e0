# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a host answers a real Prometheus with is bounded: it decides nothing but its own target."""

import contextlib
import json
import socket
import subprocess
import threading
import time
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
import yaml
from ansible_collections.apiary.instinct.plugins.plugin_utils.documents import knowledge
from ansible_collections.apiary.instinct.plugins.plugin_utils.telemetry.plan import telemetry_plan
from ansible_collections.apiary.instinct.plugins.plugin_utils.telemetry.types import (
    MonitoredHost,
)

from support.telemetry.prometheus import program

FACTS = knowledge("telemetry/settings.yml")["scrape"]
LIMITS = FACTS["bounds"]["every"]
# An answer by the name of its target, and what Prometheus says of it; None where it takes it.
ANSWERS = {
    "sound": ("up_and_well 1\n", None),
    "huge": ("#" + " " * 2**24 + "\nhuge 1\n", "body size limit exceeded"),
    "many": (
        "".join(f'many{{a="{index}"}} 1\n' for index in range(LIMITS["sample_limit"] + 1)),
        "sample limit exceeded",
    ),
    "labels": (
        "labels{" + ",".join(f'a{index}="b"' for index in range(99)) + "} 1\n",
        "label_limit",
    ),
    "long": ('long{a="' + "b" * 5000 + '"} 1\n', "label_value_length_limit"),
    "elsewhere": (None, "302"),
}


class Host(BaseHTTPRequestHandler):
    """A host that answers as its target's name says, and one that it points to."""

    asked: set[str] = set()  # noqa: RUF012 - of the one test

    def do_GET(self):
        name = self.path.strip("/")
        self.asked.add(name)
        text = ANSWERS.get(name, ("secret 1\n",))[0]
        self.send_response(302 if text is None else 200)
        self.send_header("Location", "/metadata")
        self.send_header("Content-Type", "text/plain")
        self.end_headers()
        with contextlib.suppress(OSError):
            self.wfile.write((text or "").encode())

    def log_message(self, *_words):
        pass


@contextlib.contextmanager
def hostile():
    server = ThreadingHTTPServer(("127.0.0.1", 0), Host)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        server.server_close()


@contextlib.contextmanager
def watching(document, tmp_path):
    """A real Prometheus' own address."""
    (tmp_path / "prometheus.yml").write_text(yaml.safe_dump(document))
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    words = (
        program("prometheus"),
        f"--config.file={tmp_path}/prometheus.yml",
        f"--storage.tsdb.path={tmp_path}/data",
        f"--web.listen-address=127.0.0.1:{port}",
    )
    with subprocess.Popen(words, stderr=subprocess.DEVNULL) as process:
        try:
            yield f"http://127.0.0.1:{port}/api/v1/targets?state=active"
        finally:
            process.terminate()


def jobs():
    plan = telemetry_plan([MonitoredHost("gpu-001", "192.0.2.11")])
    return {
        job["job_name"]: job
        for job in yaml.safe_load(plan.files["prometheus.yml"])["scrape_configs"]
    }


def test_a_host_that_answers_without_end_or_points_elsewhere_is_down_alone(tmp_path):
    job = {**jobs()["vllm"], "scrape_interval": "2s", "scrape_timeout": "2s"}
    del job["file_sd_configs"]
    with hostile() as port:
        job["static_configs"] = [
            {
                "targets": [f"127.0.0.1:{port}"],
                # As targets of node-plain have it: the label is theirs, not the job's.
                "labels": {"__metrics_path__": f"/{name}", "job": "node"},
            }
            for name in ANSWERS
        ]
        with watching({"scrape_configs": [job]}, tmp_path) as url:
            deadline = time.monotonic() + 60
            targets = []
            while time.monotonic() < deadline:
                with contextlib.suppress(OSError):
                    answer = json.load(urllib.request.urlopen(url, timeout=5))
                    targets = answer["data"]["activeTargets"]
                    if targets and all(one["health"] != "unknown" for one in targets):
                        break
                time.sleep(0.1)
    errors = {one["scrapeUrl"].rpartition("/")[2]: one["lastError"] for one in targets}
    assert set(errors) == set(ANSWERS)
    assert {one["labels"]["job"] for one in targets} == {"node"}
    for name, (_text, expected) in ANSWERS.items():
        assert expected in errors[name] if expected else not errors[name], name
    assert Host.asked == set(ANSWERS)


@pytest.mark.parametrize("job", ["vllm", "amd-metrics", "node", "haproxy"])
def test_every_job_is_bounded(job):
    own = jobs()[job]
    assert own["follow_redirects"] is False
    expected = {**LIMITS, **FACTS["bounds"].get(job, {})}
    assert {name: own[name] for name in expected} == expected
