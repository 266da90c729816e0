# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The README's pictures: there, modest, of today's code, and made by one script."""

import re
from xml.etree import ElementTree

import pytest

from .conftest import ROOT

import demo_picture  # isort: skip - conftest puts tools/ on the path
import pictures  # isort: skip

IMAGES = ROOT / "docs/images"
MODEST = 350 * 1024
STATE_NAMES = """\
setup: making .venv
[1/3] 1 simulated bare MI325X host(s)
Building the host image: done in 61 s
[2/3] the site playbook over SSH
$ ansible-playbook -i inventory/lab playbooks/site.yml

PLAY [Survey] ***
TASK [Look] ***
\x1b[0;32mok: [gpu-001]\x1b[0m
PLAY RECAP ***
\x1b[0;33mgpu-001\x1b[0m : ok=5 changed=3

[3/3] what serves
=== gpu-001 ===
8 × MI325X

link  0 1
0     . X

--- files
plan: /somewhere

=== router-001 ===
server
Done in 93 s.
"""


def test_the_readme_shows_what_the_script_draws():
    shown = re.findall(r"!\[[^]]+\]\(docs/images/([^)]+)\)", (ROOT / "README.md").read_text())
    assert (
        sorted(shown) == sorted(pictures.PICTURES) == sorted(path.name for path in IMAGES.iterdir())
    )


@pytest.mark.parametrize("name", pictures.PICTURES)
def test_a_picture_is_modest_and_asks_nobody_for_anything(name):
    data = (IMAGES / name).read_bytes()
    assert len(data) < MODEST
    if name.endswith(".svg"):
        ElementTree.fromstring(data)  # noqa: S314 - our own picture
        assert not re.search(rb"url\(['\"]?\w+:|href=|<script|@import", data)


def test_the_topology_is_drawn_by_todays_code(tmp_path):
    pictures.topology(tmp_path / "topology.svg")
    drawn = (tmp_path / "topology.svg").read_text()
    assert drawn == (IMAGES / "topology.svg").read_text(), "run: make pictures PICTURE=topology"


def test_a_demo_is_shown_without_what_differs_from_run_to_run():
    assert [demo_picture.ESCAPE.sub("", line) for line in demo_picture.excerpt(STATE_NAMES)] == [
        "$ make demo",
        "[1/3] 1 simulated bare MI325X host(s)",
        "[2/3] the site playbook over SSH",
        "$ ansible-playbook -i inventory/lab playbooks/site.yml",
        "… 1 tasks …",
        "gpu-001 : ok=5 changed=3",
        "[3/3] what serves",
        "=== gpu-001 ===",
        "8 × MI325X",
        "",
        "=== router-001 ===",
        "server",
    ]
