# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Prometheus and Alertmanager watch the lab: what they read, and what they call somebody for."""

import json
import os
import subprocess
import sys
import urllib.parse

import pytest

from .conftest import GPU_HOST, ROOT, VARIABLES, WEB, address, await_true, get, reach, refusal

WATCHER = sorted(name for name in VARIABLES if name.startswith("router-"))[-1]
PROMETHEUS = f"https://{address(WATCHER)}:9090"
ALERTMANAGER = f"https://{address(WATCHER)}:9093"
ETC = "/etc/prometheus/apiary"
JOBS = {"vllm", "haproxy", "amd-metrics", "node", "prometheus", "alertmanager"}
UNIT = "apiary-qwen3-235b-1.service"


@pytest.fixture(scope="module")
def watcher():
    return reach(WATCHER)


def api(path, **parameters):
    """What Prometheus says."""
    query = f"?{urllib.parse.urlencode(parameters)}" if parameters else ""
    return json.loads(get(f"{PROMETHEUS}/api/v1/{path}{query}"))["data"]


def series(query):
    """The series of an instant query."""
    return api("query", query=query)["result"]


def firing():
    """{alert: [labels]} of what Alertmanager would call somebody for."""
    found = {}
    for one in json.loads(get(f"{ALERTMANAGER}/api/v2/alerts?active=true")):
        found.setdefault(one["labels"]["alertname"], []).append(one["labels"])
    return found


def hardware(*faults):
    """Give the lab's host other hardware, as a fault would."""
    options = [word for fault in faults for word in ("--fault", fault)]
    lab = os.environ.get("APIARY_LAB", "demo")
    command = [sys.executable, ROOT / "tests/lab/lab.py", "hardware", "--name", lab, GPU_HOST]
    subprocess.run([*command, *options], check=True, stdout=subprocess.DEVNULL)


def test_every_target_is_up():
    def up():
        targets = api("targets")["activeTargets"]
        return {one["labels"]["job"] for one in targets if one["health"] == "up"} == JOBS and all(
            one["health"] == "up" for one in targets
        )

    await_true(up)


@pytest.mark.parametrize(
    ("selector", "labels"),
    [
        ('up{job="vllm"}', {"deployment", "host", "replica", "numa_node", "engine_version"}),
        ('up{job=~"node|amd-metrics|haproxy"}', {"host"}),
        (
            '{__name__=~"apiary:gpu_.+"}',
            {"host", "gpu", "gpu_id", "numa_node", "hive", "deployment", "replica"},
        ),
        (
            '{__name__=~"apiary:replica_.+|apiary:kv_cache_usage"}',
            {"deployment", "host", "replica"},
        ),
    ],
)
def test_every_series_says_where_it_is_from(selector, labels):
    found = await_true(lambda: series(selector))
    for one in found:
        assert labels <= set(one["metric"]), one


def test_gpus_are_told_by_bus_address_with_amds_numbers():
    found = await_true(lambda: series("apiary:gpu_power_watts"))
    by_address = {one["metric"]["gpu"]: one for one in found}
    assert len(by_address) == 8
    # The lab's GPUs draw one watt more each, in bus order.
    watts = [float(by_address[gpu]["value"][1]) for gpu in sorted(by_address)]
    assert watts == [watts[0] + number for number in range(8)]


# Prometheus spreads the first evaluation of a group over its interval; SLOs over days have minutes.
SOON_SECONDS = 60


def rules(wrong=False):
    """The rules of groups that are evaluated soon, or of all rules those that fail."""
    groups = api("rules")["groups"]
    if wrong:
        return [rule for group in groups for rule in group["rules"] if rule["health"] == "err"]
    return [rule for one in groups if one["interval"] <= SOON_SECONDS for rule in one["rules"]]


def test_rules_are_loaded_and_none_fails():
    loaded = await_true(rules)
    assert {rule["type"] for rule in loaded} == {"recording", "alerting"}
    await_true(lambda: all(rule["health"] != "unknown" for rule in rules()))
    assert {rule["name"]: rule["lastError"] for rule in rules(wrong=True)} == {}


def called(watcher):
    """{alert: the header that told who calls} of what reached the one on call."""
    lines = watcher.run("cat /run/on-call.jsonl").stdout.splitlines()
    return {
        one["labels"]["alertname"]: told["authorization"]
        for told in map(json.loads, lines)
        for one in told["body"]["alerts"]
        if one["status"] == "firing"
    }


def test_faults_call_somebody_with_the_place_and_the_replica(gpu_host, watcher):
    gpu_host.check_output("sysctl -qw kernel.numa_balancing=1")
    gpu_host.check_output(f"systemctl stop {UNIT}")
    hardware("missing=3")
    wanted = {
        "GpuLost": {"host": GPU_HOST, "severity": "critical"},
        "NumaBalancingOn": {"host": GPU_HOST, "severity": "warning"},
        "ReplicaDown": {
            "host": GPU_HOST,
            "deployment": "qwen3-235b",
            "replica": "1",
            "numa_node": "1",
        },
    }

    def seen(name):
        return any(wanted[name].items() <= labels.items() for labels in firing().get(name, []))

    try:
        for name in wanted:
            await_true(lambda name=name: seen(name), seconds=120)
        told = await_true(lambda: wanted.keys() <= (found := called(watcher)).keys() and found)
        secret = watcher.file(f"{ETC}/secrets/on-call").content_string
        assert {told[name] for name in wanted} == {f"Bearer {secret}"}
        gone = series("apiary_planned_gpu_present == 0")
        assert [one["metric"]["gpu"] for one in gone] == ["0000:65:00.0"]
        # The one behind it has the number of the one that is gone now, and still its own address.
        moved = series('apiary:gpu_power_watts{gpu="0000:85:00.0"}')
        assert [one["metric"]["gpu_id"] for one in moved] == ["3"]
        assert [one["metric"]["replica"] for one in moved] == ["1"]
    finally:
        hardware()
        gpu_host.check_output("sysctl -qw kernel.numa_balancing=0")
        gpu_host.check_output(f"systemctl start --no-block {UNIT}")
    await_true(lambda: not any(seen(name) for name in wanted), seconds=240)


