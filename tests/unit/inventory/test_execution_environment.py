# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The execution environment has what this checkout locks, and ansible-builder can read it."""

import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[3]
FILE = ROOT / "execution-environment.yml"
DEFINITION = yaml.safe_load(FILE.read_text())


def steps():
    return [one for each in DEFINITION["additional_build_steps"].values() for one in each]


def test_every_step_is_one_text():
    # A colon and a blank make a mapping of a line, which ansible-builder refuses.
    assert DEFINITION["version"] == 3
    assert all(isinstance(step, str) and "\n" not in step for step in steps())


def test_the_base_image_has_a_version():
    name = DEFINITION["images"]["base_image"]["name"]
    assert re.search(r":\d[\w.]*$|@sha256:[0-9a-f]{64}$", name)


def test_its_python_is_new_enough():
    wanted = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["requires-python"]
    least = tuple(map(int, re.search(r"(\d+)\.(\d+)", wanted).groups()))
    python = DEFINITION["dependencies"]["python_interpreter"]
    version = re.fullmatch(r"python(\d+)\.(\d+)", python["package_system"])
    assert tuple(map(int, version.groups())) >= least
    assert python["python_path"] == f"/usr/bin/{python['package_system']}"


def test_everything_is_installed_by_its_hash():
    (lock,) = [
        entry["src"] for entry in DEFINITION["additional_build_files"] if "txt" in entry["src"]
    ]
    text = (ROOT / lock).read_text()
    assert "--hash=sha256:" in text
    assert {"ansible-core", "ansible-runner"} <= set(re.findall(r"^([\w-]+)==", text, re.MULTILINE))
    installs = [step for step in steps() if "pip install" in step]
    assert [("--require-hashes" in step) or ("--no-index" in step) for step in installs] == [
        True,
        True,
    ]
    # ansible-builder joins requirements and loses hashes.
    assert not {"python", "ansible_core", "ansible_runner"} & DEFINITION["dependencies"].keys()


@pytest.mark.skipif(not shutil.which("ansible-builder"), reason="ansible-builder is not here")
def test_ansible_builder_makes_a_containerfile(tmp_path):
    for entry in DEFINITION["additional_build_files"]:
        place = tmp_path / entry["src"].replace("*", "0.1.0-py3-none-any")
        place.parent.mkdir(exist_ok=True)
        place.write_text("")
    shutil.copy(FILE, tmp_path)
    subprocess.run(
        ["ansible-builder", "create", "--output-filename", "Containerfile"],
        cwd=tmp_path,
        check=True,
    )
    made = (tmp_path / "context/Containerfile").read_text()
    assert all(step in made for step in steps())
