# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What ships works: the collection's tarball by FQCN, and one wheel with command and collection."""

import json
import sys
from pathlib import Path

import pytest

from .conftest import BIN, run

PLAYBOOK = """
- hosts: localhost
  connection: local
  gather_facts: false
  tasks:
    - apiary.instinct.evidence_info:
      register: probed
    - ansible.builtin.assert:
        that: probed.evidence.schema == 'apiary.evidence/v1'
    - apiary.instinct.decide:
        role: replicas
        plan: "{{ lookup('ansible.builtin.file', plan) | from_json }}"
      register: decided
    - ansible.builtin.assert:
        that: (decided.resources | selectattr('kind', 'eq', kind) | first).files | length == count
      vars:
        count: "{{ wanted | int }}"
        kind: replicas
"""


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
    from ansible_collections.apiary.instinct.plugins.plugin_utils.render.replicas import (
        render_systemd,
    )

    from support.demo import demo_plan

    return len(render_systemd(demo_plan()))


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


def test_what_is_installed_can_be_verified_and_a_changed_file_is_found(tarball, tmp_path):
    galaxy = ("ansible-galaxy", "collection")
    where = ("--offline", "--collections-path", tmp_path)
    home = {"HOME": str(tmp_path)}
    run(*galaxy, "install", tarball, *where, cwd=tmp_path, **home)
    verify = (*galaxy, "verify", "apiary.instinct", *where)
    assert "Verifying 'apiary.instinct" in run(*verify, "-v", cwd=tmp_path, **home)
    (tmp_path / "ansible_collections/apiary/instinct/playbooks/site.yml").write_text("- []\n")
    with pytest.raises(AssertionError, match=r"playbooks/site\.yml"):
        run(*verify, cwd=tmp_path, **home)


def test_the_tarball_holds_what_runs_and_no_links(tarball):
    import tarfile

    with tarfile.open(tarball) as archive:
        names = archive.getnames()
        assert not [member.name for member in archive if member.issym() or member.islnk()]
    assert "playbooks/site.yml" in names
    assert "plugins/plugin_utils/render/templates/replica.service.j2" in names
    assert not [name for name in names if name.startswith(("src/", "tests/unit", "inventory/"))]


@pytest.fixture(scope="module")
def environment(wheel, tmp_path_factory):
    """A virtual environment with nothing but the wheel; what it depends on is lent by ours."""
    where = tmp_path_factory.mktemp("venv")
    run(sys.executable, "-m", "venv", "--without-pip", where, cwd=where)
    python = where / "bin/python"
    pip = (sys.executable, "-m", "pip", "--python", python, "install", "--quiet")
    run(*pip, "--no-deps", "--no-index", wheel, cwd=where)
    (packages,) = where.glob("lib/python*/site-packages")
    # A path in a .pth file brings the packages below it, and not the .pth files there:
    # the editable checkout stays out.
    lent = next(Path(path) for path in sys.path if path.endswith("site-packages"))
    (packages / "lent.pth").write_text(f"{lent}\n")
    command = where / "bin/ansible-playbook"
    command.write_text((BIN / "ansible-playbook").read_text().replace(str(BIN), f"{where}/bin"))
    command.chmod(0o755)
    return where


@pytest.fixture
def typed(environment, tmp_path):
    """Run what a person types in that environment, in an empty directory."""
    path = f"{environment / 'bin'}:/usr/bin:/bin"

    def type_(*command, **more):
        # What pip installed is found on sys.path alone.
        own = {"PATH": path, "HOME": str(tmp_path), "ANSIBLE_COLLECTIONS_SCAN_SYS_PATH": None}
        return run(*command, cwd=tmp_path, **own, **more)

    return type_


def test_one_wheel_brings_the_command_and_the_collection(typed, environment, plan, wanted):
    where = typed("python", "-c", "import apiary; print(apiary.__file__)")
    assert where.startswith(str(environment))
    out = typed("apiary", "render", plan, "--out", "rendered", "--json")
    assert len(json.loads(out)["files"]) == wanted
    assert "[defaults]" in Path(typed("apiary", "--ansible-config").strip()).read_text()


def test_the_wheels_playbooks_run_by_name(typed):
    names = [f"apiary.instinct.{one}" for one in ("site", "plan", "rollout", "verify", "bench")]
    said = typed("ansible-playbook", "-i", "localhost,", "--syntax-check", *names)
    assert said.count("playbook: ") == len(names)


def test_the_wheels_validate_playbook_judges_an_inventory(typed, tmp_path):
    Path(tmp_path, "hosts").write_text("[gpu_hosts]\ngpu-001\n")
    variables = Path(tmp_path, "group_vars/gpu_hosts.yml")
    variables.parent.mkdir()
    variables.write_text("apiary_deployment: {name: chat}\n")
    with pytest.raises(AssertionError, match="DOC-MISSING: gpu-001: apiary_deployment"):
        typed("ansible-playbook", "-i", "hosts", "apiary.instinct.validate")


def test_the_wheels_command_gives_ansible_the_tuned_settings(typed, tmp_path):
    (tmp_path / "play.yml").write_text(
        """
- hosts: localhost
  connection: local
  gather_facts: false
  tasks:
    - ansible.builtin.set_stats:
        data:
          forks: "{{ {inventory_hostname: lookup('ansible.builtin.config', 'DEFAULT_FORKS')} }}"
          python:
            "{{ {inventory_hostname: lookup('ansible.builtin.config', 'INTERPRETER_PYTHON')} }}"
"""
    )
    code = (
        "import sys; from pathlib import Path; from apiary.app.runner import run_playbook;"
        "ended = run_playbook('./play.yml', inventory=['localhost,'], artifacts=Path(sys.argv[1]));"
        "print(*(values['localhost'] for values in ended.custom.values()), ended.output)"
    )
    assert typed("python", "-c", code, "first").split() == ["8", "auto_silent"]
    (tmp_path / "ansible.cfg").write_text("[defaults]\nforks = 3\n")
    assert typed("python", "-c", code, "second").split() == ["3", "auto"]