def test_a_wrong_configuration_changes_nothing(watcher):
    path = f"{ETC}/prometheus.yml"
    before = watcher.file(path).content_string
    resource = {
        "kind": "configuration",
        "service": "prometheus.service",
        "main": path,
        "check": ["promtool", "check", "config"],
        "files": [{"path": path, "content": "# Managed by Apiary\nrule_files: [rules/none.yml]\n"}],
        "area": "MONITORING",
    }
    command = ["ansible", "-i", "inventory/lab", WATCHER, "--become"]
    command += ["-m", "apiary.instinct.converge", "-a", json.dumps({"resources": [resource]})]
    # Molecule's own configuration is not the operator's.
    clean = {key: value for key, value in os.environ.items() if not key.startswith("ANSIBLE_")}
    refused = subprocess.run(
        command, cwd=ROOT, env=clean, capture_output=True, text=True, check=False
    )
    assert "MONITORING-CONFIG" in refused.stdout, refused.stdout
    assert watcher.file(path).content_string == before
    assert series("prometheus_config_last_reload_successful")[0]["value"][1] == "1"


def test_secrets_are_for_alertmanager_alone(watcher):
    secret = watcher.file(f"{ETC}/secrets/on-call")
    assert (secret.user, secret.mode) == ("prometheus", 0o600)
    assert watcher.file(f"{ETC}/secrets").mode == 0o700
    text = secret.content_string
    assert watcher.run("grep -r %s %s/*.yml /etc/systemd/system", text, ETC).rc == 1


@pytest.mark.parametrize(
    "url",
    [
        f"{PROMETHEUS}/api/v1/query?query=up",
        f"{ALERTMANAGER}/api/v2/alerts",
        f"https://{address(GPU_HOST)}:9100/metrics",
    ],
)
def test_nobody_is_answered_without_the_password(url):
    assert refusal(url) == 401
    # Go's server says that it was asked by plain HTTP.
    assert refusal(url.replace("https:", "http:")) == 400


def test_passwords_and_keys_are_in_their_own_files_alone(watcher, gpu_host):
    secrets = f"{ETC}/secrets"
    for password in ("node.password", "monitoring.password"):
        search = (
            f"grep --recursive --files-with-matches --fixed-strings --file={secrets}/{password}"
        )
        found = watcher.run(f"{search} /etc /var/log /run/log /run/systemd 2>/dev/null").stdout
        grafana = "/etc/grafana/apiary-monitoring.password"
        own = {f"{secrets}/{password}"} | ({grafana} if password in grafana else set())
        assert set(found.split()) == own
        assert not watcher.run(f"{search} /proc/[0-9]*/cmdline 2>/dev/null").stdout
        assert watcher.run(f"journalctl -o cat | grep -cFf {secrets}/{password}").stdout == "0\n"
    for name in ("web.pem", "web.yml"):
        own = watcher.file(f"{secrets}/{name}")
        assert (own.user, own.mode) == ("prometheus", 0o600)
        own = gpu_host.file(f"/etc/apiary/web/{name}")
        assert (own.user, own.group, own.mode) == ("root", "apiary-web", 0o640)
    # Those who are read have no password, only what it is compared with.
    assert not gpu_host.file(ETC).exists


def test_a_new_password_and_certificate_are_taken_without_a_restart_and_shown_to_nobody(watcher):
    """The operator's way: the files go, and the playbook runs."""
    before = {path.name: path.read_text() for path in WEB.iterdir()}
    started = "systemctl show -P ActiveEnterTimestampMonotonic prometheus prometheus-alertmanager"
    since = watcher.check_output(started)
    for name in ("node.password", "node.hash", f"{GPU_HOST}-telemetry.pem"):
        (WEB / name).unlink()
    clean = {key: value for key, value in os.environ.items() if not key.startswith("ANSIBLE_")}
    clean["MOLECULE_PROJECT_DIRECTORY"] = str(ROOT)
    play = [
        "ansible-playbook",
        "-i",
        "inventory/lab",
        "extensions/molecule/monitoring/converge.yml",
    ]
    done = subprocess.run(
        [*play, "--diff", "-vvv"], cwd=ROOT, env=clean, capture_output=True, text=True, check=False
    )
    said = done.stdout + done.stderr
    assert done.returncode == 0, said
    after = {path.name: path.read_text() for path in WEB.iterdir()}
    assert after["node.password"] != before["node.password"]
    for texts in (before, after):
        for name, text in texts.items():
            if name.endswith(("password", "hash", ".key")):
                assert text.strip() not in said, name
    assert "PRIVATE KEY" not in said
    assert watcher.check_output(started) == since
    await_true(lambda: [one["value"][1] for one in series('min(up{job="node"})')] == ["1"])


def test_programs_listen_on_one_address(watcher):
    places = [line.split()[3] for line in watcher.check_output("ss -ltnH").splitlines()]
    for port in (9090, 9093):
        assert [one for one in places if one.endswith(f":{port}")] == [f"{address(WATCHER)}:{port}"]
    assert not [one for one in places if one.endswith(":9094")]


def test_dashboards_are_where_grafana_looks(watcher):
    boards = watcher.check_output("ls /var/lib/grafana/dashboards/apiary").split()
    assert len(boards) == 4
    for board in boards:
        json.loads(watcher.file(f"/var/lib/grafana/dashboards/apiary/{board}").content_string)
