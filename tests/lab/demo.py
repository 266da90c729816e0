#!/usr/bin/env python3
# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Run the main job on simulated hosts and show what an operator wants to see.

Everything of Apiary in here is what an operator types: the playbook and the `apiary` command.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import shutil
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from labkit.console import REPOSITORY, ApiaryError, error, guarded, say
from labkit.state import Lab, open_lab

LAB = Path(__file__).parent
INVENTORY = REPOSITORY / "inventory/lab"


# The labs of the demo: with the double, and with real vLLM.
DOUBLE, REAL = "demo", "vllm"
QUESTIONS = {DOUBLE: "Which GPUs do you run on?", REAL: "What is the capital of France?"}


def variables(group: str) -> dict[str, Any]:
    """Return what the lab inventory gives to a group of hosts."""
    path = INVENTORY / f"group_vars/{group}.yml"
    read: dict[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
    return read


def deployment(group: str) -> dict[str, Any]:
    """Return the deployment that the lab inventory gives to a group of hosts."""
    requested: dict[str, Any] = variables(group)["apiary_deployment"]
    return requested


class Clock:
    """How long each step took, and all of them."""

    def __init__(self) -> None:
        self.started = self.last = time.monotonic()
        self.laps: list[str] = []

    def lap(self, what: str) -> None:
        """Note that a step is done."""
        now = time.monotonic()
        self.laps.append(f"{what} {now - self.last:.0f} s")
        self.last = now

    @property
    def seconds(self) -> str:
        """The time of all steps."""
        return f"{self.last - self.started:.0f} s"

    def show(self) -> None:
        """Print how long each step took."""
        print(f"\n{', '.join(self.laps)}")


def program(*argv: str | Path, quiet: bool = False, **environment: str) -> None:
    """Run one program of ours, its output shown unless quiet; a failure ends the demo."""
    done = subprocess.run(
        [str(part) for part in argv],
        cwd=REPOSITORY,
        env={**os.environ, **environment},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE if quiet else None,
        stderr=subprocess.STDOUT if quiet else None,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        if quiet:
            sys.stderr.write(done.stdout)
        raise error(
            "LAB-COMMAND",
            shlex.join(str(part) for part in argv[:3]),
            f"exit status {done.returncode}",
        )


def python(script: str, *arguments: str | Path, quiet: bool = False) -> None:
    """Run one of the lab's own scripts with this interpreter."""
    program(sys.executable, LAB / script, *arguments, quiet=quiet)


def start_hosts(
    lab: Lab, count: int, faults: Sequence[str] = (), routers: int = 0, others: Sequence[str] = ()
) -> None:
    """Start hosts that have the double of the deployment's vLLM and its model's config.json."""
    requested = deployment("gpu_hosts")
    version, model = str(requested["engine"]["version"]), requested["model"]["name"]
    engine, models = lab.root / f"double-{version}", lab.root / "models"
    python("vllm_double/build.py", version, engine, quiet=True)
    python("models.py", models, model, quiet=True)
    options = [part for fault in faults for part in ("--fault", fault)]
    python(
        *("lab.py", "up", "--name", lab.name, "--hosts", str(count), "--routers", str(routers)),
        *("--engine-dir", engine, "--models-dir", models),
        *(*others, *options),
    )
    bring_repositories(lab)


def fetch_mirror(lab: Lab) -> None:
    """Fetch what a mirror has of real vLLM: its wheels, and a real model."""
    python("mirror/wheels.py", lab.root / "mirror/wheels")
    python("mirror/model.py", lab.root / "mirror/models")


def start_hosts_for_real(lab: Lab, count: int = 1) -> None:
    """Start bare hosts that reach the mirror, and a router."""
    python(
        *("lab.py", "up", "--name", lab.name, "--hosts", str(count), "--routers", "1"),
        *("--mirror-dir", lab.root / "mirror"),
    )
    bring_repositories(lab)


def publish_weights(lab: Lab) -> None:
    """Publish the real model's weights as an operator would; each host has a store of its own."""
    operator(lab, "weights", "-e", "target=gpu_hosts")


def bring_engine(lab: Lab) -> None:
    """Install real vLLM from the mirror's wheels by the role that does."""
    operator(lab, "site", "--tags", "engine")


def bring_repositories(lab: Lab) -> None:
    """Put signed repositories of stub packages, with AMD's names, on the lab's hosts."""
    playbook = ("ansible-playbook", "-i", "inventory/lab", "tests/lab/repository/install.yml")
    program(
        *playbook, "-e", f"lab_repository={lab.root}/repository", quiet=True, APIARY_LAB=lab.name
    )


def operator(lab: Lab, playbook: str, *options: str) -> None:
    """Run a playbook as an operator would."""
    command = ("ansible-playbook", "-i", "inventory/lab", f"playbooks/{playbook}.yml", *options)
    say(f"$ {shlex.join(command)}")
    program(*command, APIARY_LAB=lab.name)


def run_site(lab: Lab) -> None:
    """Run the site playbook; a lab that is up may serve what an earlier Apiary decided."""
    operator(lab, "site", "-e", "replicas_restart=true")


def show_host(lab: Lab, name: str, question: str) -> None:
    """Print a host's topology, plan, units and one answer of each replica."""
    files = lab.directory / "artifacts" / name
    plan = json.loads((files / "plan.json").read_text(encoding="utf-8"))
    print(f"\n=== {name} " + "=" * (90 - len(name)))
    program(
        *("apiary", "topology", files / "topology.json", "--plan", files / "plan.json"),
        *("--svg", files / "topology.svg"),
    )
    print("\n--- which GPUs each replica got, and why")
    program("apiary", "explain", files / "plan.json", "--brief")
    print("\n--- units on the host")
    units = f"{' '.join(one['unit'] for one in plan['replicas'])} {plan['target']}"
    listing = f"systemctl list-units --all --no-pager --no-legend --plain {units}"
    python("lab.py", "ssh", "--name", lab.name, name, listing)
    print(f"\n--- a chat completion of each replica{asked(question)}")
    ports = lab.hosts()[name]["ports"]
    for replica in plan["replicas"]:
        answer = chat(ports[str(replica["port"])], plan["deployment"]["model"]["name"], question)
        print(f"{replica['unit']}: {answer}")
    print("\n--- files")
    print(f"plan, topology, evidence, picture: {files}/*.json, {files}/topology.svg")
    print(f"rendered files as on the host:     {files}/files/etc/systemd/system/")


def named(lab: Lab, group: str) -> list[str]:
    """Return the lab's hosts of one group."""
    return [name for name, host in lab.hosts().items() if host["group"] == group]


def show_router(lab: Lab, name: str, model: str, question: str) -> None:
    """Print which replicas a router knows, and one answer of its endpoint."""
    print(f"\n=== {name} " + "=" * (90 - len(name)))
    servers = "awk '$1 == \"server\" {print $2, $3}' /etc/haproxy/haproxy.cfg"
    python("lab.py", "ssh", "--name", lab.name, name, f"sudo {servers}")
    endpoint = lab.hosts()[name]["ports"]["8080"]
    print(
        f"\n--- a chat completion of the endpoint, http://127.0.0.1:{endpoint}/v1{asked(question)}"
    )
    print(chat(endpoint, model, question))


def asked(question: str) -> str:
    """Return what stands behind a heading; the double's answer is nonsense to any question."""
    return "" if question == QUESTIONS[DOUBLE] else f": {question}"


def chat(port: int, model: str, question: str) -> str:
    """Return what a replica or a router answers to one question."""
    body = {
        "model": model,
        "messages": [{"role": "user", "content": question}],
        "max_tokens": 48,
        "temperature": 0,
    }
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/v1/chat/completions",
        json.dumps(body).encode(),
        {"Content-Type": "application/json"},
    )
    try:
        with urllib.request.urlopen(request, timeout=120) as response:
            answer = json.load(response)
    except (urllib.error.URLError, OSError) as failure:
        raise error(
            "LAB-NO-ANSWER",
            f"127.0.0.1:{port}",
            f"no chat completion: {failure}",
        ) from failure
    content: str = answer["choices"][0]["message"]["content"]
    return content


def up(lab: Lab, arguments: argparse.Namespace) -> None:
    """The demo: bare hosts become serving replicas, and a router makes them one endpoint."""
    real = lab.name == REAL
    clock = Clock()
    question = arguments.question or QUESTIONS[lab.name]
    say(f"[1/3] {arguments.hosts} simulated bare MI325X host(s), and one for the router")
    if real:
        fetch_mirror(lab)
        clock.lap("wheels and model fetched")
        start_hosts_for_real(lab, arguments.hosts)
    else:
        start_hosts(lab, arguments.hosts, routers=1)
    clock.lap("hosts up")
    say("[2/3] the site playbook over SSH: evidence, topology, placement, recipe, plan, units")
    if real:
        publish_weights(lab)
        clock.lap("weights published")
        bring_engine(lab)
        clock.lap("engine installed")
    run_site(lab)
    clock.lap("site serves")
    say("[3/3] what serves")
    for name in named(lab, "gpu_hosts"):
        show_host(lab, name, question)
    for name in named(lab, "routers"):
        model = deployment(f"lab_{REAL}" if real else "gpu_hosts")["model"]["name"]
        show_router(lab, name, model, question)
    clock.show()
    print(f"\nDone in {clock.seconds}. `make demo-down` removes all of it.")


def show_tuning(lab: Lab) -> None:
    """Print what a tuning of real vLLM chose, and keep its report when the lab is gone."""
    name = deployment(f"lab_{REAL}")["name"]
    made, kept = lab.directory / "artifacts/tune" / name, REPOSITORY / "artifacts/e2e"
    kept.mkdir(parents=True, exist_ok=True)
    for file in ("report.html", "state.json", "tuned.yml"):
        shutil.copy(made / file, kept / file)
    choice = json.loads((made / "state.json").read_text(encoding="utf-8"))["choice"]
    print(f"\n--- what playbooks/tune.yml chose\n{choice['reason']}")
    print((made / "tuned.yml").read_text(encoding="utf-8"))
    print(f"report: {kept}/report.html")


def e2e(lab: Lab, arguments: argparse.Namespace) -> None:
    """The demo with real vLLM, then the tests that ask the host."""
    clock = Clock()
    try:
        up(lab, arguments)
        clock.lap("demo")
        for name in named(lab, "gpu_hosts"):
            pss = "cat /proc/[0-9]*/smaps_rollup | awk '/^Pss:/ {s += $2} END {print s / 2^20}'"
            print(f"\n--- memory of {name}: all processes, PSS in GiB")
            python("lab.py", "ssh", "--name", lab.name, name, f"sudo sh -c {shlex.quote(pss)}")
        failures = []
        # What an engine loses does not depend on what a tuning measured; a failure hides no other.
        for path, words in (("tests/loss/real.py", ()), ("tests/e2e", ("-m", "not double"))):
            try:
                program("pytest", "--quiet", path, *words, APIARY_LAB=lab.name)
            except ApiaryError as failure:
                failures.append(failure)
            clock.lap(path)
        if failures:
            raise failures[0]
        show_tuning(lab)
    finally:
        python("lab.py", "down", "--name", lab.name)
    clock.show()
    print(f"\nReal vLLM served from both replicas; {clock.seconds} in all.")


def hosts(lab: Lab, arguments: argparse.Namespace) -> None:
    """Only the hosts, for tests that run playbooks themselves."""
    others = (f"--monitoring={arguments.monitoring}", f"--storage={arguments.storage}")
    start_hosts(lab, arguments.hosts, arguments.fault, arguments.routers, others)


def down(lab: Lab, arguments: argparse.Namespace) -> None:
    """Remove all that the demo made: hosts, image, engine, models, artifacts."""
    del arguments
    python("lab.py", "down", "--name", REAL)
    python("lab.py", "down", "--name", lab.name, "--all")
    if not any(lab.root.glob("*/hosts.json")):
        for made in (*lab.root.glob("double-*"), lab.root / "models"):
            shutil.rmtree(made, ignore_errors=True)
    print("What stays: .venv (make clean), and packages that the distribution gave.")


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; every refusal is a finding on standard error."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    for run, default in ((up, DOUBLE), (down, DOUBLE), (e2e, REAL), (hosts, "molecule")):
        sub = commands.add_parser(run.__name__, help=(run.__doc__ or "").splitlines()[0])
        sub.set_defaults(run=run, name=default)
        if run in (up, hosts, e2e):
            sub.add_argument("--hosts", type=int, default=1, metavar="N")
        if run in (up, e2e):
            sub.add_argument("--question", help="what each replica and the router answers")
        if run is up:
            sub.add_argument(
                *("--engine", "--name"), dest="name", choices=(DOUBLE, REAL), help="also the lab"
            )
        if run is hosts:
            sub.add_argument("--name", help="the lab's name")
            sub.add_argument("--fault", action="append", default=[], metavar="HOST=FAULT")
            for group in ("routers", "monitoring", "storage"):
                sub.add_argument(f"--{group}", type=int, default=0, metavar="N")
    arguments = parser.parse_args(argv)
    # In a pipe, our lines must stay between those of the programs we run.
    sys.stdout.reconfigure(line_buffering=True)
    return guarded(lambda: arguments.run(open_lab(arguments.name), arguments))


if __name__ == "__main__":
    sys.exit(main())
