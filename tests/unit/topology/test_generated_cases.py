# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the generator of outputs (tests/property/test_generated.py) found to be read wrongly."""

from ansible_collections.apiary.instinct.plugins.plugin_utils.topology.read import read

from tests.support.printers import amd_smi as amd
from tests.support.printers import machine as printers

MESH = printers.mesh()


def test_65535_mb_of_memory_are_memory():
    text = amd.static_text(MESH).replace("SIZE: 262128 MB", "SIZE: 65535 MB")
    assert {gpu.vram_bytes for gpu in read(text, "s.txt").gpus} == {65535 * 2**20}
