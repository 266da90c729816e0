# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The collector: what it keeps, what it leaves out, and that a faulty host is seen as it is."""

import json
import os
import resource
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from ansible_collections.apiary.instinct.plugins.module_utils.evidence import gpu as evidence
from ansible_collections.apiary.instinct.plugins.module_utils.evidence import sources
from ansible_collections.apiary.instinct.plugins.plugin_utils.documents import (
    from_document,
    knowledge,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.evidence.types import Evidence
from ansible_collections.apiary.instinct.plugins.plugin_utils.host.program import standalone
from ansible_collections.apiary.instinct.plugins.plugin_utils.topology.read import from_evidence

from support.topology.simulated import absent, simulated_evidence
from tests.support.printers import machine as printers

ROOT = Path(__file__).parents[3]
FOLDER = ROOT / "plugins/module_utils/evidence"
GPU = knowledge("evidence.yml")["gpu"]
COMMANDS = sources.listed(GPU["commands"])
PROGRAM = f"{standalone(FOLDER / 'gpu.py')}\nmain({json.dumps(GPU)!r})\n"


def write(root, path, text):
    file = root / path.lstrip("/")
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(text if isinstance(text, bytes) else text.encode())


def recorded(answers):
    """A runner that answers by the beginning of the argv, and the argvs it was given.

    A tool that has an answer is installed; it refuses every other option.
    """
    calls = []

    def run(argv):
        calls.append(argv)
        for words, answer in answers.items():
            if argv[: len(words)] == list(words):
                return answer
        installed = argv[0] in {words[0] for words in answers}
        return (2, b"", b"usage: ...", None) if installed else absent(argv)

    return run, calls


def test_the_document_is_evidence():
    document = json.loads(json.dumps(simulated_evidence()))
    checked = from_document(Evidence, document, "gpu-001")
    assert document["schema"] == Evidence.SCHEMA
    assert checked.collected_at.endswith("Z")
    assert "." not in checked.host


def test_content_is_verbatim(tmp_path):
    path = "/sys/class/kfd/kfd/topology/nodes/2/properties"
    write(tmp_path, path, "simd_count 1216\n\n  odd \n")
    assert (
        evidence.collect(GPU, absent, str(tmp_path))["files"][path] == "simd_count 1216\n\n  odd \n"
    )


def test_figures_of_engines_are_taken_and_nothing_that_their_account_points_to(tmp_path):
    write(tmp_path, "/etc/shadow", "root:secret")
    for unit in "abcd":
        (tmp_path / "run/apiary" / unit).mkdir(parents=True)
    write(tmp_path, "/run/apiary/a/figures.json", "{}")
    (tmp_path / "run/apiary/b/figures.json").symlink_to(tmp_path / "etc/shadow")
    os.mkfifo(tmp_path / "run/apiary/c/figures.json")
    write(tmp_path, "/run/apiary/d/figures.json", "x" * 5000)
    files = evidence.collect(GPU, absent, str(tmp_path))["files"]
    found = {path[12]: text for path, text in files.items() if path.startswith("/run/apiary/")}
    assert found == {"a": "{}", "c": "", "d": "x" * sources.RECORD_BYTES}


def test_bytes_that_are_no_text_do_not_stop_it(tmp_path):
    write(tmp_path, "/sys/module/amdgpu/version", b"6.\xff10\n")
    assert evidence.collect(GPU, absent, str(tmp_path))["files"]["/sys/module/amdgpu/version"] == (
        "6.\ufffd10\n"
    )


def test_only_amd_gpus_are_taken_from_the_bus(tmp_path):
    for address, vendor, kind in (
        ("0000:05:00.0", "0x1002", "0x120000"),
        ("0000:06:00.0", "0x1002", "0x038000"),
        ("0000:04:00.0", "0x1002", "0x060400"),
        ("0000:c9:00.0", "0x1a03", "0x030000"),
    ):
        base = f"/sys/bus/pci/devices/{address}"
        write(tmp_path, f"{base}/vendor", vendor + "\n")
        write(tmp_path, f"{base}/class", kind + "\n")
        write(tmp_path, f"{base}/device", "0x74a5\n")
    files = evidence.collect(GPU, absent, str(tmp_path))["files"]
    taken = {path.split("/")[5] for path in files if path.startswith("/sys/bus/pci")}
    assert taken == {"0000:05:00.0", "0000:06:00.0"}


def test_what_may_not_be_read_is_listed(tmp_path, monkeypatch):
    path = "/sys/class/kfd/kfd/topology/nodes/2/properties"
    write(tmp_path, path, "simd_count 1\n")
    real = open

    def refuse(name, *arguments, **options):
        if str(name).endswith("nodes/2/properties"):
            raise PermissionError(13, "denied")
        return real(name, *arguments, **options)

    monkeypatch.setattr("builtins.open", refuse)
    found = evidence.collect(GPU, absent, str(tmp_path))
    assert found["unreadable"] == {path: "EACCES"}
    assert path not in found["files"]


def test_an_absent_tool_is_recorded_and_asked_once():
    calls = []

    def run(argv):
        calls.append(argv[0])
        return absent(argv)

    commands = evidence.collect(GPU, run, "/nonexistent")["commands"]
    assert commands["rocm_smi_topology"]["error"] == "not found"
    assert commands["rocm_smi_topology"]["exit"] is None
    assert not {"rocm_smi_topology_2", "lspci_2"} & commands.keys()
    assert calls.count("rocm-smi") == 1


OLD_AMD_SMI = {
    ("amd-smi", "list", "-e"): (0, '{"error": "unrecognized", "code": -3}', "", None),
    ("amd-smi", "list", "--json"): (0, '[{"gpu": 0}]', "", None),
}


def test_an_option_that_an_old_tool_refuses_is_left_out_next():
    run, _calls = recorded(OLD_AMD_SMI)
    commands = evidence.collect(GPU, run, "/nonexistent")["commands"]
    assert commands["amd_smi_list"]["argv"] == ["amd-smi", "list", "-e", "--json"]
    assert commands["amd_smi_list_2"]["stdout"] == '[{"gpu": 0}]'


def test_a_refused_option_is_no_failure_where_a_simpler_form_answers(tmp_path):
    run, _calls = recorded(OLD_AMD_SMI)
    topology = from_evidence(evidence.collect(GPU, run, str(tmp_path)))
    told = [one.message for one in topology.findings if one.code == "TOPO-TOOL-FAILED"]
    assert not [text for text in told if "unrecognized" in text]
    assert len(topology.gpus) == 1


@pytest.mark.parametrize(
    "printed", ['{"card0": {}}', "= ROCm System Management Interface =\n= End of ROCm SMI Log =\n"]
)
def test_data_beside_exit_code_2_are_an_answer(printed):
    run, _calls = recorded({("rocm-smi",): (2, printed, "", None)})
    commands = evidence.collect(GPU, run, "/nonexistent")["commands"]
    assert commands["rocm_smi_identity"]["exit"] == 2
    assert "rocm_smi_identity_2" not in commands


@pytest.mark.parametrize(
    ("printed", "asked"),
    [('{"xgmi_metric": [], "link_port_status": []}', False), ('[{"gpu": 0}]', True)],
)
def test_the_metrics_are_asked_for_ports_that_amd_smi_does_not_tell(printed, asked):
    answers = {("amd-smi", "xgmi"): (0, printed, "", None), ("rocm-smi",): (0, "{}", "", None)}
    run, calls = recorded(answers)
    evidence.collect(GPU, run, "/nonexistent")
    assert any("--showmetrics" in argv for argv in calls) is asked


def test_topology_is_never_asked_of_some_devices():
    argvs = [argv for _name, attempts in COMMANDS for argv in attempts]
    assert not [argv for argv in argvs if "-d" in argv]


def test_the_kernel_log_is_what_the_driver_could_not_do_and_bounded(tmp_path, monkeypatch):
    tool = tmp_path / "dmesg"
    tool.write_text(
        "#!/bin/sh\nseq -f '[ %g] amdgpu 0000:05:00.0: Fatal error during GPU init' 999\n"
        "echo '[ 9.9] amdgpu: probe of 0000:05:00.0 failed with error -22'\n"
        "echo '[ 9.9] amdgpu 0000:05:00.0: amdgpu: *ERROR* ring gfx timeout'\n"
        "echo '[ 9.9] audit: login as password=hunter2'\n"
    )
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    (argv,) = dict(COMMANDS)["amdgpu_log"]
    lines = evidence.record(evidence.run_command, argv)["stdout"].splitlines()
    assert len(lines) == 200
    assert lines[-2] == "[ 9.9] amdgpu: probe of 0000:05:00.0 failed with error -22"
    assert "*ERROR*" in lines[-1]


def test_tools_run_without_filters_and_in_one_locale(tmp_path, monkeypatch):
    tool = tmp_path / "rocm-smi"
    tool.write_text("#!/bin/sh\nenv\nprintf 'on stderr' >&2\nexit 3\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    for name in sources.FILTERS:
        monkeypatch.setenv(name, "0")
    code, stdout, stderr, problem = evidence.run_command(["rocm-smi"])
    variables = dict(line.split("=", 1) for line in stdout.decode().splitlines())
    assert not set(sources.FILTERS) & variables.keys()
    assert variables["LC_ALL"] == "C"
    assert (code, stderr, problem) == (3, b"on stderr", None)


def test_a_tool_that_hangs_is_given_up(tmp_path, monkeypatch):
    tool = tmp_path / "amd-smi"
    tool.write_text("#!/bin/sh\nexec sleep 60\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setattr(evidence, "TIMEOUT_SECONDS", 0.1)
    entry = evidence.record(evidence.run_command, ("amd-smi", "list"))
    assert (entry["exit"], entry["error"]) == (None, "no answer within 0.1 s")


def test_a_child_that_outlives_the_tool_does_not_hold_it_up(tmp_path, monkeypatch):
    tool = tmp_path / "amd-smi"
    tool.write_text("#!/bin/sh\nsleep 60 &\necho data\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    entry = evidence.record(evidence.run_command, ("amd-smi", "list"))
    assert (entry["exit"], entry["stdout"]) == (0, "data\n")
    assert entry["seconds"] < 30


def test_a_tool_that_hung_is_not_asked_again():
    calls = []

    def run(argv):
        calls.append(argv[0])
        return (None, b"", b"", "no answer within 60 s") if argv[0] == "amd-smi" else absent(argv)

    commands = evidence.collect(GPU, run, "/nonexistent")["commands"]
    assert calls.count("amd-smi") == 1
    assert commands["amd_smi_topology"]["error"] == "not run: amd-smi gave no answer before"


def test_after_its_time_nothing_is_begun(monkeypatch):
    monkeypatch.setattr(evidence, "BUDGET_SECONDS", -1)
    run, calls = recorded({("rocm-smi",): (0, "{}", "", None)})
    commands = evidence.collect(GPU, run, "/nonexistent")["commands"]
    assert calls == []
    assert commands["rocm_smi_topology"]["error"].startswith("no time left")


def test_endless_output_is_cut_and_told(tmp_path, monkeypatch):
    tool = tmp_path / "rocminfo"
    tool.write_text("#!/bin/sh\nhead -c 9000 /dev/zero | tr '\\0' x\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setattr(evidence, "OUTPUT_LIMIT", 1000)
    entry = evidence.record(evidence.run_command, ("rocminfo",))
    assert entry["stdout"] == "x" * 1000
    assert entry["error"] == "output cut at 1000 bytes"


def test_more_files_than_fit_are_listed_as_unread(tmp_path, monkeypatch):
    monkeypatch.setattr(evidence, "FILES_LIMIT", 10)
    for node in range(3):
        write(tmp_path, f"/sys/class/kfd/kfd/topology/nodes/{node}/properties", "simd 1\n")
    found = evidence.collect(GPU, absent, str(tmp_path))
    assert len(found["files"]) == 1
    assert set(found["unreadable"].values()) == {"EFBIG"}


def test_a_file_that_blocks_does_not_hold_up_the_answer(tmp_path, monkeypatch):
    monkeypatch.setattr(evidence, "FILES_SECONDS", 0.2)
    write(tmp_path, "/etc/os-release", "NAME=x\n")
    os.mkfifo(tmp_path / "version")  # a pipe that nobody writes blocks whoever opens it
    write(tmp_path, "/sys/module/amdgpu/initstate", "live\n")
    (tmp_path / "sys/module/amdgpu/version").symlink_to(tmp_path / "version")
    found = evidence.collect(GPU, absent, str(tmp_path))
    assert found["unreadable"] == {"/sys/module/amdgpu/version": "ETIMEDOUT"}
    assert found["files"] == {"/etc/os-release": "NAME=x\n"}
    with open(tmp_path / "version", "wb"):
        pass  # let the reader go


def test_network_cards_are_taken_and_what_is_no_device_is_not(tmp_path):
    card = "/sys/devices/pci0000:00/0000:00:01.1/0000:01:00.0"
    for path, text in {
        f"{card}/net/eth0/speed": "400000\n",
        f"{card}/net/eth0/operstate": "up\n",
        f"{card}/numa_node": "1\n",
        f"{card}/class": "0x020000\n",
        f"{card}/infiniband/mlx5_0/ports/1/rate": "400 Gb/sec (4X NDR)\n",
        "/sys/devices/virtual/net/lo/operstate": "unknown\n",
        "/sys/devices/pci0000:00/0000:00:01.1/class": "0x060400\n",
        "/sys/devices/pci0000:00/0000:00:01.1/max_link_width": "16\n",
    }.items():
        write(tmp_path, path, text)
    for link, target in {
        "/sys/class/net/eth0": "../../" + card.removeprefix("/sys/") + "/net/eth0",
        "/sys/class/net/lo": "../../devices/virtual/net/lo",
        "/sys/class/infiniband/mlx5_0": f"../../{card.removeprefix('/sys/')}/infiniband/mlx5_0",
        f"{card}/net/eth0/device": "../../../0000:01:00.0",
        "/sys/bus/pci/devices/0000:00:01.1": "../../../devices/pci0000:00/0000:00:01.1",
        "/sys/bus/pci/devices/0000:01:00.0": "../../.." + card.removeprefix("/sys"),
    }.items():
        place = tmp_path / link.lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.symlink_to(target)
    found = evidence.collect(GPU, absent, str(tmp_path))
    assert "/sys/class/net/lo" not in found["links"]
    assert found["files"]["/sys/bus/pci/devices/0000:00:01.1/max_link_width"] == "16\n"
    (nic,) = from_evidence(found).nics
    assert (nic.name, nic.rdma_device, nic.numa_node, nic.up) == ("eth0", "mlx5_0", 1, True)
    assert (nic.speed_mb_s, nic.pci_path) == (50000, ("0000:00:01.1",))


def test_bundles_of_the_first_collector_are_read():
    bundle = printers.bundle(printers.mesh())
    assert bundle["collector"] == "1"
    topology = from_evidence(bundle)
    assert (len(topology.gpus), topology.nics) == (8, ())


def test_tools_may_open_many_files():
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, 256), hard))
    try:
        evidence.collect(GPU, absent, "/nonexistent")
        wanted = min(hard, evidence.OPEN_FILES) if hard > 0 else evidence.OPEN_FILES
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (wanted, hard)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_siblings_are_read_where_lscpu_is_absent(tmp_path):
    path = "/sys/devices/system/cpu/cpu0/topology/thread_siblings_list"
    write(tmp_path, path, "0,64\n")
    assert path in evidence.collect(GPU, absent, str(tmp_path))["files"]
    with_lscpu, _calls = recorded({("lscpu",): (0, "0,0,0,0,Y\n", "", None)})
    assert path not in evidence.collect(GPU, with_lscpu, str(tmp_path))["files"]


def test_it_runs_from_standard_input():
    done = subprocess.run(
        [sys.executable, "-"],
        input=PROGRAM,
        capture_output=True,
        text=True,
        check=True,
        env={"PATH": os.environ["PATH"]},
    )
    assert json.loads(done.stdout)["schema"] == evidence.SCHEMA


def test_it_needs_nothing_newer_than_python_3_9():
    import ast

    ast.parse(PROGRAM, feature_version=(3, 9))


def test_a_simulated_host_is_read_whole():
    topology = from_evidence(simulated_evidence())
    assert len(topology.gpus) == 8
    assert len(topology.links) == 28
    assert {link.type for link in topology.links} == {"xgmi"}
    assert [gpu.numa_node for gpu in topology.gpus] == [0] * 4 + [1] * 4
    assert sorted(gpu.hip_ordinal for gpu in topology.gpus) == list(range(8))
    assert all(gpu.render_node and gpu.healthy for gpu in topology.gpus)
    assert [one.severity for one in topology.findings if one.severity != "info"] == []


FAULTS = {
    "missing=3": ({"TOPO-GPU-MISSING"}, 7),
    "nokfd=2": ({"TOPO-GPU-UNUSABLE"}, 8),
    "pcie=0:5": ({"TOPO-XGMI-ABSENT"}, 8),
    "hives=0,2,3,7/1,4,5,6": ({"TOPO-XGMI-SPLIT"}, 8),
    "weight=0:5:30": ({"TOPO-ASYMMETRY", "TOPO-XGMI-INDIRECT"}, 8),
    "numa=3:1": ({"TOPO-NUMA-IMBALANCE"}, 8),
    "vram=1:1000000000": ({"TOPO-VRAM"}, 8),
    "linkwidth=1:8": ({"TOPO-PCIE-LINK"}, 8),
    "linkspeed=1:16": ({"TOPO-PCIE-LINK"}, 8),
    "slotwidth=1:8": ({"TOPO-PCIE-LINK"}, 8),
    "ue=6:2": ({"TOPO-MEMORY-ERRORS"}, 8),
    "partition=2:CPX": ({"TOPO-PARTITION-MIXED"}, 15),
    "partition=all:CPX": (set(), 64),
    "vf": (set(), 8),
    "nodriver": ({"TOPO-NO-GPUS"}, 0),
}


@pytest.mark.parametrize(("fault", "expected"), FAULTS.items())
def test_every_fault_that_the_lab_makes_is_found(fault, expected):
    topology = from_evidence(simulated_evidence(fault))
    found = {one.code for one in topology.findings if one.severity != "info"}
    assert (found, len(topology.gpus)) == expected


def test_a_bmcs_display_adapter_shifts_the_cards_and_nothing_else():
    topology = from_evidence(simulated_evidence(options=("--bmc",)))
    assert len(topology.gpus) == 8
    assert "card0" not in {gpu.card for gpu in topology.gpus}


def test_a_form_that_an_older_tool_refuses_is_not_asked_for_again():
    said = b"usage: rocm-smi\nrocm_smi.py: error: unrecognized arguments: --showcomputepartition\n"
    run, calls = recorded({("rocm-smi", "--showcomputepartition"): (2, b"", said, None)})
    commands = evidence.collect(GPU, run, "/nonexistent")["commands"]
    assert "rocm_smi_partition" in commands
    assert "rocm_smi_partition_2" not in commands
    assert len([argv for argv in calls if "--showcomputepartition" in argv]) == 1


def test_tools_run_beside_each_other_and_the_calls_of_one_do_not():
    together = threading.Barrier(2, timeout=120)
    lock, at_work, most = threading.Lock(), {}, {}

    def run(argv):
        with lock:
            at_work[argv[0]] = at_work.get(argv[0], 0) + 1
            most[argv[0]] = max(most.get(argv[0], 0), at_work[argv[0]])
        if argv[0] in ("lscpu", "numactl"):
            together.wait()  # breaks where one is run only after the other
        with lock:
            at_work[argv[0]] -= 1
        return 0, b"{}", b"", None

    commands = evidence.collect(GPU, run, "/nonexistent")["commands"]
    assert set(most.values()) == {1}
    # In the order in which they are asked for, whoever was first.
    known = [name for name, _attempts in COMMANDS]
    assert list(commands) == [name for name in known if name in commands]
