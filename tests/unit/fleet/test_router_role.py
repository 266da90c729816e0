# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the role router makes of a host, by its options and the host's evidence."""

import json
import re
from dataclasses import replace

import pytest
from ansible_collections.apiary.instinct.plugins.filter.router_engine_keys import (
    router_engine_keys,
)
from ansible_collections.apiary.instinct.plugins.module_utils.resources.converge import items
from ansible_collections.apiary.instinct.plugins.plugin_utils.documents import dumps
from ansible_collections.apiary.instinct.plugins.plugin_utils.evidence.types import (
    CommandOutput,
    Evidence,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.findings import ApiaryError
from ansible_collections.apiary.instinct.plugins.plugin_utils.fleet.router_role import decide
from ansible_collections.apiary.instinct.plugins.plugin_utils.host.role_options import read_role
from ansible_collections.apiary.instinct.plugins.plugin_utils.render.haproxy import (
    engines_map,
    render_router,
    render_router_host,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.router.pools import (
    PlannedHost,
    pools_from_plans,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.router.types import (
    Router,
    RouterSettings,
)

from support.demo import demo_plan

PYTHON = "/usr/bin/python3"
PLANS = [PlannedHost("gpu-001", "10.0.0.1", demo_plan())]
VIRTUAL = {
    "router_virtual_addresses": ["192.0.2.10/24"],
    "router_peers": [{"host": "router-001", "address": "192.0.2.1", "artifacts": "x"}],
    "router_virtual_password": "planted8",
}
ROUTE = (
    "Iface Destination Gateway Flags RefCnt Use Metric Mask MTU Window IRTT\n"
    "eth1 00000000 0100000A 0003 0 0 200 00000000 0 0 0\n"
    "eth0 00000000 0100000A 0003 0 0 100 00000000 0 0 0\n"
    "eth2 0000000A 00000000 0001 0 0 0 0000FFFF 0 0 0\n"
)
ENGINES = {"qwen3-235b": "planted-key-of-the-engines"}


def output(stdout, code=0):
    return CommandOutput((), code, stdout, "", 0.0)


def evidence(haproxy="HAProxy version 2.6.12-1+deb12u3 2025/10/03", before=None, **files):
    """A Debian router with the programs that are named."""
    commands = {"keepalived_version": output("", None), "router_document": output("", 1)}
    commands["haproxy_version"] = output(haproxy or "", 0 if haproxy else None)
    if before is not None:
        commands["router_document"] = output(json.dumps(before))
    found = {"/etc/os-release": "ID=debian\n", "/proc/net/route": ROUTE, **files}
    return Evidence("router-001", "", "2", commands, found)


def role(host=None, plans=PLANS, **options):
    defaults = {**read_role("router").defaults, **options}
    return decide(defaults, host or evidence(), plans, [], PYTHON)


def by_name(plan):
    checked = items([dict(item) for item in plan.resources])
    return {item.name: item.options for item in checked}


def haproxy(plan):
    files = by_name(plan)["configuration haproxy.service"]["files"]
    return {item["path"]: item for item in files}


def test_the_files_are_those_that_the_renderers_return():
    settings = RouterSettings()
    router = Router(settings, pools_from_plans(PLANS, settings)[0])
    rendered = [*render_router_host(router, PYTHON), *render_router(router), engines_map({})]
    files = haproxy(role())
    assert {path: (item["mode"], item["content"]) for path, item in files.items()} == {
        item.path: (item.mode, item.content) for item in rendered
    }
    # What is named comes before what names it, and digests of keys are in no diff.
    order = [item["mode"] != "0644" for item in files.values()]
    assert order == sorted(order, reverse=True)
    assert all(item["hidden"] == (item["mode"] != "0644") for item in files.values())


def test_secrets_are_references_in_the_files_that_need_them():
    keys = {"router_api_keys": {"lab": "planted-key-of-the-lab-1"}, "router_engine_keys": ENGINES}
    tls = {"router_tls_enabled": True, "router_tls_bundle": "planted-tls"}
    plan = role(**keys, **tls, **VIRTUAL)
    text = dumps(plan)
    planted = ("planted-key", "planted-tls", "planted8")
    assert not any(word in text for word in planted)
    files = haproxy(plan)
    engines = files["/etc/haproxy/apiary/engines.map"]
    assert engines["content"] == "qwen3-235b @secret:qwen3-235b@\n"
    assert engines["secrets"] == ["qwen3-235b"]
    assert sum("@secret:qwen3-235b@" in file["content"] for file in files.values()) == 1
    assert files["/etc/haproxy/apiary/tls.pem"]["secrets"] == ["tls_bundle"]
    password, main = by_name(plan)["configuration keepalived.service"]["files"]
    assert (password["secrets"], password["mode"]) == (["virtual_password"], "0600")
    assert "interface eth0" in main["content"]


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({**VIRTUAL, "router_virtual_password": "much too long"}, "ROUTER-VIRTUAL"),
        (
            {
                "router_api_keys": {"lab": "planted-key-of-the-lab-1"},
                "router_engine_keys": {"qwen3-235b": "two words"},
            },
            "ROUTER-KEY",
        ),
        ({"router_api_keys": {"lab": "short"}}, "ROUTER-KEY"),
    ],
)
def test_secrets_that_cannot_be_right_are_refused_and_not_shown(options, code):
    with pytest.raises(ApiaryError) as caught:
        role(**options)
    assert [finding.code for finding in caught.value.findings] == [code]
    assert "two words" not in str(caught.value)
    assert "too long" not in str(caught.value)


def test_without_keys_of_its_own_a_router_has_no_key_of_the_engines():
    files = haproxy(role(router_engine_keys=ENGINES))
    assert files["/etc/haproxy/apiary/engines.map"]["content"] == ""


def test_missing_programs_are_installed_first():
    assert role(evidence(haproxy=None), **VIRTUAL).programs == (
        {"kind": "packages", "manager": "apt", "names": ["haproxy", "keepalived"]},
    )
    assert role().programs == ()


def test_the_version_that_runs_decides():
    path = "/etc/haproxy/haproxy.cfg"
    assert "idle-close-on-response" in haproxy(role())[path]["content"]
    old = role(evidence(haproxy="HAProxy version 2.4.3-abc 2021/08/17"))
    assert "idle-close-on-response" not in haproxy(old)[path]["content"]


def test_selinux_is_told_once():
    boolean = "/sys/fs/selinux/booleans/haproxy_connect_any"
    command = "command setsebool -P haproxy_connect_any on"
    assert command in by_name(role(evidence(**{boolean: "0 0"})))
    assert command not in by_name(role(evidence(**{boolean: "1 1"})))
    assert command not in by_name(role())


def test_a_router_that_loses_its_address_loses_keepalived():
    keepalived = by_name(role())["configuration keepalived.service"]
    assert keepalived["state"] == "absent"


def test_a_router_ends_drains_by_itself_and_takes_a_certificate_that_somebody_renews():
    units = "/etc/systemd/system"
    timer = "service apiary-router.timer"
    plain = role()
    assert by_name(plain)[timer]["state"] == "started"
    text = haproxy(plain)[f"{units}/apiary-router.service"]["content"]
    assert "/usr/libexec/apiary/haproxy.py expire\n" in text
    assert "find -P" not in text
    files = haproxy(role(router_tls_enabled=True, router_tls_path="/etc/ssl/router.pem"))
    assert (
        "find -P /etc/ssl/router.pem -newercm /run/haproxy/certificate;"
        in (files[f"{units}/apiary-router.service"]["content"])
    )
    # Every start and reload has taken the certificate that there is.
    drop_in = files[f"{units}/haproxy.service.d/50-apiary.conf"]["content"]
    assert drop_in.count("=-/bin/touch /run/haproxy/certificate\n") == 2
    absent = role(evidence(before={}), router_state="absent")
    assert next(iter(by_name(absent))) == timer
    assert by_name(absent)[timer]["enabled"] is False
    paths = [item["path"] for item in by_name(absent)["configuration haproxy.service"]["files"]]
    assert {f"{units}/apiary-router.timer", f"{units}/apiary-router.service"} < set(paths)


def test_an_absent_router_keeps_what_somebody_else_brought():
    plan = role(evidence(before={}), router_state="absent")
    files = by_name(plan)["configuration haproxy.service"]["files"]
    paths = [item["path"] for item in files]
    assert "/etc/haproxy/apiary/tls.pem" not in paths
    assert "/var/lib/haproxy/server-state" in paths
    assert {"/var/lib/haproxy/drain-deadlines", "/var/lib/haproxy/late-names"} <= {*paths}
    # The document comes after the states, which are ours while it is there.
    assert paths[-2:] == ["/etc/haproxy/apiary/router.json", "/etc/haproxy/haproxy.cfg"]
    gone = role(router_state="absent", router_tls_bundle="planted")
    paths = [item["path"] for item in by_name(gone)["configuration haproxy.service"]["files"]]
    assert "/etc/haproxy/apiary/tls.pem" in paths
    assert "/var/lib/haproxy/server-state" not in paths


@pytest.mark.parametrize(
    ("value", "shown"),
    [("old", {"a": "old"}), (["old", "new"], {"a": "old"}), ([], {}), (None, {})],
)
def test_routers_show_engines_the_first_of_their_keys(value, shown):
    deployments = [{"name": "a", "secrets": ["VLLM_API_KEY"]}, {"name": "b"}]
    host = {"apiary_deployments": deployments, "replicas_secrets": {"VLLM_API_KEY": value}}
    assert router_engine_keys(["gpu-001"], {"gpu-001": host}) == shown


def limit_and_findings(gib, **options):
    """Return the connections of an address at a router of so much memory, and what it is told."""
    host = evidence(**{"/proc/meminfo": f"MemTotal:  {int(gib * (1 << 20))} kB\n"})
    plan = role(host, **options)
    text = haproxy(plan)["/etc/haproxy/haproxy.cfg"]["content"]
    reported = [one for one in plan.findings if one.code in ("ROUTER-MEMORY", "ROUTER-BODY-LARGE")]
    return int(re.search(r"sc1_conn_cur gt (\d+) ", text)[1]), reported


def test_an_address_has_as_many_connections_as_half_of_the_memory_holds_requests():
    for gib, expected in (
        (1.9, 256),
        (7.7, 256),
        (15.5, 512),
        (62.5, 2048),
        (62.8, 2048),
        (503, 5000),
    ):
        several, reported = limit_and_findings(gib)
        assert several == expected
        assert [one.code for one in reported] == (["ROUTER-MEMORY"] if gib < 4 else [])
        assert several * (8 << 20) <= gib * (1 << 30) / 2 or reported
    several, [reported] = limit_and_findings(15.5, router_limits={"connections_per_source": 3000})
    assert several == 3000
    assert "3000 connections with 8 MiB each, 23.6 of this router's 15.5 GiB" in reported.message


def test_buffers_that_cost_twice_the_time_are_a_warning():
    for size, expected in ((33_488_896, []), (33_488_897, ["ROUTER-BODY-LARGE"])):
        _several, reported = limit_and_findings(503, router_limits={"body_bytes": size})
        assert [one.code for one in reported] == expected


ONLINE, SOMAXCONN = "/sys/devices/system/cpu/online", "/proc/sys/net/core/somaxconn"


@pytest.mark.parametrize(
    ("name", "threads", "expected"),
    [
        ("gpu-001", None, ["nbthread 4", "cpu-map all 0 32 64 96"]),
        ("gpu-001", 2, ["nbthread 2", "cpu-map all 0 32 64 96"]),
        # Nothing of another host's replicas is here.
        ("router-001", None, []),
    ],
)
def test_beside_replicas_a_router_has_the_cpus_that_they_leave(name, threads, expected):
    plan = demo_plan()
    cpus = ("1-31,65-95", "33-63,97-127")
    replicas = [replace(one, cpus=own) for one, own in zip(plan.replicas, cpus, strict=True)]
    plans = [PlannedHost("gpu-001", "10.0.0.1", replace(plan, replicas=tuple(replicas)))]
    host = replace(evidence(**{ONLINE: "0-127\n"}), host=name)
    text = haproxy(role(host, plans, router_threads=threads))["/etc/haproxy/haproxy.cfg"]["content"]
    lines = [line.strip() for line in text.splitlines()]
    assert [line for line in lines if line.startswith(("nbthread", "cpu-map"))] == expected


def test_replicas_that_take_every_cpu_leave_a_router_all():
    plan = demo_plan()
    replicas = [replace(one, cpus="0-127") for one in plan.replicas]
    plans = [PlannedHost("gpu-001", "10.0.0.1", replace(plan, replicas=tuple(replicas)))]
    host = replace(evidence(**{ONLINE: "0-127\n"}), host="gpu-001")
    assert "cpu-map" not in haproxy(role(host, plans))["/etc/haproxy/haproxy.cfg"]["content"]


def test_in_a_container_that_may_not_the_kernel_stays():
    host = evidence(**{SOMAXCONN: "4096", "/proc/mounts": "proc /proc/sys proc ro,nosuid 0 0\n"})
    assert by_name(role(host))["live /var/lib/apiary/router.json"]["settings"] == []


@pytest.mark.parametrize(
    ("found", "lines"),
    [("4096\n", ["net.core.somaxconn = 65535"]), ("131072\n", []), (None, [])],
)
def test_more_connections_may_wait_to_be_accepted_and_a_higher_limit_stays(found, lines):
    host = evidence(**({SOMAXCONN: found} if found else {}))
    made = by_name(role(host))
    content = made["file /etc/sysctl.d/90-apiary-router.conf"]["content"]
    assert content.splitlines()[1:] == lines
    values = made["live /var/lib/apiary/router.json"]["settings"]
    assert values == [{"path": SOMAXCONN, "value": "65535"}] * len(lines)
    gone = by_name(role(host, router_state="absent"))
    assert gone["file /etc/sysctl.d/90-apiary-router.conf"].get("content") is None


def test_a_table_of_connections_that_is_too_small_is_a_warning():
    table = "/proc/sys/net/netfilter/nf_conntrack_max"
    for found, connections, expected in (
        ("80000\n", 20_000, 0),
        ("79999\n", 20_000, 1),
        ("", 20_000, 0),
    ):
        plan = role(evidence(**{table: found}), router_connections=connections)
        reported = [one for one in plan.findings if one.code == "ROUTER-CONNTRACK"]
        assert len(reported) == expected
        assert all("nf_conntrack_max of the host to 80000" in one.remedy for one in reported)


def test_a_deployment_that_no_limit_protects_is_named():
    names = {
        queueing: [one.subject for one in plan.findings if one.code == "ROUTER-LIMIT-NONE"]
        for queueing in (None, "ttft_seconds", "within_slo")
        for plan in [
            role(**({"router_queueing": {queueing: {"qwen3-235b": 9}}} if queueing else {}))
        ]
    }
    assert names == {None: ["qwen3-235b"], "ttft_seconds": [], "within_slo": ["qwen3-235b"]}
