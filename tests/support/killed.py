# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A role on a simulated host, run as its tasks run it, and killed between any two of its effects.

Evidence and converge run on the host (support/killed_host.py), the role is decided here.
"""

from __future__ import annotations

import json
import subprocess
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path
from typing import Any

import ansible
from ansible_collections.apiary.instinct.plugins.plugin_utils.deployment import Deployment
from ansible_collections.apiary.instinct.plugins.plugin_utils.documents import dumps, from_document
from ansible_collections.apiary.instinct.plugins.plugin_utils.evidence.types import requested
from ansible_collections.apiary.instinct.plugins.plugin_utils.fleet.serving import topology_of
from ansible_collections.apiary.instinct.plugins.plugin_utils.plan.build import architecture_of

from support.halves import WAYS
from support.planned import build_plan
from support.roles import HOST, decide_role

ROOT = Path(__file__).parents[2]
HERE = "/opt/killed"


@dataclass(frozen=True)
class Case:
    """A role with variables on a host that ``setup`` made, or, with ``then``, what follows that.

    ``scopes`` is the evidence that the role gathers; ``values`` are paths of the running kernel,
    ``reads`` the files that a service reads when it starts or reloads. ``printed`` are variables
    that commands on the host print. ``trees`` are more paths that the role changes; of those below
    ``unsteady`` nobody knows what they hold after a kill, and nothing depends on it.
    """

    role: str
    variables: Mapping[str, Any] = field(default_factory=dict)
    then: Mapping[str, Any] | None = None
    scopes: tuple[str, ...] = ()
    programs: tuple[str, ...] = ()
    deployment: Mapping[str, Any] | None = None
    deployment_then: Mapping[str, Any] | None = None
    settings: Mapping[str, Any] | None = None
    secrets: Mapping[str, str] = field(default_factory=dict)
    setup: str = ""
    values: tuple[str, ...] = ()
    reads: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    printed: Mapping[str, str] = field(default_factory=dict)
    trees: tuple[str, ...] = ()
    unsteady: tuple[str, ...] = ()


class Machine:
    """A container of the lab."""

    def __init__(self, container: str) -> None:
        self.container = container
        self.process: subprocess.Popen[str] | None = None

    def shell(self, script: str) -> str:
        """Run a script as root; it must succeed."""
        command = ["docker", "exec", "-i", self.container, "sh", "-eu"]
        done = subprocess.run(command, input=script, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def bring(self) -> None:
        """Bring what runs modules: ours, what they import of Ansible, and what kills them."""
        stream = BytesIO()
        with tarfile.open(fileobj=stream, mode="w") as archive:
            for name in ("killed_host.py", "effects.py", "halves.py"):
                archive.add(Path(__file__).with_name(name), name)
            package = Path(ansible.__file__).parent
            archive.addfile(tarfile.TarInfo("ansible/__init__.py"))
            archive.add(package / "release.py", "ansible/release.py")
            for path in sorted((package / "module_utils").rglob("*.py")):
                archive.add(path, f"ansible/{path.relative_to(package)}")
            for name in ("modules", "module_utils"):
                for path in sorted((ROOT / "plugins" / name).rglob("*.py")):
                    inside = path.relative_to(ROOT)
                    archive.add(path, f"ansible_collections/apiary/instinct/{inside}")
        command = ["docker", "exec", "-i", self.container]
        tar = f"rm -rf {HERE} && mkdir {HERE} && tar -xf - --no-same-owner -C {HERE}"
        done = subprocess.run([*command, "sh", "-c", tar], input=stream.getvalue(), check=False)
        assert done.returncode == 0

    def ask(self, do: str, **request: Any) -> dict[str, Any]:
        """Let the program on the host do something; return its answer."""
        if self.process is None:
            command = ["docker", "exec", "-i", self.container, "/usr/bin/python3", "-u"]
            self.process = subprocess.Popen(
                [*command, f"{HERE}/killed_host.py"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
        assert self.process.stdin
        assert self.process.stdout
        self.process.stdin.write(json.dumps({"do": do, **request}) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        assert line, "the program on the host has ended; its words are above"
        answer: dict[str, Any] = json.loads(line)
        return answer

    def run(self, module: str, args: Mapping[str, Any], **request: Any) -> dict[str, Any] | None:
        """Run a module; return its result with its effects, None where it was killed."""
        answer = self.ask("run", module=module, args=args, **request)
        if answer["killed"]:
            return None
        lines = answer["output"].strip().splitlines()
        assert lines, answer
        assert lines[-1].startswith("{"), answer["output"][-3000:]
        return {**json.loads(lines[-1]), "effects": answer.get("effects", [])}

    def close(self) -> None:
        """End the program on the host."""
        if self.process is not None:
            assert self.process.stdin
            self.process.stdin.close()
            self.process.wait()
            assert self.process.stdout
            self.process.stdout.close()
            self.process = None


class Killed(Exception):  # noqa: N818 - what a test wanted
    """The module was killed before the effect that it was to be killed before."""


class Role:
    """One case on a machine."""

    def __init__(self, machine: Machine, case: Case) -> None:
        self.machine, self.case = machine, case
        # No role changes them, and they take long to read.
        self.gpus: dict[str, Any] = {}
        self.plans: dict[str, dict[str, Any]] = {}
        self.printed: dict[str, str] = {}
        # What dpkg had not finished when a command was killed in the middle.
        self.unfinished = ""

    def gather(self, scopes: Sequence[str]) -> dict[str, Any]:
        """Return evidence of these scopes."""
        words = {**requested(list(scopes)), "programs": list(self.case.programs)}
        gathered = self.machine.run("evidence_info", words)
        assert gathered, scopes
        assert not gathered.get("failed"), gathered
        evidence: dict[str, Any] = gathered["evidence"]
        return evidence

    def plan(self, document: Mapping[str, Any]) -> dict[str, Any]:
        """Return what a deployment is on this host."""
        key = json.dumps(document, sort_keys=True)
        if key not in self.plans:
            deployment = from_document(Deployment, document, "killed")
            topology = topology_of({**self.gather(("gpu",)), "host": HOST}, HOST)
            plan = build_plan(deployment, topology, architecture_of(deployment, "killed"))
            self.plans[key] = json.loads(dumps(plan))
        return self.plans[key]

    def prepare(self) -> None:
        """Make the host what the case begins with, and remember it."""
        self.machine.shell(self.case.setup or "true")
        for name, command in self.case.printed.items():
            self.printed[name] = self.machine.shell(command).strip()
        if self.case.then is not None or self.case.deployment_then is not None:
            self.converge(first=True)
        self.machine.ask("snapshot", values=self.case.values, trees=self.case.trees)

    def state(self) -> dict[str, str]:
        """Return what the host is."""
        case = self.case
        also = {"trees": case.trees, "unsteady": case.unsteady}
        return self.machine.ask("state", values=case.values, reads=case.reads, **also)

    def decide(self, first: bool = False) -> dict[str, Any]:
        """Gather the evidence, and decide as the role does."""
        case = self.case
        evidence: dict[str, Any] = {}
        if case.scopes or case.programs:
            if not self.gpus and "gpu" in case.scopes:
                self.gpus = self.gather(("gpu",))
            evidence = self.gather([scope for scope in case.scopes if scope != "gpu"])
            for part in ("files", "links", "commands") if self.gpus else ():
                evidence[part] = {**self.gpus.get(part, {}), **evidence.get(part, {})}
        variables = case.variables if first or case.then is None else case.then
        first = first or case.deployment_then is None
        deployment = case.deployment if first else case.deployment_then
        arguments: dict[str, Any] = {"evidence": evidence}
        arguments |= {"plan": self.plan(deployment)} if deployment else {}
        arguments |= {"settings": dict(case.settings)} if case.settings else {}
        return decide_role(case.role, {**variables, **self.printed}, **arguments)

    def steps(self, first: bool = False) -> Iterator[list[dict[str, Any]]]:
        """Yield the lists of resources that the role's tasks converge, one after the other."""
        decided = self.decide(first)
        programs = decided["plan"].get("programs") or []
        if programs:
            yield programs
            decided = self.decide(first)
        yield [item for item in decided["resources"] if "part" not in item]
        later = [item for item in decided["resources"] if "part" in item]
        if later:
            yield later

    def converge(
        self, first: bool = False, before: int | None = None, torn: str = ""
    ) -> tuple[bool, list[list[Any]]]:
        """Run the role; return whether it changed something, and its effects.

        With ``before`` it is killed before that effect, and raises Killed.
        """
        changed, effects = False, []
        for resources in self.steps(first):
            left = None if before is None else before - len(effects)
            arguments = {"resources": resources, "secrets": dict(self.case.secrets)}
            result = self.machine.run("converge", arguments, before=left, torn=torn)
            if result is None:
                raise Killed
            assert not result.get("failed"), result.get("msg")
            changed = changed or result["changed"]
            effects += result["effects"]
        return changed, effects

    def restore(self) -> None:
        """Bring the host back to what the case begins with."""
        answer = self.machine.ask("restore")
        assert not answer["not_back"], answer

    def survives(
        self, effects: Sequence[Sequence[Any]], before: int, torn: str, expected: dict[str, str]
    ) -> None:
        """Kill the role before an effect; the next run must end as one that was never killed."""
        where = f"{self.case.role} killed before {before}: {effects[before - 1][0]} {torn}"
        self.restore()
        try:
            self.converge(before=before, torn=torn)
        except Killed:
            if torn in WAYS:
                self.unfinished += self.machine.shell("dpkg --audit || true")
            self.converge()
            now = self.state()
            names = sorted(set(expected) | set(now))
            pairs = {name: (expected.get(name), now.get(name)) for name in names}
            differing = {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}
            assert differing == {}, (where, differing)
            assert not self.converge()[0], where
        # A name with the time in it is not written again: such a run has an effect less.


def points(effects: Sequence[Sequence[Any]]) -> list[tuple[int, str]]:
    """Return before which effects a run is killed, and how it leaves that effect half done."""
    return [
        (number, torn)
        for number, (_words, ways) in enumerate(effects, 1)
        for torn in ("", *ways)
        if number > 1
    ]
