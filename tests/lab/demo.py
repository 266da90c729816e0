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

from labkit.console import REPOSITORY, error, guarded, say, step
from labkit.state import Lab, open_lab

LAB = Path(__file__).parent
INVENTORY = REPOSITORY / "inventory/lab"


def deployment(group: str) -> dict[str, Any]:
    """Return the deployment that the lab inventory gives to a group of hosts."""
    variables = yaml.safe_load((INVENTORY / f"group_vars/{group}.yml").read_text(encoding="utf-8"))
    requested: dict[str, Any] = variables["apiary_deployment"]
    return requested


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


def start_hosts_for_real(lab: Lab) -> None:
    """Start one host that has the real vLLM (CPU build) and a tiny model, and a router."""
    engine, models = lab.root / "real-vllm", lab.root / "tiny-models"
    python("real_vllm/build.py", engine)
    python("real_vllm/make_model.py", models)
    python(
        *("lab.py", "up", "--name", lab.name, "--hosts", "1", "--routers", "1"),
        *("--engine-dir", engine, "--models-dir", models),
    )
    bring_repositories(lab)


def bring_repositories(lab: Lab) -> None:
    """Put signed repositories of stub packages, with AMD's names, on the lab's hosts."""
    playbook = ("ansible-playbook", "-i", "inventory/lab", "tests/lab/repository/install.yml")
    program(
        *playbook, "-e", f"lab_repository={lab.root}/repository", quiet=True, APIARY_LAB=lab.name
    )


def run_site(lab: Lab) -> None:
    """Run the site playbook as an operator would."""
    # A lab that is up may serve what an earlier version of Apiary decided.
    command = (
        *("ansible-playbook", "-i", "inventory/lab", "playbooks/site.yml"),
        *("-e", "replicas_restart=true"),
    )
    say(f"$ {shlex.join(command)}")
    program(*command, APIARY_LAB=lab.name)


def show_host(lab: Lab, name: str) -> None:
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
    print("\n--- a chat completion of each replica")
    ports = lab.hosts()[name]["ports"]
    for replica in plan["replicas"]:
        answer = chat(ports[str(replica["port"])], plan["deployment"]["model"]["name"])
        print(f"{replica['unit']}: {answer}")
    print("\n--- files")
    print(f"plan, topology, evidence, picture: {files}/*.json, {files}/topology.svg")
    print(f"rendered files as on the host:     {files}/files/etc/systemd/system/")


def named(lab: Lab, group: str) -> list[str]:
    """Return the lab's hosts of one group."""
    return [name for name, host in lab.hosts().items() if host["group"] == group]


def show_router(lab: Lab, name: str, model: str) -> None:
    """Print which replicas a router knows, and one answer of its endpoint."""
    print(f"\n=== {name} " + "=" * (90 - len(name)))
    servers = "awk '$1 == \"server\" {print $2, $3}' /etc/haproxy/haproxy.cfg"
    python("lab.py", "ssh", "--name", lab.name, name, f"sudo {servers}")
    endpoint = lab.hosts()[name]["ports"]["8080"]
    print(f"\n--- a chat completion of the endpoint, http://127.0.0.1:{endpoint}/v1")
    print(chat(endpoint, model))


