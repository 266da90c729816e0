# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A controller that is too old is refused in words, before anything else of ours is read."""

import ast
import tomllib
from pathlib import Path

import pytest
import yaml
from ansible.errors import AnsibleError
from ansible_collections.apiary.instinct.plugins import plugin_utils

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("ansible", "python"),
    [("2.17.14", (3, 11)), ("2.16.19", (3, 12)), ("2.19.2", (3, 10)), ("2.9.27", (3, 6))],
)
def test_a7_an_older_controller_is_refused_with_what_to_do(ansible, python):
    with pytest.raises(AnsibleError, match="run-beside-an-older-ansible") as refusal:
        plugin_utils.refuse_older(ansible, python)
    words = str(refusal.value)
    assert "needs ansible-core 2.19 and Python 3.11 or later" in words
    assert f"this is ansible-core {ansible} with Python {python[0]}.{python[1]}." in words
    assert (ROOT / "docs/how-to/run-beside-an-older-ansible.md").is_file()


@pytest.mark.parametrize("ansible", ["2.19.0", "2.20.10", "2.21.0.dev0", "3.0.0"])
def test_a7_later_ones_run(ansible):
    plugin_utils.refuse_older(ansible, (3, 11))


def test_a7_what_is_needed_is_said_once():
    core = ".".join(map(str, plugin_utils.ANSIBLE))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    runtime = yaml.safe_load((ROOT / "meta/runtime.yml").read_text())
    assert runtime["requires_ansible"] == f">={core}.0"
    assert f"ansible-core>={core}" in project["dependencies"]
    assert project["requires-python"] == ">=" + ".".join(map(str, plugin_utils.PYTHON))


def test_a7_every_plugin_of_the_controller_asks_first():
    """What is read before plugin_utils must be there in every Python that Ansible had."""
    later = {"tomllib", "UTC", "StrEnum", "Self", "assert_never", "batched"}
    for path in sorted(ROOT.glob("plugins/action/*.py")) + sorted(ROOT.glob("plugins/[fi]*/*.py")):
        tree = ast.parse(path.read_text())
        imports = [node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
        ours = [
            place
            for place, node in enumerate(imports)
            if isinstance(node, ast.ImportFrom) and node.level and "plugin_utils" in node.module
        ]
        before = {name.name for node in imports[: ours[0]] for name in node.names}
        assert not before & later, path
