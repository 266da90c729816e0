# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What ships works: the collection's tarball by FQCN, and one wheel with command and collection."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent
PLAYBOOK = """
- hosts: localhost
  connection: local
  gather_facts: false
  tasks:
    - apiary.instinct.evidence_info:
      register: probed
    - ansible.builtin.assert:
        that: probed.evidence.schema == 'apiary.evidence/v1'
    - ansible.builtin.set_fact:
        files: "{{ text | from_json | apiary.instinct.systemd_files }}"
      vars:
        text: "{{ lookup('ansible.builtin.file', plan) }}"
    - ansible.builtin.assert:
        that: files | length == wanted | int
"""


def run(*command, cwd, **environment):
    """Run a command with nothing of this checkout in its environment; return its stdout."""
    clean = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("ANSIBLE_", "PYTHON", "MOLECULE"))
    }
    # The editable checkout is on sys.path and must not answer for what is installed.
    clean |= {"ANSIBLE_COLLECTIONS_SCAN_SYS_PATH": "false", "PATH": f"{BIN}:{clean['PATH']}"}
    clean |= environment
    done = subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env=clean,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def plan(tmp_path_factory):
    from ansible_collections.apiary.instinct.plugins.plugin_utils.documents import dumps

    from support.demo import demo_plan

    path = tmp_path_factory.mktemp("plan") / "plan.json"
    path.write_text(dumps(demo_plan()))
    return path


@pytest.fixture(scope="module")
def wanted():
    """How many files this checkout renders; what is installed must not lack a template of one."""
    from ansible_collections.apiary.instinct.plugins.plugin_utils.render.systemd import (
        render_systemd,
    )

    from support.demo import demo_plan

    return len(render_systemd(demo_plan()))


@pytest.fixture(scope="module")
def tarball(tmp_path_factory):
    out = tmp_path_factory.mktemp("tarball")
    run("ansible-galaxy", "collection", "build", "--output-path", out, cwd=ROOT)
    (built,) = out.glob("apiary-instinct-*.tar.gz")
    return built


def test_the_tarball_installs_offline_and_runs_by_fqcn(tarball, plan, wanted, tmp_path):
    where = tmp_path / "collections"
    run(
        *("ansible-galaxy", "collection", "install", tarball, "--offline"),
        *("--collections-path", where),
        cwd=tmp_path,
        HOME=str(tmp_path),
    )
    (tmp_path / "play.yml").write_text(PLAYBOOK)
    run(
        *("ansible-playbook", "-i", "localhost,", "play.yml"),
        *("-e", f"plan={plan}", "-e", f"ansible_python_interpreter={sys.executable}"),
        *("-e", f"wanted={wanted}"),
        cwd=tmp_path,
        HOME=str(tmp_path),
        ANSIBLE_COLLECTIONS_PATH=str(where),
    )
    listed = run(
        *("ansible-galaxy", "collection", "list", "--format", "json"),
        *("--collections-path", where),
        cwd=tmp_path,
        HOME=str(tmp_path),
    )
    assert "apiary.instinct" in json.loads(listed)[str(where / "ansible_collections")]


def test_the_tarball_holds_what_runs_and_no_links(tarball):
    import tarfile

    with tarfile.open(tarball) as archive:
        names = archive.getnames()
        assert not [member.name for member in archive if member.issym() or member.islnk()]
    assert "playbooks/site.yml" in names
    assert "plugins/plugin_utils/render/templates/replica.service.j2" in names
    assert not [name for name in names if name.startswith(("src/", "tests/unit", "inventory/"))]


def test_one_wheel_brings_the_command_and_the_collection(plan, wanted, tmp_path):
    run(sys.executable, "-m", "build", "--no-isolation", "--wheel", "--outdir", tmp_path, cwd=ROOT)
    (wheel,) = tmp_path.glob("apiary-*.whl")
    where = tmp_path / "site"
    run(
        *(sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index"),
        *("--target", where, wheel),
        cwd=tmp_path,
    )
    # -S leaves the editable checkout out; the dependencies come from this environment.
    packages = next(Path(path) for path in sys.path if path.endswith("site-packages"))
    code = (
        f"import sys; sys.path[:0] = [{str(where)!r}]; sys.path.append({str(packages)!r});"
        "from apiary.cli import main; import apiary;"
        f"assert apiary.__file__.startswith({str(where)!r}), apiary.__file__;"
        f"sys.exit(main(['render', {str(plan)!r}, '--out', 'rendered', '--json']))"
    )
    out = run(sys.executable, "-S", "-c", code, cwd=tmp_path)
    assert len(json.loads(out)["files"]) == wanted
    assert (where / "ansible_collections/apiary/instinct/playbooks/site.yml").is_file()