def chat(port: int, model: str) -> str:
    """Return what a replica or a router answers to one question."""
    body = {
        "model": model,
        "messages": [{"role": "user", "content": "Which GPUs do you run on?"}],
        "max_tokens": 48,
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
    started = time.monotonic()
    say(f"[1/3] {arguments.hosts} simulated bare MI325X host(s), and one for the router")
    start_hosts(lab, arguments.hosts, routers=1)
    say("[2/3] the site playbook over SSH: evidence, topology, placement, recipe, plan, units")
    run_site(lab)
    say("[3/3] what serves")
    for name in named(lab, "gpu_hosts"):
        show_host(lab, name)
    for name in named(lab, "routers"):
        show_router(lab, name, deployment("gpu_hosts")["model"]["name"])
    print(f"\nDone in {time.monotonic() - started:.0f} s. `make demo-down` removes all of it.")


def show_tuning(lab: Lab) -> None:
    """Print what a tuning of real vLLM chose, and keep its report when the lab is gone."""
    made, kept = lab.directory / "artifacts/tune/tiny", REPOSITORY / "artifacts/e2e"
    kept.mkdir(parents=True, exist_ok=True)
    for name in ("report.html", "state.json", "tuned.yml"):
        shutil.copy(made / name, kept / name)
    choice = json.loads((made / "state.json").read_text(encoding="utf-8"))["choice"]
    print(f"\n--- what playbooks/tune.yml chose\n{choice['reason']}")
    print((made / "tuned.yml").read_text(encoding="utf-8"))
    print(f"report: {kept}/report.html")


def e2e(lab: Lab, arguments: argparse.Namespace) -> None:
    """The same playbook with real vLLM, then the tests that ask the host."""
    del arguments
    started = time.monotonic()
    with step("Preparing one host with real vLLM"):
        start_hosts_for_real(lab)
    try:
        with step("Running the site playbook"):
            run_site(lab)
        for name in named(lab, "gpu_hosts"):
            show_host(lab, name)
            pss = "cat /proc/[0-9]*/smaps_rollup | awk '/^Pss:/ {s += $2} END {print s / 2^20}'"
            print(f"\n--- memory of {name}: all processes, PSS in GiB")
            python("lab.py", "ssh", "--name", lab.name, name, f"sudo sh -c {shlex.quote(pss)}")
        program(
            *("pytest", "--quiet", "tests/e2e", "-m", "not double"),
            APIARY_LAB=lab.name,
        )
        show_tuning(lab)
        program(*("pytest", "--quiet", "tests/loss/real.py"), APIARY_LAB=lab.name)
    finally:
        python("lab.py", "down", "--name", lab.name)
    print(
        f"\nReal vLLM served from both replicas; {time.monotonic() - started:.0f} s in all."
        " The model's weights are random, and so are its words."
    )


def hosts(lab: Lab, arguments: argparse.Namespace) -> None:
    """Only the hosts, for tests that run playbooks themselves."""
    others = (f"--monitoring={arguments.monitoring}", f"--storage={arguments.storage}")
    start_hosts(lab, arguments.hosts, arguments.fault, arguments.routers, others)


def down(lab: Lab, arguments: argparse.Namespace) -> None:
    """Remove all that the demo made: hosts, image, engine, models, artifacts."""
    del arguments
    python("lab.py", "down", "--name", lab.name, "--all")
    if not any(lab.root.glob("*/hosts.json")):
        for made in (*lab.root.glob("double-*"), lab.root / "models"):
            shutil.rmtree(made, ignore_errors=True)
    print("What stays: .venv (make clean), and packages that the distribution gave.")


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; every refusal is a finding on standard error."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    for run, default in ((up, "demo"), (down, "demo"), (e2e, "e2e"), (hosts, "molecule")):
        sub = commands.add_parser(run.__name__, help=(run.__doc__ or "").splitlines()[0])
        sub.add_argument("--name", default=default, help="the lab's name")
        sub.set_defaults(run=run)
        if run in (up, hosts):
            sub.add_argument("--hosts", type=int, default=1, metavar="N")
        if run is hosts:
            sub.add_argument("--fault", action="append", default=[], metavar="HOST=FAULT")
            for group in ("routers", "monitoring", "storage"):
                sub.add_argument(f"--{group}", type=int, default=0, metavar="N")
    arguments = parser.parse_args(argv)
    # In a pipe, our lines must stay between those of the programs we run.
    sys.stdout.reconfigure(line_buffering=True)
    return guarded(lambda: arguments.run(open_lab(arguments.name), arguments))


if __name__ == "__main__":
    sys.exit(main())
