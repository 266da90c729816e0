# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the amdgpu driver shows of an MI325X; values are strings or numbers as sysfs prints them.

Bus numbers, device ids and memory: AMD's acceptance documents. Link weights and widths,
property names, partitions: the KFD trees of MI300X and MI210 hosts (same driver). Bridges:
`lspci -PP` of an MI300X host; their ids are examples.
"""

from __future__ import annotations

VENDOR_ID = 0x1002
DEVICE_ID, VF_DEVICE_ID = 0x74A5, 0x74B9
PCI_CLASS = 0x120000  # processing accelerator
PRODUCT_NAME, VF_PRODUCT_NAME = "AMD Instinct MI325X", "AMD Instinct Mi325X VF"
BUSES = (0x05, 0x26, 0x46, 0x65, 0x85, 0xA6, 0xC6, 0xE5)

# Probe rank of each GPU in bus order, as MI355X hosts show it (MI300X hosts have a like one):
# the numbers of KFD nodes, DRM cards and render nodes then differ from the bus order.
PROBE_RANKS = (1, 3, 2, 0, 5, 7, 6, 4)

VRAM_BYTES = 256 * 2**30 - 16 * 2**20
VRAM_IDLE_BYTES = 297 * 2**20
GTT_BYTES = 2**40
HIVE_ID = 0x3F2A9C5D7E1B0A64

DRM_MAJOR = 226
# KFD's major is allocated at boot; this is the last one that the kernel would choose.
KFD_MAJOR = 384
FIRST_RENDER_MINOR = 128
# Of cards, and of render nodes: the limit of older kernels.
DRM_MINORS = 64

LINK_CPU, LINK_PCIE, LINK_XGMI = 1, 2, 11
WEIGHT_CPU, WEIGHT_PCIE, WEIGHT_XGMI = 32, 20, 15
PCIE_MB_S, XGMI_MB_S = 64000, 50000
# Between partitions: inside one GPU, and of two GPUs, where the driver gives no bandwidth.
WEIGHT_INSIDE, WEIGHT_BETWEEN, INSIDE_MB_S = 13, 41, 819200

LINK_SPEED, LINK_WIDTH = "32.0 GT/s PCIe", 16
# Above each GPU: a root port, a switch's two ports, the two ports inside the GPU.
ROOT_PORT, SWITCH_PORT = (0x1022, 0x14AB), (0x1000, 0xC030)
GPU_PORTS = ((0x1002, 0x1500), (0x1002, 0x1501))
BRIDGE_CLASS = 0x060400

MODULE = {
    "initstate": "live",
    "version": "6.10.5",
    "parameters/ras_enable": -1,
    "parameters/vm_fragment_size": -1,
    "parameters/noretry": -1,
    "parameters/gpu_recovery": -1,
}

PCI_ATTRIBUTES = {
    "vendor": f"{VENDOR_ID:#06x}",
    "class": f"{PCI_CLASS:#08x}",
    "revision": "0x00",
    "subsystem_vendor": f"{VENDOR_ID:#06x}",
    "max_link_speed": LINK_SPEED,
    "max_link_width": LINK_WIDTH,
    "enable": 1,
    "resource": "\n".join(["0x0000000000000000 0x0000000000000000 0x0000000000000000"] * 13),
}

DRIVER_ATTRIBUTES = {
    "product_number": "102-G30214-0C",
    "vbios_version": "113-M3250101-100",
    "mem_info_vram_used": VRAM_IDLE_BYTES,
    "mem_info_vis_vram_used": VRAM_IDLE_BYTES,
    "mem_info_gtt_total": GTT_BYTES,
    "mem_info_gtt_used": 22 * 2**20,
    "mem_info_vram_vendor": "hynix",
    "gpu_busy_percent": 0,
    "mem_busy_percent": 0,
    "pcie_replay_count": 0,
    "pcie_bw": "0 0 256",
    "power/runtime_status": "active",
    "power_dpm_force_performance_level": "auto",
    "pp_sclk_od": 0,
    "pp_mclk_od": 0,
    "pp_dpm_sclk": "0: 132Mhz *\n1: 2100Mhz",
    "pp_dpm_mclk": "0: 900Mhz *\n1: 1100Mhz\n2: 1200Mhz\n3: 1300Mhz",
    "pp_dpm_fclk": "0: 1200Mhz *\n1: 2000Mhz",
    "pp_dpm_socclk": "0: 29Mhz *\n1: 1200Mhz",
    "pp_dpm_pcie": "0: 32.0GT/s, x16 *",
    "fw_version/mec_fw_version": "0x000000b1",
    "fw_version/rlc_fw_version": "0x00000011",
    "fw_version/sdma_fw_version": "0x00000016",
    "fw_version/smc_fw_version": "0x00557200",
    "fw_version/sos_fw_version": "0x0036423c",
    "fw_version/vcn_fw_version": "0x09113005",
    "fw_version/ta_ras_fw_version": "0x1b36051a",
    "fw_version/ta_xgmi_fw_version": "0x20000015",
    "fw_version/asd_fw_version": "0x210000e9",
    "xgmi_hive_info/xgmi_hive_id": HIVE_ID,
}
# Only the physical function has these.
PHYSICAL_ATTRIBUTES = {
    "available_compute_partition": "SPX, DPX, QPX, CPX",
    "available_memory_partition": "NPS1, NPS2, NPS4",
    "ras/features": "feature mask: 0x37fbf",
    "ras/gpu_vram_bad_pages": "",
}

# Blocks with an error counter of their own, beside the memory controller's.
RAS_BLOCKS = ("sdma", "gfx", "mmhub", "pcie_bif", "hdp", "xgmi_wafl")

# Temperatures in millidegrees, power in microwatts, frequencies in Hz.
HWMON = {
    "name": "amdgpu",
    # librocm-smi 5.2.3 gives up where in0_label is absent.
    "in0_label": "vddgfx",
    "in0_input": 750,
    "temp2_label": "junction",
    "temp2_crit": 100000,
    "temp2_crit_hyst": 0,
    "temp2_emergency": 105000,
    "temp3_label": "mem",
    "temp3_crit": 105000,
    "temp3_emergency": 110000,
    "power1_label": "PPT",
    "power1_cap": 1000000000,
    "power1_cap_max": 1000000000,
    "power1_cap_min": 0,
    "power1_cap_default": 1000000000,
    "freq1_label": "sclk",
    "freq1_input": 132000000,
    "freq2_label": "mclk",
    "freq2_input": 900000000,
}
IDLE_JUNCTION_MILLIDEGREES = 41000
IDLE_MEMORY_MILLIDEGREES = 36000
IDLE_MICROWATTS = 136000000

KFD_GPU_PROPERTIES = {
    "cpu_cores_count": 0,
    "simd_count": 1216,
    "mem_banks_count": 1,
    "caches_count": 0,
    "cpu_core_id_base": 0,
    "max_waves_per_simd": 8,
    "lds_size_in_kb": 64,
    "gds_size_in_kb": 0,
    "num_gws": 64,
    "wave_front_size": 64,
    "array_count": 32,
    "simd_arrays_per_engine": 1,
    "cu_per_simd_array": 10,
    "simd_per_cu": 4,
    "max_slots_scratch_cu": 32,
    "gfx_target_version": 90402,
    "vendor_id": VENDOR_ID,
    "domain": 0,
    "hive_id": HIVE_ID,
    "num_sdma_engines": 2,
    "num_sdma_xgmi_engines": 14,
    "num_sdma_queues_per_engine": 8,
    "num_cp_queues": 24,
    "max_engine_clk_fcompute": 2100,
    "local_mem_size": 0,
    "fw_version": 177,
    "capability": 746120832,
    "debug_prop": 1511,
    "sdma_fw_version": 22,
    "num_xcc": 8,
    "max_engine_clk_ccompute": 2100,
}
FIRST_SIMD_ID = 2147487744


def bdf(gpu: int) -> str:
    """Return the PCI address of the GPU at this place in bus order."""
    return f"0000:{BUSES[gpu]:02x}:00.0"


def unique_id(gpu: int, virtual: bool = False) -> int:
    """Return the ASIC's serial number, the same in every view of this GPU; a guest's differs."""
    return (0x43529F0000000000 if virtual else 0x8A3C5D1E00000000) + 0x01010101 * (gpu + 1)


def gpu_id(gpu: int, partition: int) -> int:
    """Return the hash that KFD gives a GPU or a partition."""
    return 20000 + 4321 * (gpu + 1) + partition
