# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which exporters a host gets, and what they are told."""

import dataclasses
import json
import shutil
import subprocess

import pytest
from ansible_collections.apiary.instinct.plugins.module_utils.resources.converge import items
from ansible_collections.apiary.instinct.plugins.plugin_utils.documents import (
    from_document,
    knowledge,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.evidence.types import (
    CommandOutput,
    Evidence,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.findings import ApiaryError
from ansible_collections.apiary.instinct.plugins.plugin_utils.host.telemetry import Settings, decide

from support.roles import decide_role
from support.topology.simulated import simulated_evidence

SYSTEMS = {
    "ubuntu": 'ID=ubuntu\nVERSION_ID="24.04"\nPRETTY_NAME="Ubuntu 24.04"\n',
    "debian": 'ID=debian\nVERSION_ID="12"\nPRETTY_NAME="Debian 12"\n',
    "rhel": 'ID=rhel\nVERSION_ID="9.6"\nPRETTY_NAME="RHEL 9.6"\n',
    "arch": 'ID=arch\nPRETTY_NAME="Arch"\n',
}
DIGEST = "sha256:" + "ab" * 32
NODE, TIMER = "prometheus-node-exporter.service", "apiary-telemetry.timer"


@pytest.fixture(scope="module")
def seven():
    """Evidence of a host whose board lost a GPU."""
    return simulated_evidence("missing=3")


@pytest.fixture(scope="module")
def bundle():
    return simulated_evidence()


@pytest.fixture
def evidence(bundle):
    def of(system, document=bundle):
        found = from_document(Evidence, {**document, "host": "gpu-001"}, "evidence")
        files = {**found.files, "/etc/os-release": SYSTEMS[system]}
        return dataclasses.replace(found, files=files)

    return of


def files(plan):
    """{path: text} of everything that is to be there."""
    services = (plan.node, *plan.amd, plan.textfile)
    return {item.path: item.content for service in services for item in service.files}


def test_ubuntu_gets_amds_package_and_others_a_container(evidence):
    assert decide(Settings(), evidence("ubuntu")).method == "package"
    assert decide(Settings(amd_digest=DIGEST), evidence("debian")).method == "container"
    assert decide(Settings(amd_digest=DIGEST), evidence("rhel")).method == "container"
    assert decide(Settings(gpu_host=False), evidence("ubuntu")).method == "none"
    assert decide(Settings(amd_method="none"), evidence("ubuntu")).method == "none"


def test_an_image_without_a_digest_is_not_run_and_that_is_told(evidence):
    plan = decide(Settings(listen="192.0.2.1"), evidence("debian"))
    assert plan.method == "none"
    assert [one.code for one in plan.findings] == ["MONITORING-IMAGE"]


@pytest.mark.parametrize(
    ("given", "system", "code"),
    [
        ({"amd_version": "1.5.0"}, "ubuntu", "MONITORING-FLOOR"),
        ({"amd_version": "1.4.2", "amd_digest": DIGEST}, "rhel", "MONITORING-FLOOR"),
        ({"amd_method": "package"}, "debian", "MONITORING-SYSTEM"),
        ({}, "arch", "MONITORING-SYSTEM"),
    ],
)
def test_what_cannot_be_right_is_refused(evidence, given, system, code):
    with pytest.raises(ApiaryError) as refused:
        decide(Settings(**given), evidence(system))
    assert [one.code for one in refused.value.findings] == [code]


def test_loopback_is_told(evidence):
    plan = decide(Settings(), evidence("ubuntu"))
    assert [one.code for one in plan.findings] == ["MONITORING-LOOPBACK"]
    assert not decide(Settings(listen="10.0.0.1"), evidence("ubuntu")).findings


def test_the_repository_is_pinned_and_its_key_known(evidence):
    resources = named(decide(Settings(), evidence("ubuntu")))
    found = resources["repository amd-exporter"]
    texts = "".join(one["content"] for one in found["files"])
    assert "https://repo.radeon.com/device-metrics-exporter/apt/1.5.4" in texts
    assert "Suites: noble" in texts
    assert "Pin: version 1.5.4*" in texts
    (key,) = found["keys"]
    assert key["fingerprint"] == knowledge("host/rocm/streams.yml")["driver"]["key"]["fingerprint"]
    assert f"Signed-By: {key['path']}" in texts
    assert resources["transaction amd-exporter"]["install"] == [["amdgpu-exporter=1.5.4*"]]


def test_the_exporter_profiles_nothing_and_exports_what_is_read(evidence):
    config = json.loads(files(decide(Settings(), evidence("ubuntu")))["/etc/metrics/config.json"])
    assert config["GPUConfig"]["ProfilerMetrics"] == {"all": False}
    assert config["CommonConfig"]["MetricsFieldPrefix"] == "amd_"
    assert not any(name.startswith("GPU_PROF") for name in config["GPUConfig"]["Fields"])
    exported = {f"amd_{name.lower()}" for name in config["GPUConfig"]["Fields"]}
    wanted = {one["name"] for one in knowledge("telemetry/amd.yml")["series"]}
    assert wanted <= exported


def test_everything_listens_on_the_address_alone(evidence):
    for listen, told in (("192.0.2.1", "192.0.2.1"), ("2001:db8::1", "[2001:db8::1]")):
        package = files(decide(Settings(listen=listen), evidence("ubuntu")))
        unit = package[f"/etc/systemd/system/{NODE}.d/50-apiary.conf"]
        assert f"--web.listen-address={told}:9100" in unit
        drop_in = "/etc/systemd/system/amd-metrics-exporter.service.d/50-apiary.conf"
        assert f"-bind {listen} " in package[drop_in]
        settings = Settings(listen=listen, amd_digest=DIGEST)
        container = files(decide(settings, evidence("rhel")))
        text = container["/etc/systemd/system/apiary-amd-exporter.service"]
        assert f"--publish={told}:5000:5000" in text


def test_the_container_has_the_gpus_and_no_other_rights(evidence):
    path = "/etc/systemd/system/apiary-amd-exporter.service"
    least = files(decide(Settings(amd_digest=DIGEST), evidence("rhel")))[path]
    assert "--privileged" not in least
    for word in ("--cap-drop=ALL", "--device=/dev/kfd", "--volume=/sys:/sys:ro", f"@{DIGEST}"):
        assert word in least
    most = Settings(amd_digest=DIGEST, amd_privileged=True, amd_engine="docker")
    text = files(decide(most, evidence("rhel")))[path]
    assert "--privileged" in text
    assert "ExecStart=/usr/bin/docker run" in text


def test_another_method_takes_the_former_one_back(evidence):
    package = decide(Settings(amd_digest=DIGEST), evidence("ubuntu"))
    assert [one.unit for one in package.absent] == ["apiary-amd-exporter.service"]
    container = decide(Settings(amd_method="container", amd_digest=DIGEST), evidence("ubuntu"))
    gone = [one.unit for one in container.absent]
    assert gone == ["amd-metrics-exporter.service", "gpuagent.service"]


def test_a_host_is_to_have_what_its_board_carries(evidence, seven):
    assert decide(Settings(), evidence("ubuntu", seven)).expected["gpus"] == 8
    assert decide(Settings(gpus=4), evidence("ubuntu", seven)).expected["gpus"] == 4


def test_the_driver_is_compared_by_the_version_that_its_module_reports(evidence):
    def driver(release):
        return decide(Settings(driver_version=release), evidence("ubuntu")).expected["driver"]

    assert driver("30.30.4") == "6.16.13"
    assert driver(None) is None
    assert driver("no such") is None


def test_a_router_is_asked_nothing_of_gpus(evidence):
    plan = decide(Settings(gpu_host=False), evidence("debian"))
    assert plan.expected["gpu_host"] is False
    assert not plan.amd
    assert not plan.absent


@pytest.mark.parametrize("system", ["ubuntu", "debian", "rhel"])
def test_what_is_written_says_whose_it_is(evidence, system):
    plan = decide(Settings(amd_digest=DIGEST), evidence(system))
    for service in (plan.node, *plan.amd, plan.textfile, *plan.absent):
        main = next(item for item in service.files if item.path == service.main)
        assert "Managed by Apiary" in main.content


def test_systemd_takes_the_units_and_calls_them_safe(evidence, tmp_path):
    analyze = shutil.which("systemd-analyze")
    if not analyze:
        pytest.skip("systemd-analyze is not installed")
    texts = files(decide(Settings(python="/usr/bin/python3"), evidence("ubuntu")))
    for name in ("apiary-telemetry.service", TIMER):
        (tmp_path / name).write_text(texts[f"/etc/systemd/system/{name}"])
    service = tmp_path / "apiary-telemetry.service"
    verified = subprocess.run(
        [analyze, "verify", "--man=no", tmp_path / TIMER],
        capture_output=True,
        text=True,
        check=False,
    )
    assert not [line for line in verified.stderr.splitlines() if "apiary-telemetry" in line]
    judged = subprocess.run(
        [analyze, "security", "--offline=true", "--threshold=20", "--no-pager", service],
        capture_output=True,
        text=True,
        check=False,
    )
    assert judged.returncode == 0, judged.stdout


def named(plan):
    checked = items([dict(item) for item in plan.resources])
    return {item.name: item.options for item in checked}


def with_exporters(evidence, stdout):
    output = CommandOutput((), 0 if stdout else 2, stdout, "", 0.0)
    return dataclasses.replace(evidence, commands={**evidence.commands, "exporters": output})


def test_the_resources_are_the_services_of_the_plan(evidence):
    plan = decide(Settings(listen="10.0.0.1"), evidence("ubuntu"))
    resources = named(plan)
    services = (plan.node, plan.textfile, *plan.amd)
    configured = [
        name.removeprefix("configuration ")
        for name, item in resources.items()
        if name.startswith("configuration") and item["state"] == "present"
    ]
    assert configured == [service.unit for service in services]
    for service in services:
        listed = resources[f"configuration {service.unit}"]["files"]
        assert {(item["path"], item["mode"], item["content"]) for item in listed} == {
            (item.path, item.mode, item.content) for item in service.files
        }
    names = list(resources)
    repository = names.index("repository amd-exporter")
    assert names[repository + 1] == "transaction amd-exporter"
    assert names[-1] == f"configuration {plan.amd[-1].unit}"


def kinds(evidence):
    return [item["kind"] for item in decide(Settings(gpu_host=False), evidence).resources][:3]


def test_flags_are_there_before_a_package_starts_its_service(evidence):
    host = evidence("debian")
    assert kinds(with_exporters(host, "")) == ["file", "packages", "directory"]
    there = with_exporters(host, "/usr/bin/prometheus-node-exporter\n")
    assert kinds(there)[0] == "directory"
    # Evidence of an earlier time does not say: the package manager knows.
    assert kinds(host) == ["packages", "directory", "configuration"]


def test_another_method_s_files_go_but_for_those_that_are_used(evidence):
    resources = named(decide(Settings(amd_digest=DIGEST), evidence("debian")))
    packaged = resources["configuration amd-metrics-exporter.service"]
    assert packaged["state"] == "absent"
    container = next(name for name in resources if "apiary-amd" in name)
    assert resources[container]["state"] == "present"
    paths = {item["path"] for item in packaged["files"]}
    assert not paths & {item["path"] for item in resources[container]["files"]}


def test_absent_takes_every_service_and_the_repository(evidence):
    plan = decide(Settings(state="absent"), evidence("ubuntu"))
    resources = named(plan)
    assert not [name for name in resources if name.startswith("repository")]
    assert "file /etc/apt/sources.list.d/apiary-amd-exporter.sources" in resources
    services = [item for name, item in resources.items() if name.startswith("configuration")]
    assert {item["state"] for item in services} == {"absent"}
    assert resources["directory /etc/apt/keyrings"]["purge"] == "apiary-amd-exporter.gpg"


def test_driver_and_boot_arguments_are_those_that_the_host_s_own_roles_decide(bundle):
    files = {**bundle["files"], "/etc/os-release": SYSTEMS["ubuntu"]}
    evidence = {**bundle, "host": "gpu-001", "files": files}
    told = {
        "telemetry_driver_version": decide_role("rocm", {}, evidence=evidence, refuse=False)[
            "plan"
        ]["driver_version"],
        "telemetry_arguments": decide_role("host_tuning", {}, evidence=evidence, refuse=False)[
            "plan"
        ]["arguments"],
    }
    assert all(told.values())
    decided = [
        decide_role("telemetry", variables, evidence=evidence)["plan"]
        for variables in ({}, told, {"telemetry_driver_version": "6.14.14"})
    ]
    assert decided[0] == decided[1] != decided[2]
