# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from ansible_collections.apiary.instinct.plugins.plugin_utils.documents import from_document
from ansible_collections.apiary.instinct.plugins.plugin_utils.plan.types import Plan
from ansible_collections.apiary.instinct.plugins.plugin_utils.render.systemd import (
    quote,
    quote_argument,
    render_systemd,
)
from hypothesis import given
from hypothesis import strategies as st

from support.demo import demo_plan


def rendered():
    return {item.path: item for item in render_systemd(demo_plan())}


def unit(index):
    return rendered()[f"/etc/systemd/system/apiary-qwen3-235b-{index}.service"].content


@pytest.mark.parametrize(
    "path",
    [
        "/etc/systemd/system/apiary-qwen3-235b-0.service",
        "/etc/systemd/system/apiary-qwen3-235b-1.service",
        "/etc/systemd/system/apiary-qwen3-235b.target",
        "/etc/apiary/qwen3-235b/plan.json",
    ],
)
def test_golden(golden, path):
    golden("demo" + path, rendered()[path].content)


def test_the_launcher_is_executable_and_whole():
    launcher = rendered()["/usr/libexec/apiary/launch"]
    assert launcher.mode == "0755"
    assert launcher.content.startswith("#!/usr/bin/env python3\n")
    compile(launcher.content, launcher.path, "exec")


def test_the_plan_on_the_host_reads_back_as_the_plan():
    text = rendered()["/etc/apiary/qwen3-235b/plan.json"].content
    assert from_document(Plan, json.loads(text), "host") == demo_plan()


@pytest.mark.parametrize(
    ("index", "cpus", "node", "buses"),
    [
        (0, "2-63,130-191", 0, ("05", "26", "46", "65")),
        (1, "66-127,194-255", 1, ("85", "a6", "c6", "e5")),
    ],
)
def test_a_replica_is_bound_to_its_own_socket(index, cpus, node, buses):
    lines = unit(index).splitlines()
    assert f"CPUAffinity={cpus}" in lines
    assert f"NUMAMask={node}" in lines
    allowed = [line for line in lines if line.startswith("DeviceAllow=/dev/dri")]
    assert allowed == [
        f"DeviceAllow=/dev/dri/by-path/pci-0000:{bus}:00.0-render rw" for bus in buses
    ]


def test_no_index_is_stored():
    text = unit(0)
    assert "renderD" not in text
    assert "VISIBLE_DEVICES" not in text


def test_no_removed_flag_of_the_published_recipe_is_there():
    text = unit(0)
    for gone in ("full_cuda_graph", "max_capture_size", "disable-log-requests", "VLLM_USE_V1"):
        assert gone not in text


def unquoted(text):
    """Read a quoted word back by the rules of systemd.syntax(7)."""
    assert text.startswith('"')
    assert text.endswith('"')
    inner = re.sub(
        r"\\(.)", lambda found: {"n": "\n", "t": "\t"}.get(found[1], found[1]), text[1:-1]
    )
    return inner.replace("%%", "%")


@given(st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"])))
def test_quoted_words_read_back(word):
    assert unquoted(quote(word)) == word


@given(st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"])))
def test_quoted_arguments_read_back(word):
    shown = quote_argument(word)
    if shown.startswith('"'):
        shown = unquoted(shown.replace("$$", "$"))
    assert shown == word


def test_json_keeps_its_quotes():
    assert quote_argument('{"mode": "x"}') == '"{\\"mode\\": \\"x\\"}"'


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="no systemd on this machine")
def test_real_systemd_finds_nothing_wrong(tmp_path):
    """Stand-ins for the programs let systemd-analyze find the executables that hosts have."""
    for item in render_systemd(demo_plan()):
        path = tmp_path / item.path.lstrip("/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(item.content.replace("/usr/libexec/apiary/launch", "/bin/true"))
    units = sorted(str(path) for path in Path(tmp_path, "etc/systemd/system").iterdir())
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", *units],
        capture_output=True,
        text=True,
        check=False,
    )
    assert [line for line in done.stderr.splitlines() if "apiary" in line] == []
    assert done.returncode == 0
