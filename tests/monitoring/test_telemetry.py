# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What hosts tell of themselves once the role telemetry ran: who listens where, and says what."""

import json

import pytest

from .conftest import AMD, GPU_HOST, NODE, ROUTER, address, await_true, metrics, reach

SERVICES = ("prometheus-node-exporter.service", "gpuagent.service", "amd-metrics-exporter.service")


@pytest.mark.parametrize("service", [*SERVICES, "apiary-telemetry.timer"])
def test_it_runs_and_does_so_after_a_boot(gpu_host, service):
    assert gpu_host.service(service).is_running
    assert gpu_host.service(service).is_enabled


@pytest.mark.parametrize(("name", "ports"), [(GPU_HOST, {NODE, AMD}), (ROUTER, {NODE})])
def test_exporters_listen_on_one_address_alone(name, ports):
    listed = reach(name).check_output("ss -ltnH")
    places = [line.split()[3] for line in listed.splitlines()]
    for port in ports:
        assert [one for one in places if one.endswith(f":{port}")] == [f"{address(name)}:{port}"]


def test_every_gpu_has_an_address_a_node_and_its_numbers():
    rows = [labels for labels, _one in metrics(GPU_HOST, NODE)["apiary_gpu_info"]]
    told = metrics(GPU_HOST, AMD)
    assert len(rows) == 8
    for row in rows:
        same = [
            labels
            for labels, _watts in told["amd_gpu_package_power"]
            if labels["gpu_id"] == row["gpu_id"]
        ]
        assert [one["serial_number"] for one in same] == [row["serial_number"]]


def test_the_exporters_collect_what_alerts_need():
    told = metrics(GPU_HOST, NODE)
    for name in (
        "apiary_gpus_expected",
        "apiary_driver_info",
        "apiary_cmdline_as_expected",
        "apiary_numa_balancing",
        "node_systemd_unit_state",
        "node_vmstat_oom_kill",
        "node_filesystem_readonly",
        "node_pressure_memory_stalled_seconds_total",
    ):
        assert name in told, name
    scrapes = {labels["collector"] for labels, up in told["node_scrape_collector_success"] if up}
    assert {"systemd", "textfile", "edac"} <= scrapes


def test_a_fault_is_told_within_seconds(gpu_host):
    ras = "/sys/bus/pci/devices/0000:26:00.0/ras/umc_err_count"
    before = gpu_host.check_output(f"cat {ras}")

    def uncorrectable():
        told = metrics(GPU_HOST, NODE)["apiary_gpu_ras_errors_total"]
        return [
            value
            for labels, value in told
            if labels == {"gpu": "0000:26:00.0", "kind": "uncorrectable"}
        ]

    gpu_host.check_output(f"printf 'ue: 5\\nce: 0\\n' > {ras}")
    try:
        await_true(lambda: uncorrectable() == [5])
    finally:
        gpu_host.check_output(f"printf '{before}\\n' > {ras}")
    await_true(lambda: uncorrectable() == [0])


def test_the_former_exporter_was_replaced_and_its_version_is_pinned(gpu_host):
    installed = gpu_host.check_output("dpkg-query -W -f '${Version}' amdgpu-exporter")
    assert installed.startswith("1.5.4")
    policy = gpu_host.check_output("apt-cache policy amdgpu-exporter")
    assert "1001" in policy
    config = json.loads(gpu_host.file("/etc/metrics/config.json").content_string)
    assert config["GPUConfig"]["ProfilerMetrics"] == {"all": False}


def test_the_timer_writes_with_few_rights(gpu_host):
    judged = gpu_host.run("systemd-analyze security --threshold=20 apiary-telemetry.service")
    assert judged.rc == 0, judged.stdout
    assert gpu_host.file("/var/lib/prometheus/node-exporter/apiary.prom").mode == 0o644
    left = gpu_host.check_output("ls -A /var/lib/prometheus/node-exporter")
    assert left.split() == ["apiary.prom"]


def test_a_router_tells_nothing_of_gpus():
    told = metrics(ROUTER, NODE)
    assert "apiary_textfile_written_seconds" in told
    assert "apiary_gpus_present" not in told
