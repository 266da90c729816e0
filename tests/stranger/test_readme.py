# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A newcomer on a bare machine types what the README says, and it works."""

from __future__ import annotations

import os
import re

import pytest

from .readme import commands, packages

# What changes hosts, needs a model that serves, or takes a Docker engine is followed literally by
# other tests: the rest of the README is followed here.
ELSEWHERE = {
    "make demo": "below, when asked for",
    "make test": "CI",
    "ansible-playbook -i inventory/mine playbooks/site.yml": "tests/docs",
    "ansible-playbook -i inventory/mine playbooks/rollout.yml": "tests/rollout",
    "ansible-playbook -i inventory/mine playbooks/verify.yml": "tests/docs",
    "ansible-playbook -i inventory/mine playbooks/bench.yml": "tests/e2e",
    "ansible-playbook -i inventory/mine playbooks/tune.yml": "tests/tune",
    "ansible-playbook -i inventory/mine playbooks/telemetry.yml": "Molecule",
    "apiary rollout site --inventory inventory/mine --batches 1,10%,100%": "tests/fleet",
    "ansible-playbook -i inventory/mine playbooks/verify.yml; apiary fleet report "
    "--inventory inventory/mine --out fleet.html": "tests/docs",
}
# What a person has to bring: the hosts, and the command that they run today.
# The simulated host runs this machine's kernel, whatever that is.
HOSTS = "gpu_hosts:\n  hosts:\n    gpu-001: {rocm_allow_unsupported: true}\n"
# Whose answer may be a refusal, and which: the command of today has a mistake; AMD's repository may
# be out of a simulated host's reach.
REFUSED = {
    "apiary explain plan.json --recipe old-command.sh": "ENGINE-",
    "apiary plan --inventory inventory/mine": "ROCM-KEY-UNREADABLE",
}
OLD_COMMAND = "vllm serve Qwen/Qwen3-235B-A22B-Instruct-2507-FP8 --tensor-parallel-size 4\n"


def test_every_command_that_is_left_out_is_still_in_the_readme():
    assert set(ELSEWHERE) <= set(commands())


def test_the_machine_is_bare(machine):
    for program in ("pip", "ansible", "apiary", "docker", "ssh", "cc"):
        assert machine.type(f"command -v {program}").code != 0, program
    assert machine.type("python3 -c 'import ensurepip'").code != 0


def test_make_says_what_it_can_do_before_anything_is_installed(machine):
    done = machine.type("make help")
    assert done.code == 0, done.said
    assert re.search(r"^demo +A bare simulated MI325X host", done.said, re.MULTILINE)


def test_the_readme_is_followed_from_top_to_bottom(machine, host):
    install = f"apt-get update -qq && apt-get install -y -qq {' '.join(packages())}"
    done = machine.type(f"DEBIAN_FRONTEND=noninteractive sh -c '{install}'")
    assert done.code == 0, done.said
    machine.put("/root/apiary/old-command.sh", OLD_COMMAND)
    wrong, environment, typed = [], None, 0
    for command in commands():
        if command in ELSEWHERE:
            continue
        done = machine.type(command, environment)
        typed += 1
        print(f"$ {command}\n{done.said}")
        fine = done.code == 0 or (done.code == 1 and REFUSED.get(command, "\0") in done.said)
        if not fine or "Traceback" in done.said:
            wrong.append(f"{command}: exit code {done.code}\n{done.said}")
        if "-m venv" in command:
            environment = re.search(r"-m venv (\S+)", command)[1]
        if command.startswith("cp -r inventory/example"):
            machine.put("/root/apiary/inventory/mine/hosts.yml", HOSTS)
    assert not wrong, "\n\n".join(wrong)
    assert typed >= 10
    after_the_readme(machine, environment)


@pytest.mark.skipif("DEMO" not in os.environ, reason="takes five minutes: make stranger DEMO=1")
def test_make_demo_works_on_a_bare_machine(powerful):
    done = powerful.type("make demo")
    assert done.code == 0, done.said
    assert re.search("^Replica on port 800[01] of gpu-001 answers", done.said, re.MULTILINE)
    down = powerful.type("make demo-down")
    assert down.code == 0, down.said


def after_the_readme(machine, environment):
    """See what a newcomer tries next."""
    for command, code, wanted in (
        ("apiary --help", 0, "Usage: apiary"),
        ("apiary --version", 0, "0."),
        ("apiary topology", 2, "Usage: apiary topology"),
        ("apiary plan no-such.yml evidence/gpu-001.json", 1, "no-such.yml"),
        ("cat rendered/etc/systemd/system/apiary-qwen3-235b-0.service", 0, "ExecStart="),
        ("git status --porcelain --untracked-files=no", 0, ""),
    ):
        done = machine.type(command, environment)
        assert done.code == code, f"{command}\n{done.said}"
        assert wanted in done.said, f"{command}\n{done.said}"
    away = "cd /tmp && ansible-playbook -i gpu-001, --syntax-check apiary.instinct.site"
    done = machine.type(away, environment)
    assert done.code == 0, done.said
