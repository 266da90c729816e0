# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""HAProxy's own check of every golden configuration, and of settings of all kinds."""

import contextlib
import os
import re
import subprocess
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
from ansible_collections.apiary.instinct.plugins.module_utils.router import haproxy
from ansible_collections.apiary.instinct.plugins.plugin_utils.host.program import sandbox
from ansible_collections.apiary.instinct.plugins.plugin_utils.render.haproxy import render_router
from ansible_collections.apiary.instinct.plugins.plugin_utils.router.check import check_router
from ansible_collections.apiary.instinct.plugins.plugin_utils.router.types import (
    Affinity,
    ApiKey,
    Health,
    Limits,
    Queueing,
    Router,
    RouterSettings,
    RouterTracing,
    Timeouts,
)
from hypothesis import given
from hypothesis import strategies as st

from labkit.hosts import FIRST_PORT
from support.examples import examples
from support.router.cases import routers
from support.router.haproxy import free_ports, localized, pool_of
from support.waiting import await_true

GOLDEN = Path(__file__).parents[1] / "golden/router"


def check(files, place):
    """Return what HAProxy says of a configuration that is not sound, warnings included."""
    for name, text in files.items():
        path = place / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(localized(text, place))
    (place / "state").write_text("1\n")
    if "tls.pem" in files["haproxy.cfg"]:
        certificate(place / "apiary/tls.pem")
    done = subprocess.run(
        ["haproxy", "-c", "-f", place / "haproxy.cfg"],
        capture_output=True,
        text=True,
        check=False,
    )
    told = [line for line in done.stderr.splitlines() if "WARNING" in line or "ALERT" in line]
    # Said from 3.0 on of a machine with fewer CPUs than the router is to have.
    told = [line for line in told if "threads running on a total of" not in line]
    return told if done.returncode == 0 else [*told, done.stderr]


def certificate(path):
    request = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2"
    names = ["-subj", "/CN=localhost", "-keyout", path, "-out", path.with_suffix(".crt")]
    subprocess.run([*request.split(), *names], capture_output=True, check=True)
    path.write_text(path.with_suffix(".crt").read_text() + path.read_text())


@pytest.mark.parametrize("case", routers())
def test_every_golden_configuration_is_valid(place, case):
    files = {
        "haproxy.cfg" if file.name == "haproxy.cfg" else f"apiary/{file.name}": file.read_text()
        for folder in (GOLDEN / "default", GOLDEN / "everything", GOLDEN / case)
        for file in folder.iterdir()
    }
    assert check(files, place) == []


TOKEN = st.from_regex(r"[A-Za-z0-9_-]{1,20}", fullmatch=True)
KEYS = st.one_of(
    st.just("address"),
    TOKEN.map(lambda name: f"header:{name}"),
    TOKEN.map(lambda name: f"cookie:{name}"),
    st.from_regex(r"json:[A-Za-z_][A-Za-z0-9_]{0,9}", fullmatch=True),
)
SETTINGS = st.builds(
    RouterSettings,
    affinity=st.builds(
        Affinity,
        keys=st.lists(KEYS, max_size=4).map(tuple),
        balance_percent=st.integers(101, 1000),
        free_percent=st.integers(0, 100),
        json_bytes=st.integers(16384, 1 << 20),
    ),
    queueing=st.builds(Queueing, per_replica=st.integers(1, 10**6)),
    timeouts=st.builds(Timeouts, client=st.integers(1, 86400), response=st.integers(1, 86400)),
    health=st.builds(Health, interval=st.floats(0.1, 3600), slow_start=st.floats(0, 3600)),
    keys=st.lists(
        st.builds(
            ApiKey,
            TOKEN,
            st.from_regex(r"[0-9a-f]{64}", fullmatch=True),
            st.none() | st.integers(1, 10**6),
            st.none() | st.integers(1, 10**6),
        ),
        max_size=3,
        unique_by=(lambda key: key.name, lambda key: key.sha256),
    ).map(tuple),
    limits=st.builds(
        Limits,
        body_bytes=st.none() | st.integers(65536, 1 << 27),
        body_seconds=st.integers(1, 3600),
        connections_per_source=st.none() | st.integers(1, 10**6),
        requests_per_key=st.none() | st.integers(1, 10**6),
    ),
    name_replica=st.booleans(),
    threads=st.none() | st.integers(1, 8),
    connections=st.just(1000),
    tracing=st.none()
    | st.builds(
        RouterTracing,
        ratio=st.floats(0, 1),
        trust_clients=st.booleans(),
    ),
    version=st.sampled_from(["2.4.0", "2.6.12", "2.8.1", "3.0"]),
)


@examples(0.4)
@given(chosen=SETTINGS, replicas=st.integers(1, 6), model=st.text(max_size=20))
def test_whatever_the_settings_say_haproxy_takes(chosen, replicas, model):
    pool = replace(pool_of(range(20000, 20000 + replicas), port=8080), model=model)
    router = Router(chosen, (pool,))
    assert check_router(router) == ()
    files = {
        file.path.removeprefix("/etc/haproxy/"): file.content for file in render_router(router)
    }
    with tempfile.TemporaryDirectory(prefix="router-") as place:
        assert check(files, Path(place)) == []


def bounding_set(status):
    """Return the capabilities of /proc/PID/status as a number."""
    return int(re.search(r"^CapBnd:\s*([0-9a-f]+)$", status, re.MULTILINE)[1], 16)


def test_no_two_frontends_of_a_test_get_one_port():
    ports = [free_ports(1)[0] for _ in range(400)]
    assert len(set(ports)) == 400
    assert max(ports) < FIRST_PORT  # of simulated hosts


def test_the_unit_may_raise_its_limit_of_open_files():
    assert " CAP_SYS_RESOURCE\n" in sandbox("haproxy.service")


@pytest.mark.skipif(
    os.geteuid() != 0 or not bounding_set(Path("/proc/self/status").read_text()) & 1 << 24,
    reason="needs CAP_SYS_RESOURCE, which containers lack",
)
@pytest.mark.parametrize("connections", [500, 20000])
def test_the_unit_leaves_what_a_reload_with_more_connections_needs(place, connections):
    """A reload starts the master anew with the limits that it has, which it raises by itself."""
    lines = dict(
        line.split("=", 1) for line in sandbox("haproxy.service").splitlines() if "=" in line
    )
    left = lines["CapabilityBoundingSet"].lower().replace("cap_", "+").split()
    (place / "cfg").write_text(
        f"global\n  maxconn {connections}\n  stats socket {place}/s\n"
        "defaults\n  mode http\n  timeout client 1s\n  timeout connect 1s\n  timeout server 1s\n"
        f"frontend one\n  bind unix@{place}/f\n"
    )
    limits = [
        "prlimit",
        "--nofile=2000:2000",
        "setpriv",
        "--bounding-set",
        ",".join(["-all", *left]),
    ]
    with subprocess.Popen(
        [*limits, "haproxy", "-db", "-f", place / "cfg"], stderr=subprocess.PIPE, text=True
    ) as process:
        await_true(lambda: process.poll() is not None or (place / "f").exists())
        while process.poll() is None:
            with contextlib.suppress(ConnectionError):
                assert "Pid: " in haproxy.ask("show info", f"{place}/s")
                process.terminate()
                break
        output = process.communicate(timeout=20)[1]
    assert "Cannot raise" not in output
    assert "FD limit" not in output
