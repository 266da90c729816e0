# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The Tab key, asked by the functions of bash, zsh and fish."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from click.shell_completion import ShellComplete

from apiary.app.cli import cli
from labkit.prerequisites import ensure_programs

PROGRAMS = Path(sys.executable).parent
# Each prints what the shell offers for the words; the last one is what is being typed.
BASH = """
source completion
COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMP_LINE="$*"; COMP_POINT=${#COMP_LINE}
compopt() { echo "files:$*"; }
_apiary_completion apiary
printf '%s\\n' "${COMPREPLY[@]}"
"""
FISH = """
source completion
complete --do-complete "$argv"
"""
# zsh completes only at a prompt, so its helpers are ours for the test.
ZSH = """
autoload -Uz compinit; compinit -u -D
source ./completion
_describe() { local -a given; given=("${(@P)3}"); print -l -- "${given[@]%%:*}"; }
compadd() { local -a given; given=("${(@P)argv[-1]}"); print -l -- "${given[@]}"; }
_path_files() { print -r -- "files:$*"; }
words=("$@"); CURRENT=$#
_apiary_completion
"""
VARIABLE = "_APIARY_COMPLETE"
FILES = {"bash": "default", "zsh": "files:-f", "fish": "plan.json"}


@pytest.fixture
def here(tmp_path):
    hosts = {"gpu_hosts": {"hosts": {"gpu-[001:003]": None}, "children": {"rack1": {}}}}
    (tmp_path / "hosts.yml").write_text(yaml.safe_dump(hosts))
    (tmp_path / "plan.json").write_text("{}")
    return tmp_path


@pytest.fixture(params=FILES)
def offered(request, here):
    """What a shell offers for the words of a line."""
    shell = request.param
    if shutil.which(shell) is None and os.geteuid() != 0:
        pytest.skip(f"{shell} is not installed, and installing it takes root")
    ensure_programs({shell})
    source = subprocess.run(
        [PROGRAMS / "apiary"],
        env={**os.environ, VARIABLE: f"{shell}_source"},
        capture_output=True,
        text=True,
        check=True,
    )
    (here / "completion").write_text(source.stdout)

    def ask(*words):
        script = {"bash": BASH, "zsh": ZSH, "fish": FISH}[shell]
        line = ["apiary", *words]
        command = {
            "bash": ["bash", "--norc", "--noprofile", "-c", script, "bash", *line],
            "zsh": ["zsh", "-f", "-c", script, "zsh", *line],
            "fish": ["fish", "--no-config", "-c", script, " ".join(line)],
        }[shell]
        done = subprocess.run(
            command,
            cwd=here,
            env={
                **os.environ,
                "PATH": f"{PROGRAMS}:{os.environ['PATH']}",
                "HOME": str(here),
                "TERM": "dumb",
            },
            capture_output=True,
            text=True,
            check=False,
        )
        lines = [line.split("\t")[0].strip() for line in done.stdout.splitlines()]
        assert "Traceback" not in done.stderr, done.stderr
        return [line for line in lines if line]

    ask.shell = shell
    return ask


def test_the_shell_offers_what_it_is_told(offered):
    assert sorted(offered("pl")) == ["place", "plan"]
    hosts = offered("probe", "--inventory", "hosts.yml", "gpu-00")
    assert sorted(hosts) == ["gpu-001", "gpu-002", "gpu-003"]
    assert FILES[offered.shell] in offered("explain", "pl")
    assert offered("doctor", "--inventory", "hosts.yml", "--limit", "rack") == ["rack1"]


@pytest.fixture
def items(here, monkeypatch):
    """What the Tab key would have, without a shell."""
    monkeypatch.chdir(here)
    monkeypatch.setenv("ANSIBLE_INVENTORY_ENABLED", "yaml,ini")

    def ask(*words):
        completing = ShellComplete(cli, {}, "apiary", VARIABLE)
        found = completing.get_completions(list(words[:-1]), words[-1])
        return [one.value if one.type == "plain" else one.type for one in found]

    return ask


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("fleet |", ["report"]),
        ("finding DOCTOR-VA|", ["DOCTOR-VALIDATE", "DOCTOR-VAULT", "DOCTOR-VAULT-OPEN"]),
        ("doctor --inv|", ["--inventory"]),
        ("render plan.json --target s|", ["systemd"]),
        ("schema fleet-r|", ["fleet-report", "fleet-rollout"]),
        ("doctor -i hosts.yml --limit gpu-00|", ["gpu-001", "gpu-002", "gpu-003"]),
        ("doctor --inventory=hosts.yml --limit rack|", ["rack1"]),
        ("probe --inventory hosts.yml rack|", ["rack1"]),
        ("support-bundle -i hosts.yml --host gpu-003|", ["gpu-003"]),
        ("plan -i hosts.yml --limit gpu-001,gpu-003|", ["gpu-001,gpu-003"]),
        ("plan -i hosts.yml --limit gpu_hosts:!rack|", ["gpu_hosts:!rack1"]),
        ("plan --limit gpu|", []),
        ("rollout rollb|", ["rollback"]),
        ("rollout ./my|", ["file"]),
        ("explain plan.json --recipe pl|", ["file"]),
    ],
)
def test_what_each_place_takes(items, line, expected):
    assert items(*line.removesuffix("|").split(" ")) == expected


def test_names_of_files_that_inventories_are(tmp_path):
    (tmp_path / "a.ini").write_text(
        "alone\n[web]\nw[1:2] ansible_host=x  # no\n[all:children]\nweb\n[web:vars]\na=b\n"
    )
    (tmp_path / "b.yml").write_text("db:\n  hosts:\n    d1:\n      secret: !vault |\n        x\n")
    (tmp_path / "broken.yml").write_text("a: [")
    script = tmp_path / "script.py"
    script.write_text("#!/bin/sh\ntouch ran\n")
    script.chmod(0o755)
    (tmp_path / "group_vars").mkdir()
    (tmp_path / "group_vars/all.yml").write_text("x: {hosts: {y: }}")
    code = "import sys; from apiary.app.options import names_of; print(*names_of(sys.argv[1:]))"

    def names(*sources):
        done = subprocess.run(
            [sys.executable, "-c", code, *map(str, sources)],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stderr == ""
        return done.stdout.split()

    assert names(tmp_path) == ["all", "ungrouped", "web", "db", "alone", "w1", "w2", "d1"]
    assert names() == []
    assert "d1" not in names(tmp_path / "none", script)
    assert not (tmp_path / "ran").exists()
