# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The tables of a host, as wide as the terminal."""

import io
from dataclasses import replace

import pytest

from apiary.app import output
from apiary.host.tables import topology_table
from support.topology.pictured import BDFS, DRAWN, HALVES, cpx, cuts, lost, one_missing, two_hives
from support.topology.topologies import host, mi325x


def printed(topology, placement=None, width=80):
    console = output.console()
    console.width, console.file = width, io.StringIO()
    console.print(topology_table(topology, placement))
    return [line.rstrip() for line in console.file.getvalue().splitlines()]


def row(lines, start):
    """What follows in the row that starts with this."""
    text = next(line for line in lines if line.startswith(start))
    return " ".join(text.removeprefix(start).split())


@pytest.mark.parametrize("width", [80, 160])
@pytest.mark.parametrize("name", DRAWN)
def test_a_host_fits_the_terminal_with_every_gpu(name, width):
    topology, placement = DRAWN[name]
    lines = printed(topology, placement, width)
    assert max(map(len, lines)) <= width
    for gpu in topology.gpus:
        assert sum(line.startswith(gpu.bdf) for line in lines) == 1
    # Nothing is cut off: no cell ends in Rich's ellipsis.
    assert not any("…" in line for line in lines)


def test_the_table_has_every_numbering():
    gpus = tuple(
        replace(gpu, card=f"card{n + 1}", oam_id=7 - n) for n, gpu in enumerate(mi325x().gpus)
    )
    lines = printed(replace(mi325x(), gpus=gpus), HALVES)
    assert row(lines, "GPU") == "NUMA SMI HIP KFD render card OAM replica"
    assert row(lines, BDFS[5]) == "1 5 5 7 renderD133 6 2 1"
    assert "8 × MI325X · 256 GiB each · SPX/NPS1 · 2 NUMA nodes · 28 xGMI links" in lines


def test_what_differs_between_gpus_is_a_column():
    gpus = (replace(mi325x().gpus[0], model="MI300X", vram_bytes=192 << 30), *mi325x().gpus[1:])
    lines = printed(replace(mi325x(), gpus=gpus))
    assert row(lines, BDFS[0]) == "MI300X 0 0 0 2 renderD128 192 GiB"


def test_what_nobody_knows_is_a_dash():
    gpus = tuple(replace(gpu, hip_ordinal=None, numa_node=None) for gpu in mi325x().gpus)
    assert row(printed(replace(mi325x(), gpus=gpus)), BDFS[0]) == "– 0 – 2 renderD128"


def test_partitions_share_the_row_of_their_gpu():
    keys = list(cpx(63).by_key)
    lines = printed(cpx(63), cuts(keys[:4], keys[4:12]))
    assert row(lines, BDFS[0]) == "0-7 0 0-7 0-7 2-9 128-135 0-7 0 0: 0-3 –"
    assert row(lines, BDFS[7]) == "0-6 1 56-62 56-62 58-64 184-190 56-62 7 free 1"
    assert sum("1: 4-7" in line for line in lines) == 1
    assert len(lines) < 40


def test_links_are_a_matrix_by_type_and_weight():
    lines = printed(two_hives())
    assert row(lines, f"0 {BDFS[0]}") == "· X15 X15 X15 P72 P72 P72 P72"
    assert "X xGMI, P PCIe, with its weight" in lines


def test_parallel_and_indirect_links_are_in_the_matrix():
    lines = printed(DRAWN["mi250x"][0])
    assert row(lines, "0 0000:c1:00.0") == "· X15×4 X15 X30 X30 X30 X15×2 X30"
    assert lines[-7].endswith("×n links in parallel, by bandwidth")


def test_a_lost_link_stands_out_and_unknown_ones_are_said_to_be():
    lines = printed(lost(mi325x(), (0, 1)))
    assert row(lines, f"0 {BDFS[0]}").startswith("· P40! X15")
    assert any("! not the xGMI it should be" in line for line in lines)
    assert lines[-1] == "findings: 1=TOPO-XGMI-ABSENT"
    some = replace(mi325x(), links=mi325x().links[:20])
    assert row(printed(some), f"7 {BDFS[7]}").count("?") == 4


def test_many_gpus_have_their_links_by_kind():
    lines = printed(host([range(64)], [range(64)]))
    assert row(lines, "X15") == "2,016 all"
    assert len(lines) < 64 + 12
    kinds = printed(DRAWN["many"][0])
    assert row(kinds, "X15 ") == "195 all others"
    assert any(line.startswith("P15!") for line in kinds)


def test_interfaces_and_a_missing_gpu_have_rows():
    lines = printed(DRAWN["nics"][0])
    assert row(lines, "enp5s0") == f"mlx5_5 0000:15:00.0 1 down {BDFS[4]} {BDFS[5]}"
    assert row(lines, "eno1") == "– 0000:f1:00.0 0 25 Gb/s –"
    assert row(printed(one_missing()), "missing").endswith("missing 1")
