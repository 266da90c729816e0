# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What hosts run has the reader of KFD in it, and nothing of the collection."""

import subprocess
import sys
from pathlib import Path

import pytest
from ansible_collections.apiary.instinct.plugins.module_utils import cdi, host_metrics, kfd
from ansible_collections.apiary.instinct.plugins.plugin_utils.host import program
from ansible_collections.apiary.instinct.plugins.plugin_utils.render.host import gpus


@pytest.mark.parametrize("module", [cdi, host_metrics])
def test_a_program_runs_without_the_collection(module, tmp_path):
    file = tmp_path / "program.py"
    file.write_text(program.standalone(Path(module.__file__)))
    check = "import runpy, sys; runpy.run_path(sys.argv[1])['served_gpus']('/nowhere')"
    subprocess.run([sys.executable, "-I", "-c", check, file], check=True)


def test_a_source_of_the_package_imports_its_neighbour():
    text = program.packaged(Path(gpus.__file__))
    assert "\nfrom .kfd import FUNCTIONS" in text
    assert Path(kfd.__file__) in program.READERS
    assert program.packaged(Path(kfd.__file__)) == Path(kfd.__file__).read_text()


@pytest.mark.parametrize("line", ["from .kfd import (\n    read\n", "import kfd\n", ""])
def test_an_import_that_changed_its_form_is_no_surprise_on_the_host(line, tmp_path):
    file = tmp_path / "program.py"
    file.write_text(f"from __future__ import annotations\n{line}")
    with pytest.raises(AssertionError, match="has changed its form"):
        program.standalone(file)
    file.write_text("from ...weights import hub\n")
    with pytest.raises(AssertionError, match="have changed their form"):
        program.packaged(file)


def test_a_partition_is_one_whether_or_not_its_siblings_may_be_seen(tmp_path):
    node = tmp_path / kfd.NODES / "2"
    node.mkdir(parents=True)
    (node / "properties").write_text(
        f"simd_count 152\nlocation_id {0x85 << 8 | 3}\ndrm_render_minor 130\nunique_id 7\n"
    )
    (tmp_path / kfd.FUNCTIONS / "0000:85:00.0").mkdir(parents=True)
    (gpu,) = kfd.served_gpus(str(tmp_path))
    assert (gpu.key, gpu.bdf, gpu.partition) == ("0000:85:00.0#3", "0000:85:00.0", 3)
    assert (gpu.render, gpu.gpu_id, gpu.unique_id) == ("renderD130", None, 7)
