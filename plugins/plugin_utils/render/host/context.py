# SPDX-License-Identifier: GPL-3.0-or-later

"""What every step of a replica's life needs: launch document, facts, service manager, a way out."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import time
from collections.abc import Mapping
from dataclasses import dataclass, fields
from types import FrameType
from typing import Any, ClassVar, Literal, NamedTuple

from ....module_utils.finding import ApiaryError, error
from ....module_utils.kfd import read
from .output import Journal, Notifier


class Event(NamedTuple):
    """Something that happened elsewhere: a signal, an answer of the engine."""

    kind: str
    value: Any = None


class Context:
    """One replica on one host. ``root`` holds sys/, proc/ and dev/."""

    def __init__(
        self,
        spec: LaunchSpec,
        life: dict[str, Any],
        environment: Mapping[str, str],
        root: str = "/",
    ) -> None:
        self.spec, self.life, self.environment, self.root = spec, life, environment, root
        self.notifier = Notifier(environment)
        self.journal = Journal(by_systemd="JOURNAL_STREAM" in environment)
        self.events: queue.SimpleQueue[Event] = queue.SimpleQueue()
        self.stopping = False
        self._extended = float("-inf")
        directory = environment.get("RUNTIME_DIRECTORY", "").split(":")[0]
        self.phase_file = os.path.join(directory, "phase") if directory else None

    def listen(self) -> None:
        """Take signals as events from now on; as the first process of a container none is lost."""

        def stop(number: int, frame: FrameType | None) -> None:
            del number, frame
            self.stopping = True
            self.events.put(Event("stop"))

        def child(number: int, frame: FrameType | None) -> None:
            del number, frame
            self.events.put(Event("child"))

        signal.signal(signal.SIGTERM, stop)
        signal.signal(signal.SIGINT, stop)
        signal.signal(signal.SIGCHLD, child)

    def next_event(self, seconds: float) -> Event | None:
        """Return the next event, or None when there was none for so long."""
        try:
            return self.events.get(timeout=max(seconds, 0.001))
        except queue.Empty:
            return None

    def pause(self, seconds: float) -> None:
        """Let time pass before the engine runs; raises StoppedError at once when told to stop."""
        end = time.monotonic() + seconds
        while True:
            if self.stopping:
                raise StoppedError
            left = end - time.monotonic()
            self.extend()
            if left <= 0:
                return
            self.next_event(min(left, 1.0))

    def extend(self) -> None:
        """Say now and then that the start goes on."""
        start = self.life["start"]
        now = time.monotonic()
        if now - self._extended >= start["extend_every_seconds"]:
            self._extended = now
            self.notifier.extend(start["extend_by_seconds"])

    def publish(self, phase: str) -> None:
        """Write the phase where other replicas of the host read it."""
        if self.phase_file is not None:
            self._write(self.phase_file, phase)

    def record(self, name: str, facts: Mapping[str, Any]) -> None:
        """Write facts beside the phase: metrics, evidence and support bundles read them."""
        if self.phase_file is not None:
            path = os.path.join(os.path.dirname(self.phase_file), name)
            self._write(path, json.dumps({"at": int(time.time()), **facts}))

    def recorded(self, name: str) -> dict[str, Any]:
        """Return what an earlier start recorded; nothing where that cannot be read."""
        path = os.path.join(os.path.dirname(self.phase_file or ""), name)
        try:
            facts = json.loads(read(path)) if self.phase_file else {}
        except ValueError:
            return {}
        return facts if isinstance(facts, dict) else {}

    def _write(self, path: str, text: str) -> None:
        # A full disk stops nobody.
        with contextlib.suppress(OSError):
            with open(path + ".new", "w", encoding="utf-8") as stream:
                stream.write(text + "\n")
            os.chmod(path + ".new", 0o644)
            os.replace(path + ".new", path)

    def report(self, refusal: ApiaryError) -> None:
        """Put findings into the journal, and what they are about into the status."""
        for finding in refusal.findings:
            finding = finding.about(self.spec.unit)
            self.notifier.status(f"{finding.code}: {finding.subject}: {finding.message}")
            for line in str(finding).splitlines():
                self.journal.say(line, finding.severity)


@dataclass(frozen=True)
class LaunchSpec:
    """One replica as its supervisor needs it; the engine's command stands in the unit.

    ``weights`` is the model's directory, ``probe_address`` where the supervisor asks its engine,
    ``secrets`` the credentials that become variables of the engine. ``after`` are units of the
    same host that shall have read the weights first. An engine that makes no token for
    ``hang_seconds`` while it has requests hangs. A ``headless`` one is a further host of a replica:
    its API is the first host's, at ``probe_address``. Times are in seconds.
    At ``agent_port`` routers ask whether it takes requests; None where none can. It is sent
    ``quality_questions_per_hour`` questions whose answers are known.
    """

    SCHEMA: ClassVar[str] = "apiary.launch/v1"

    unit: str
    deployment: str
    replica: int
    runtime: Literal["native", "quadlet", "docker"]
    gpus: tuple[str, ...]
    cpus: str | None
    memory_nodes: tuple[int, ...]
    listen_address: str
    probe_address: str
    port: int
    model_name: str
    weights: str
    secrets: tuple[str, ...]
    after: tuple[str, ...]
    start_timeout_seconds: int
    drain_timeout_seconds: int
    hang_seconds: int
    headless: bool = False
    agent_port: int | None = None
    quality_questions_per_hour: int = 0


def read_spec(path: str) -> LaunchSpec:
    """Return the document in a file; raises REPLICA-SPEC. Fields it doesn't know are ignored."""
    try:
        with open(path, encoding="utf-8") as stream:
            document = json.load(stream)
        if document.get("schema") != LaunchSpec.SCHEMA:
            raise ValueError(f"its schema is {document.get('schema')!r}, not {LaunchSpec.SCHEMA}")
        values = {
            item.name: document[item.name] for item in fields(LaunchSpec) if item.name in document
        }
        for name in ("gpus", "memory_nodes", "secrets", "after"):
            values[name] = tuple(values[name])
        return LaunchSpec(**values)
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as failure:
        raise replica_error("REPLICA-SPEC", f"cannot read {path}: {failure}") from failure


def read_life(path: str | None = None) -> dict[str, Any]:
    """Return the facts that lie beside this package as life.json (knowledge/serving/life.yml)."""
    path = path or os.path.join(os.path.dirname(os.path.abspath(__file__)), "life.json")
    with open(path, encoding="utf-8") as stream:
        document: dict[str, Any] = json.load(stream)
    return document


def replica_error(code: str, message: str, minor: bool = False, **values: str) -> ApiaryError:
    """Return why a start must not happen, or an engine must not go on.

    Its subject is the unit, which whoever prints it knows.
    """
    return error(code, "replica", message, minor=minor, **values)


class StoppedError(Exception):
    """The service manager wants the replica down."""
