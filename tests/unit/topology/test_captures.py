# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Every real output at hand: the right topology or the right finding, never a traceback."""

import json
import tarfile
from collections import Counter

import pytest
from ansible_collections.apiary.instinct.plugins.plugin_utils.findings import ApiaryError
from ansible_collections.apiary.instinct.plugins.plugin_utils.topology.read import (
    from_evidence,
    read,
)

from apiary.app.inputs import ENDINGS, tree_text
from support.each import each
from support.shared import SHARED

CAPTURES = SHARED / "captures"
INDEX = CAPTURES / "index.json"
if not INDEX.is_file():
    pytest.skip("the captures are not here", allow_module_level=True)

TOOLS = (
    "rocm-smi",
    "amd-smi",
    "rocminfo",
    "kfd-sysfs",
    "rocm_bandwidth_test",
    "sysfs",
    "lspci",
    "numactl",
)
ENTRIES = json.loads(INDEX.read_text())["captures"]
# Complete by the index, yet not about every GPU, or not about GPUs at all.
NOT_A_LISTING = {
    "kfd-sysfs_io_link_rx6900xt_pcie_partial.txt",
    "amd-smi_partition--accelerator_no-sudo_6.4.txt",
    "amd-smi_set--memory-partition_nps4_too-many-open-files_mi300x.txt",
    "numactl-hardware_mi355x_host.txt",
}
# GPU count is that of the index; link counts by type; HIP ordinals in order of the tool's numbers.
LINKS = {
    "amd-smi_topology_mi300x_x8_24.2_rocm-6.1.txt": {"xgmi": 28},
    "amd-smi_topology-a-t-json_pcie_x2_6.1.1.json.txt": {"pcie": 1},
    "amd-smi_topology-json_old-schema_pcie_x2_6.1.0.json.txt": {"pcie": 1},
    "kfd-sysfs_mi210_x8_two-hives_xgmi+pcie.flat.txt": {"xgmi": 12, "pcie": 16},
    "kfd-sysfs_mi300x_cpx_63dev.flat.txt": {"xgmi": 63 * 62 // 2},
    "rocm-smi_all-json_mi100_rocm-571.json": {"pcie": 15},
    "rocm-smi_showtopo_mi100_x4_pcie-only_rocm-5.1.txt": {"pcie": 6},
    "rocm-smi_showtopo_mi210_x4_docs-altered_rocm-5.2.txt": {"xgmi": 6},
    "rocm-smi_showtopo_mi300x_x8_rocm-6.2.txt": {"xgmi": 28},
    "rocm-smi_showtopotype_mi350x_x8_rocm-7.2.0.txt": {"xgmi": 28},
    "rocm-smi_showtopotype_mi100_x2_pcie_partial_rocm-4.x.txt": {"pcie": 1},
    "rocm-smi_shownodesbw_mi250_x8_rocm-5.7.txt": {"xgmi": 12},
    "amd-smi_xgmi_mi300x_x8_6.1.txt": {"xgmi": 28},
    "rocm-bandwidth-test_mi210_x4_archer2.txt": {None: 6},
    "sysfs_xgmi_num_links_mi250x_x8.txt": {"xgmi": 28},
}
HIP = {
    "rocm-smi_summary_mi355x_x8_rocm-7.0.txt": [1, 3, 2, 0, 5, 7, 6, 4],
    "rocm-smi_summary_mi210_x4_node-order-4532_rocm-6.4.txt": [2, 3, 1, 0],
    "rocm-smi_summary_mi308x_x8_rocm-7.2.txt": [0, 1, 2, 3, 4, 5, 6, 7],
    "amd-smi_default_mi300x_x8_busy_26.0.0.txt": [0, 1, 2, 3, 4, 5, 6, 7],
    "kfd-sysfs_mi210_x8_two-hives_xgmi+pcie.flat.txt": [2, 3, 1, 0, 6, 7, 5, 4],
    "rocm-bandwidth-test_mi210_x4_archer2.txt": [3, 2, 1, 0],
    "rocm-smi_summary_mi250x_x8_rocm-6.x.txt": [0, 1, 2, 3, 4, 5, 6, 7],
    "rocm-smi_showhw_mi300a_tpx_x12_rocm-6.1.1.txt": list(range(12)),
    "rocm-smi_summary_mi325x_x1_sclk-None_rocm-7.0.txt": [0],
}
NUMA = {
    "rocm-smi_showtopo_mi100_x4_pcie-only_rocm-5.1.txt": [7, 1, 7, 1],
    "rocm-smi_showtopo_mi210_x4_docs-altered_rocm-5.2.txt": [0, 1, 2, 3],
    "rocm-smi_showtopo_mi300x_x8_rocm-6.2.txt": [0] * 4 + [1] * 4,
    "rocm-smi_showtoponuma_mi300a_tpx_x12_rocm-6.1.1.txt": [0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3],
    "rocm-bandwidth-test_mi210_x4_archer2.txt": [3, 2, 1, 0],
}
WEIGHTS = {
    "rocm-smi_showtopo_mi100_x4_pcie-only_rocm-5.1.txt": {40: 2, 72: 4},
    "kfd-sysfs_mi300x_cpx_63dev.flat.txt": {13: 217, 41: 1736},
    "kfd-sysfs_mi210_x8_two-hives_xgmi+pcie.flat.txt": {15: 12, 72: 16},
    "amd-smi_topology_mi300x_x8_24.2_rocm-6.1.txt": {15: 28},
}
# "TOPO-XGMI-DOWN" is what a capture of a broken fabric shows, and only that.
DOWN = {"rocm-smi_showmetrics_xgmi_link_status_rocm-6.4.txt": 2}


def attempt(name):
    path = CAPTURES / name
    try:
        text = (
            tree_text(str(path))
            if name.endswith(ENDINGS)
            else path.read_bytes().decode("utf-8", errors="replace")
        )
        return read(text, name)
    except ApiaryError as refusal:
        return refusal


def ids(entry):
    return entry["file"]


@each(ENTRIES, name=ids)
def test_it_is_read_or_refused(entry):
    result = attempt(entry["file"])
    if isinstance(result, ApiaryError):
        assert len(result.findings) == 1
        assert not (entry["tool"] in TOOLS and entry["status"] == "complete")
    else:
        down = [one for one in result.findings if one.code == "TOPO-XGMI-DOWN"]
        assert len(down) == DOWN.get(entry["file"], 0)


@each(
    [
        entry
        for entry in ENTRIES
        if entry["tool"] in TOOLS
        and entry["status"] == "complete"
        and entry["file"] not in NOT_A_LISTING
    ],
    name=ids,
)
def test_a_complete_capture_has_all_its_gpus(entry):
    topology = attempt(entry["file"])
    assert len(topology.gpus) == entry["n_devices"]
    if not topology.gpus:
        told = "TOPO-NO-GPU-DATA" if "version" in entry["command"] else "TOPO-NO-GPUS"
        assert told in [finding.code for finding in topology.findings]


@each([entry for entry in ENTRIES if entry["status"] != "complete"], name=ids)
def test_an_incomplete_capture_is_no_smaller_node(entry):
    topology = attempt(entry["file"])
    asked_for_one = entry["file"] == "amd-smi_static_mi350x_x1_2026_partial.txt"
    if not isinstance(topology, ApiaryError) and not asked_for_one:
        errors = [finding for finding in topology.findings if finding.severity == "error"]
        assert len(topology.gpus) >= entry["n_devices"] or errors


@pytest.mark.parametrize(("name", "expected"), LINKS.items())
def test_links_by_type(name, expected):
    assert Counter(link.type for link in attempt(name).links) == expected


@pytest.mark.parametrize(("name", "expected"), WEIGHTS.items())
def test_weights(name, expected):
    assert Counter(link.weight for link in attempt(name).links) == expected


@pytest.mark.parametrize(("name", "expected"), NUMA.items())
def test_numa_nodes_of_gpus(name, expected):
    assert [gpu.numa_node for gpu in attempt(name).gpus] == expected


def test_the_nodes_of_a_host_are_read_of_numactl():
    first, second = attempt("numactl-hardware_mi355x_host.txt").numa_nodes
    assert (first.cpus, first.distances) == ("0-63,128-191", (10, 32))
    assert second.memory_bytes == 1548129 * 2**20


def test_the_bridges_of_gpus_are_read_of_lspci():
    gpus = attempt("lspci-PP_mi300x_x8_amd-docs.txt").gpus
    assert {gpu.model for gpu in gpus} == {"MI300X"}
    assert [len(gpu.pci_path) for gpu in gpus] == [5] * 8
    assert gpus[0].pci_path[0] == "0000:00:01.1"


@pytest.mark.parametrize(("name", "expected"), HIP.items())
def test_hip_ordinals(name, expected):
    assert [gpu.hip_ordinal for gpu in attempt(name).gpus] == expected


@pytest.mark.parametrize(
    "entry",
    [one for one in ENTRIES if one["tool"] == "kfd-sysfs" and one["file"].endswith(".tar.gz")],
    ids=ids,
)
def test_a_kfd_tree_is_evidence(entry):
    files = {}
    with tarfile.open(CAPTURES / entry["file"]) as archive:
        for member in archive:
            name = member.name.partition("nodes/")[2]
            if member.isfile() and name:
                content = archive.extractfile(member).read().decode("utf-8", errors="replace")
                files["/sys/class/kfd/kfd/topology/nodes/" + name] = content
    topology = from_evidence(
        {
            "schema": "apiary.evidence/v1",
            "host": "h",
            "collected_at": "",
            "collector": "1",
            "files": files,
        }
    )
    assert len(topology.gpus) == entry["n_devices"]
    assert topology.gpus[0].healthy is True


def kind_of(result):
    """What a capture came to."""
    if isinstance(result, ApiaryError):
        return result.findings[0].code
    if not result.gpus:
        return "NUMA nodes" if result.numa_nodes else "no GPUs, with the reason"
    if any(finding.severity == "error" for finding in result.findings):
        return "GPUs, known to be cut"
    return "topology with links" if result.links else "topology"


def test_counts_of_each_kind(capsys):
    """Print, whatever pytest captures, how many of each tool's outputs came to what."""
    kinds = Counter((one["tool"], kind_of(attempt(one["file"]))) for one in ENTRIES)
    whole = Counter(kind_of(attempt(one["file"])) for one in ENTRIES if one["status"] == "complete")
    with capsys.disabled():
        print(f"\n{len(ENTRIES)} captures:")
        for (tool, kind), count in sorted(kinds.items()):
            print(f"{count:4} {tool}: {kind}")
        print(f"of them {whole.total()} complete:")
        for kind, count in sorted(whole.items()):
            print(f"{count:4} {kind}")
    assert kinds.total() == len(ENTRIES)
