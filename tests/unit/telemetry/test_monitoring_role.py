# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the role monitoring makes of a host, by its options and the host's evidence."""

import dataclasses

import pytest
import yaml
from ansible_collections.apiary.instinct.plugins.module_utils.resources.converge import items
from ansible_collections.apiary.instinct.plugins.plugin_utils.documents import dumps
from ansible_collections.apiary.instinct.plugins.plugin_utils.evidence.types import (
    CommandOutput,
    Evidence,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.host.role_options import read_role
from ansible_collections.apiary.instinct.plugins.plugin_utils.telemetry.monitoring_role import (
    decide,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.telemetry.plan import telemetry_plan
from ansible_collections.apiary.instinct.plugins.plugin_utils.telemetry.types import (
    MonitoredHost,
    TelemetrySettings,
)

HOSTS = [MonitoredHost("gpu-001", "192.0.2.11")]
PROGRAMS = {"/usr/bin/prometheus": "2.42.0+ds", "/usr/bin/prometheus-alertmanager": "0.25.0"}


def evidence(programs=True):
    """A Debian host, with the programs or without."""
    commands = {
        path: CommandOutput((), 0, f"name, version {version} (branch: x)\n", "", 0.0)
        for path, version in PROGRAMS.items()
        if programs
    }
    return Evidence("monitor-001", "", "2", commands, {"/etc/os-release": "ID=debian\n"})


def role(host=None, **options):
    defaults = {
        **read_role("monitoring").defaults,
        "monitoring_listen": "192.0.2.9",
        "monitoring_grafana_prometheus": "https://192.0.2.9:9090",
    }
    return decide({**defaults, **options}, host or evidence(), HOSTS)


def by_name(plan):
    checked = items([dict(item) for item in plan.resources])
    return {item.name: item.options for item in checked}


def flags(plan, unit="prometheus-alertmanager.service"):
    files = by_name(plan)[f"configuration {unit}"]["files"]
    [line] = [
        line for line in files[0]["content"].splitlines() if line.startswith("ExecStart=/usr")
    ]
    return line.split()


def test_the_files_are_those_of_the_plan():
    settings = TelemetrySettings(
        alertmanagers=("192.0.2.9:9093",),
        prometheuses=("192.0.2.9:9090",),
        web="/etc/prometheus/apiary/secrets",
    )
    expected = telemetry_plan(HOSTS, settings).files
    resources = by_name(role())
    files = {
        file["path"].removeprefix("/etc/prometheus/apiary/"): file["content"]
        for name in ("prometheus.service", "prometheus-alertmanager.service")
        for file in resources[f"configuration {name}"]["files"][1:]
    }
    assert files == expected


def test_on_an_rpm_host_dnf_brings_what_its_repository_names():
    bare = evidence(programs=False)
    rpm = dataclasses.replace(bare, files={"/etc/os-release": 'ID="rhel"\nVERSION_ID="9.6"\n'})
    names = {
        "monitoring_packages": ["golang-github-prometheus"],
        "monitoring_alertmanager_unit": "alertmanager.service",
        "monitoring_prometheus_program": "/usr/local/bin/prometheus",
    }
    plan = role(rpm, **names)
    (brought,) = [item for item in plan.programs if item["kind"] == "packages"]
    assert (brought["manager"], brought["names"]) == ("dnf", names["monitoring_packages"])
    units = {name for name in by_name(plan) if name.startswith("configuration ")}
    assert units == {"configuration prometheus.service", "configuration alertmanager.service"}
    assert flags(plan, "prometheus.service")[0] == "ExecStart=/usr/local/bin/prometheus"
    (plain,) = [item for item in role(bare).programs if item["kind"] == "packages"]
    assert plain["manager"] == "apt"


def test_alertmanagers_of_others_get_no_password():
    prometheus = by_name(role(monitoring_alertmanagers=["192.0.2.50:9093"]))
    [text] = [
        file["content"]
        for file in prometheus["configuration prometheus.service"]["files"]
        if file["path"].endswith("prometheus.yml")
    ]
    document = yaml.safe_load(text)
    [alerts] = document["alerting"]["alertmanagers"]
    [job] = [job for job in document["scrape_configs"] if job["job_name"] == "alertmanager"]
    assert {"scheme", "basic_auth"} & {*alerts, *job} == set()


def test_programs_come_after_their_options():
    programs = role(evidence(programs=False)).programs
    assert [item["kind"] for item in programs] == ["file", "file", "packages"]
    assert programs[2]["names"] == ["prometheus", "prometheus-alertmanager"]
    assert role().programs == ()
    assert len(role(evidence(programs=False), monitoring_packages=[]).programs) == 2


@pytest.mark.parametrize(
    ("listen", "peers", "expected"),
    [
        ("192.0.2.9", [], ["--web.listen-address=192.0.2.9:9093", "--cluster.listen-address="]),
        ("2001:db8::1", [], ["--web.listen-address=[2001:db8::1]:9093"]),
        (
            "192.0.2.9",
            ["192.0.2.9", "2001:db8::2"],
            ["--cluster.listen-address=192.0.2.9:9094", "--cluster.peer=[2001:db8::2]:9094"],
        ),
    ],
)
def test_several_alertmanagers_share_what_they_sent(listen, peers, expected):
    words = flags(role(monitoring_listen=listen, monitoring_peers=peers))
    assert set(expected) <= set(words)


def test_who_listens_everywhere_is_asked_on_loopback():
    prometheus = by_name(role(monitoring_listen="0.0.0.0"))["configuration prometheus.service"]
    assert prometheus["confirm_url"] == "https://127.0.0.1:9090/api/v1/status/runtimeinfo"
    [config] = [
        file["content"] for file in prometheus["files"] if file["path"].endswith("prometheus.yml")
    ]
    [alerting] = yaml.safe_load(config)["alerting"]["alertmanagers"]
    assert alerting["static_configs"][0]["targets"] == ["127.0.0.1:9093"]


def test_secrets_are_references_and_others_are_removed():
    receiver = {"name": "mail", "kind": "webhook", "url": "https://alerts.example.org"}
    receiver["secret_file"] = "/etc/prometheus/apiary/secrets/by-hand"  # noqa: S105 - a path
    plan = role(monitoring_secrets={"on-call": "planted"}, monitoring_receivers=[receiver])
    resources = by_name(plan)
    assert "planted" not in dumps(plan)
    assert resources["file /etc/prometheus/apiary/secrets/on-call"]["secret"] == "on-call"  # noqa: S105
    directory = resources["directory /etc/prometheus/apiary/secrets"]
    own = [
        "authority.pem",
        "client.yml",
        "monitoring.password",
        "node.password",
        "web.pem",
        "web.yml",
    ]
    assert (directory["purge"], directory["keep"]) == ("*", sorted([*own, "by-hand", "on-call"]))
    plain = by_name(role(monitoring_web_enabled=False))
    assert plain["directory /etc/prometheus/apiary/secrets"]["keep"] == []


def test_without_tls_nobody_wants_a_password():
    plan = role(monitoring_web_enabled=False)
    assert not any("web.config" in word for word in flags(plan))
    prometheus = by_name(plan)["configuration prometheus.service"]
    assert prometheus["confirm_url"].startswith("http://")
    assert "https" not in dumps(plan)


@pytest.mark.parametrize("unit", ["", "grafana-server.service"])
def test_grafana_gets_its_data_source_and_dashboards(unit):
    resources = by_name(role(monitoring_grafana=True, monitoring_grafana_unit=unit))
    source = "/etc/grafana/provisioning/datasources/apiary.yml"
    if unit:
        text = resources[f"configuration {unit}"]["files"][0]["content"]
    else:
        text = resources[f"file {source}"]["content"]
    [data] = yaml.safe_load(text)["datasources"]
    assert data["url"] == "https://192.0.2.9:9090"
    assert data["jsonData"] == {"timeInterval": "15s", "tlsAuthWithCACert": True}
    assert data["basicAuthUser"] == "apiary"
    path = "/etc/grafana/apiary-monitoring.password"
    assert data["secureJsonData"]["basicAuthPassword"] == f"$__file{{{path}}}"
    password = resources[f"file {path}"]
    assert (password["secret"], password["mode"]) == ("monitoring.password", "0640")
    assert password["group"] == ("grafana" if unit else None)
    boards = resources["directory /var/lib/grafana/dashboards/apiary"]
    assert boards["keep"]
    assert all(f"file {boards['path']}/{name}" in resources for name in boards["keep"])


def test_grafana_restarts_for_another_password_or_authority():
    """It reads what `$__file` names when it starts, and its own files do not change."""
    resources = by_name(role(monitoring_grafana=True))
    names = list(resources)
    restart = resources["command systemctl try-restart grafana-server.service"]
    places = [
        "file /etc/grafana/apiary-authority.pem",
        "file /etc/grafana/apiary-monitoring.password",
    ]
    assert sorted(restart["after"]) == places
    # Before the service's own: one that starts anew has read them.
    order = [*places, "command systemctl try-restart grafana-server.service"]
    assert [name for name in names if name in order][-1] == order[-1]
    assert names[-1] == "configuration grafana-server.service"
    for options in ({"monitoring_web_enabled": False}, {"monitoring_grafana_unit": ""}):
        assert not any(
            "try-restart" in name for name in by_name(role(monitoring_grafana=True, **options))
        )


def test_an_absent_watcher_keeps_nothing_of_the_role():
    resources = by_name(role(monitoring_state="absent"))
    assert list(resources)[-1] == "directory /etc/prometheus/apiary"
    states = [item["state"] for name, item in resources.items() if not name.startswith("file ")]
    assert set(states) == {"absent"}
