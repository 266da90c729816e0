# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The demo's plan, to run in containers; a real quadlet generator; systemd's reading of a line."""

from __future__ import annotations

import dataclasses
import hashlib
import os
import re
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

from ansible_collections.apiary.instinct.plugins.plugin_utils.plan.types import Plan

from labkit.state import held
from support.demo import demo_plan

IMAGE = "docker.io/vllm/vllm-openai-rocm:v0.33.0@sha256:" + "1f" * 32
INSTALLED = ("/usr/libexec/podman/quadlet", "/usr/lib/podman/quadlet")
ROOT = Path(__file__).parents[3]
# The oldest Debian release whose Podman has a generator; Debian 12's (4.3) has none.
SUITE = "trixie"


def container_plan(runtime: str, **changes: object) -> Plan:
    """Return the demo's plan with another runtime; ``changes`` are of the engine."""
    plan = demo_plan()
    engine = dataclasses.replace(
        plan.deployment.engine, **{"runtime": runtime, "image": IMAGE, **changes}
    )
    deployment = dataclasses.replace(plan.deployment, engine=engine, secrets=("VLLM_API_KEY",))
    return dataclasses.replace(plan, deployment=deployment)


def with_replica(plan: Plan, index: int, **changes: object) -> Plan:
    """Return the plan with one replica changed."""
    replicas = list(plan.replicas)
    replicas[index] = dataclasses.replace(replicas[index], **changes)
    return dataclasses.replace(plan, replicas=tuple(replicas))


@cache
def quadlet_generator() -> tuple[Path | None, str]:
    """Return Podman's generator and why there is none: installed, or of a newer Debian's package.

    apt itself fetches and proves the package, in directories of its own below .lab.
    """
    for path in INSTALLED:
        if os.access(path, os.X_OK):
            return Path(path), ""
    work = ROOT / ".lab" / "quadlet"
    with held(work / "lock"):
        found = work / "root/usr/libexec/podman/quadlet"
        if not found.exists():
            problem = _fetch(work)
            if problem:
                return None, problem
    return found, ""


def _fetch(work: Path) -> str:
    """Put the package's files below work/root; return why that failed."""
    keys = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
    if not keys.exists() or shutil.which("apt-get") is None:
        return "no quadlet generator, and no apt with Debian's keys to fetch one"
    sys.path.insert(0, str(ROOT / "tests/lab"))
    from labkit.apt_sources import choose_mirror, parse_os_release, read_sources

    try:
        release = parse_os_release(Path("/etc/os-release").read_text(encoding="utf-8"))
        mirror = choose_mirror(release, read_sources())
    except Exception as refusal:
        return f"no mirror of Debian's: {refusal}"
    if mirror.distribution != "debian":
        return "no quadlet generator, and the machine's mirror is not Debian's"
    (work / "sources.list").write_text(
        f"deb [signed-by={keys}] {mirror.uri} {SUITE} main\n", encoding="utf-8"
    )
    for name in ("lists/partial", "cache/archives/partial"):
        (work / name).mkdir(parents=True, exist_ok=True)
    options = [
        f"-oDir::Etc::SourceList={work}/sources.list",
        "-oDir::Etc::SourceParts=-",
        f"-oDir::State::Lists={work}/lists",
        f"-oDir::Cache={work}/cache",
        "-oAPT::Sandbox::User=root",
        "-oAcquire::Languages=none",
        # Without it a mirror that does not answer is a success.
        "-oAPT::Update::Error-Mode=any",
    ]
    for command in (["update"], ["download", "podman"]):
        done = subprocess.run(
            ["apt-get", "--quiet", *options, *command],
            cwd=work,
            capture_output=True,
            text=True,
            timeout=300,
        )
        if done.returncode:
            return f"apt-get {command[0]}: {done.stderr.strip().splitlines()[-1:]}"
    package = next(work.glob("podman_*.deb"))
    done = subprocess.run(["dpkg-deb", "-x", package, work / "root"], capture_output=True)
    package.unlink()
    shutil.rmtree(work / "lists")
    return done.stderr.decode() if done.returncode else ""


def generate(directory: Path) -> dict[str, str]:
    """Return {service: text} that the generator makes of a directory's quadlets."""
    program, problem = quadlet_generator()
    assert program is not None, problem
    out = directory.parent / f"generated-{hashlib.sha256(str(directory).encode()).hexdigest()[:8]}"
    out.mkdir(exist_ok=True)
    done = subprocess.run(
        [program, "--no-kmsg-log", str(out)],
        env={"QUADLET_UNIT_DIRS": str(directory), "PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return {path.name: path.read_text(encoding="utf-8") for path in out.glob("*.service")}


def exec_words(unit: str, environment: dict[str, str]) -> list[str]:
    """Return the words of ExecStart= as systemd runs them.

    Quotes, backslashes, %% and $ as in systemd.syntax(7) and systemd.service(5), "Command lines".
    """
    text = unit.replace("\\\n", " ")
    line = next(line for line in text.splitlines() if line.startswith("ExecStart="))
    words: list[str] = []
    for raw in re.findall(r'"(?:\\.|[^"\\])*"|[^ \t"]+', line.removeprefix("ExecStart=")):
        if re.fullmatch(r"\$\w+", raw):
            words += environment.get(raw[1:], "").split()
            continue
        word = _unescaped(raw[1:-1] if raw.startswith('"') else raw).replace("%%", "%")
        words.append(
            re.sub(
                r"\$\$|\$\{(\w+)\}",
                lambda found: environment.get(found[1], "") if found[1] else "$",
                word,
            )
        )
    return words


def _unescaped(text: str) -> str:
    plain = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "f": "\f", "v": "\v", "s": " "}

    def one(found: re.Match[str]) -> str:
        if found[1]:
            return bytes.fromhex(found[1].replace("\\x", "")).decode()
        return plain.get(found[2], found[2])

    return re.sub(r"((?:\\x[0-9a-f]{2})+)|\\(.)", one, text)
