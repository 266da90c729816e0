# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Archives are bounded by what they unpack to, headers included."""

import base64
import gzip
import io
import tarfile
import tracemalloc

import pytest
from ansible_collections.apiary.instinct.plugins.module_utils.load import run as load
from ansible_collections.apiary.instinct.plugins.plugin_utils.findings import ApiaryError

from apiary.app.inputs import tree_text

MIB = 2**20
PROPERTIES = b"cpu_cores_count 0\nsimd_count 1216\n"


def bomb(path, size, kind):
    """A small archive with so many bytes in a header of some kind, or in a file."""
    with gzip.open(path, "wb", 9) as stream:
        header = tarfile.TarInfo("nodes/1/properties")
        header.type = {"pax": b"x", "global": b"g", "name": b"L", "file": b"0"}[kind]
        header.size = size
        stream.write(header.tobuf(tarfile.USTAR_FORMAT))
        block = b"0" * MIB
        if kind in ("pax", "global"):
            stream.write(f"{size} comment=".encode())
        for _part in range(size // MIB):
            stream.write(block)


@pytest.mark.parametrize("kind", ["pax", "global", "name", "file"])
def test_a_bomb_is_refused_before_it_is_in_memory(tmp_path, monkeypatch, kind):
    path = tmp_path / "kfd.tar.gz"
    bomb(path, 32 * MIB, kind)
    assert path.stat().st_size < MIB // 8
    monkeypatch.setattr("apiary.app.inputs._MOST_BYTES", MIB)
    tracemalloc.start()
    try:
        with pytest.raises(ApiaryError, match="FILE-UNREADABLE") as refusal:
            tree_text(str(path))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert "over 1 MiB" in str(refusal.value)
    assert peak < 8 * MIB


@pytest.mark.parametrize("packed", [True, False])
def test_a_tree_of_long_names_is_read_all_the_same(tmp_path, packed):
    name = f"{'deep/' * 60}topology/nodes/2/properties"
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w", format=tarfile.PAX_FORMAT) as archive:
        entry = tarfile.TarInfo(name)
        entry.size = len(PROPERTIES)
        archive.addfile(entry, io.BytesIO(PROPERTIES))
    path = tmp_path / "kfd.tar"
    data = content.getvalue()
    path.write_bytes(gzip.compress(data) if packed else data)
    assert "==> nodes/2/properties <==\ncpu_cores_count 0" in tree_text(str(path))


def test_a_measurement_is_bounded_by_what_it_unpacks_to(monkeypatch):
    assert load.unpacked(load.packed({"exit_codes": [0]})) == {"exit_codes": [0]}
    monkeypatch.setattr(load, "MOST_UNPACKED", MIB)
    word = base64.b64encode(gzip.compress(b" " * (2 * MIB))).decode()
    for wrong in (word, word[:-8], "!", None, base64.b64encode(b"x" * 40).decode()):
        with pytest.raises(load.BenchError, match="no measurement"):
            load.unpacked(wrong)
