# SPDX-License-Identifier: GPL-3.0-or-later

"""What `apiary rollout` keeps on the controller: runs, ledgers, and the lock between operators."""

from __future__ import annotations

import contextlib
import fcntl
import getpass
import hashlib
import json
import os
import platform
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TextIO

from ansible_collections.apiary.instinct.plugins.module_utils.durable import write_durably
from ansible_collections.apiary.instinct.plugins.plugin_utils.documents import dumps
from ansible_collections.apiary.instinct.plugins.plugin_utils.findings import error
from ansible_collections.apiary.instinct.plugins.plugin_utils.fleet.ledger import Ledger
from ansible_collections.apiary.instinct.plugins.plugin_utils.fleet.runs import FleetRollout
from ansible_collections.apiary.instinct.plugins.plugin_utils.fleet.saved import (
    FLEET,
    attempt,
    host_directory,
    ledger_path,
    load,
    load_quarantine,
    read_ledger,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.fleet.types import Quarantine, Survey
from ansible_collections.apiary.instinct.plugins.plugin_utils.run_owner import (
    keep_sign,
    sign_of,
    silent_seconds,
    untouched_seconds,
)

# A lock is touched so often, and is of a run that is gone when it was not for so long; one of an
# earlier release is not touched, and says so.
TOUCH_SECONDS, GONE_SECONDS = 30, 600


def operator() -> str:
    """Return who runs the command, also behind sudo."""
    return os.environ.get("SUDO_USER") or getpass.getuser()


def controller() -> str:
    """Return the name of this machine."""
    return platform.node()


class Store:
    """The directory <artifacts>/fleet, and the artifacts of hosts beside it."""

    def __init__(self, artifacts: Path) -> None:
        self.artifacts = artifacts
        self.fleet = artifacts / FLEET

    def run_directory(self, run: str) -> Path:
        """Return where a run's document and ansible-runner's artifacts of its waves are."""
        return self.fleet / "runs" / run

    def runs(self) -> list[str]:
        """Return the ids of all runs, oldest first."""
        return sorted(path.parent.name for path in self.fleet.glob("runs/*/run.json"))

    def load_run(self, run: str) -> FleetRollout:
        """Return a run, the last one for "last"; raise FLEET-NO-RUN where there is none."""
        existing = self.runs()
        name = existing[-1] if run == "last" and existing else run
        result = load(FleetRollout, self.run_directory(name) / "run.json")
        if result is None:
            raise error(
                "FLEET-NO-RUN",
                run,
                f"is no run below {self.fleet / 'runs'}",
                names=", ".join(existing[-5:]) or "none",
            )
        return result

    def last_change(self) -> FleetRollout | None:
        """Return the last run that was more than a check, None without one."""
        runs = (self.load_run(name) for name in reversed(self.runs()))
        return next((run for run in runs if not run.asked.check), None)

    def save_run(self, run: FleetRollout) -> None:
        """Write a run's document so that it is there after a crash."""
        save(self.run_directory(run.id) / "run.json", dumps(run))

    def ledger(self, host: str) -> Ledger:
        """Return a host's ledger, an empty one where it has none."""
        return read_ledger(self._directory(host))

    def save_ledger(self, ledger: Ledger) -> None:
        """Write a host's ledger so that it is there after a crash."""
        save(ledger_path(self._directory(ledger.host)), dumps(ledger))

    def quarantine(self, host: str) -> Quarantine | None:
        """Return why a host was put aside, None where it was not."""
        return load_quarantine(self._directory(host), [])

    def plan_digest(self, host: str) -> str:
        """Return the digest of the plan.json that is kept of a host, "" for none."""
        try:
            content = (self._directory(host) / "plan.json").read_bytes()
        except OSError:
            return ""
        return hashlib.sha256(content).hexdigest()

    def survey(self, host: str) -> Survey | None:
        """Return what the last survey of a host left."""
        return attempt(Survey, self._directory(host) / "survey.json", [])

    def _directory(self, host: str) -> Path:
        return host_directory(self.artifacts, host)


def save(path: Path, content: str) -> None:
    """Write a file so that it is there after a crash; raise FILE-UNWRITABLE."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_durably(str(path), content)
    except OSError as failure:
        raise error(
            "FILE-UNWRITABLE", str(path), f"cannot be written: {failure.strerror or failure}"
        ) from failure


class Lock:
    """The lock of one artifacts directory: who has it, and how others can tell."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.record: dict[str, Any] = {}
        self._stream: Any = None

    def holder(self) -> dict[str, Any]:
        """Return what the lock says while it is held, empty while nobody holds it."""
        try:
            with open(self.path, encoding="utf-8") as stream:
                fcntl.flock(stream, fcntl.LOCK_SH | fcntl.LOCK_NB)
                return {}
        except FileNotFoundError:
            return {}
        except OSError:
            return _record_in(self.path)

    def child(self, pid: int) -> None:
        """Note the ansible-playbook of this run: it may outlive the command."""
        if self.record.get("child") != pid:
            self.record |= {"child": pid, "child_begun": _begun(pid)}
            self._write(json.dumps(self.record))
            keep_sign(child_sign(self.path, self.record), pid)

    def _write(self, text: str) -> None:
        self._stream.seek(0)
        self._stream.truncate()
        self._stream.write(text)
        self._stream.flush()

    def _touch(self, ended: threading.Event) -> None:
        """Show other machines that this run is alive."""
        while not ended.wait(TOUCH_SECONDS):
            with contextlib.suppress(OSError, ValueError):
                os.utime(self._stream.fileno())

    def _opened(self) -> TextIO:
        """Return the lock's file, which all who may write beside it may take."""
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            there = self.path.exists()
            stream = open(self.path, "a+", encoding="utf-8")  # noqa: SIM115 - the caller closes it
            if not there:
                shared = self.path.parent.stat().st_mode & 0o022
                os.fchmod(stream.fileno(), 0o644 | shared)
        except OSError as failure:
            raise error(
                "FILE-UNWRITABLE",
                str(self.path),
                f"cannot be opened: {failure.strerror or failure}",
            ) from failure
        return stream

    @contextlib.contextmanager
    def held(self, run: str, since: str, take_over: bool = False) -> Iterator[Lock]:
        """Hold the lock; raise FLEET-LOCKED while somebody else does.

        The kernel gives it back when the process ends, however it ends; the ansible-playbook of a
        killed command is asked for by its pid. One of another machine, as a job's container is, is
        gone when it has not touched the lock for some minutes, nor its ansible-playbook a sign.
        """
        with self._opened() as stream:
            try:
                fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise _locked(self.path, _read(stream), "it is at work") from None
            before = _read(stream)
            reason = _alive(before, _silent(stream, before))
            if reason and not take_over:
                raise _locked(self.path, before, reason)
            self._stream = stream
            self.record = {
                "holder": operator(),
                "host": controller(),
                "pid": os.getpid(),
                "since": since,
                "run": run,
                "touched": True,
            }
            self._write(json.dumps(self.record))
            ended = threading.Event()
            threading.Thread(target=self._touch, args=(ended,), daemon=True).start()
            try:
                yield self
            finally:
                ended.set()
                # Also where it ended in an error: only what may still run is left to be seen.
                if not _alive(self.record):
                    with contextlib.suppress(OSError):
                        self._write("")


def _read(stream: Any) -> dict[str, Any]:
    stream.seek(0)
    try:
        record = json.loads(stream.read() or "{}")
    except ValueError:
        return {}
    return record if isinstance(record, dict) else {}


def _record_in(path: Path) -> dict[str, Any]:
    with open(path, encoding="utf-8") as stream:
        return _read(stream)


def child_sign(lock: Path, record: dict[str, Any]) -> Path:
    """Return the file that is touched while the ansible-playbook of a run lives."""
    process = " ".join(str(record.get(name)) for name in ("host", "child", "child_begun"))
    return sign_of(lock.parent, process)


def _silent(stream: TextIO, record: dict[str, Any]) -> float | None:
    """Return for how long neither a command nor its child has shown itself; None: not known."""
    own = untouched_seconds(stream) if record.get("touched") else None
    if own is None or "child" not in record:
        return own
    child = silent_seconds(child_sign(Path(stream.name), record))
    return None if child is None else min(own, child)


def _alive(record: dict[str, Any], silent: float | None = None) -> str:
    """Return why the lock of one who does not hold it any more still counts, "" if it does not."""
    if not record:
        return ""
    if record.get("host") != controller():
        reason = "whether it still runs cannot be seen from here"
        if silent is None:
            return reason
        left = max(1, round((GONE_SECONDS - silent) / 60))
        return "" if silent > GONE_SECONDS else f"{reason}; if not, its lock ends in {left} min"
    child = record.get("child")
    if (
        isinstance(child, int)
        and record.get("child_begun")
        and _begun(child) == record["child_begun"]
    ):
        return f"it was killed, but its ansible-playbook (process {child}) still runs"
    return ""


def _begun(pid: int) -> str:
    """Return when a process began, in the kernel's own units; "" where there is none."""
    try:
        after_name = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2]
    except OSError:
        return ""
    fields = after_name.split()
    return "" if fields[0] == "Z" else fields[19]


def _locked(path: Path, record: dict[str, Any], reason: str) -> Exception:
    who = f"{record.get('holder', 'somebody')} on {record.get('host', 'this machine')}"
    return error(
        "FLEET-LOCKED",
        str(path),
        f"{who}, process {record.get('pid', '?')}, has been at run {record.get('run', '?')} since "
        f"{record.get('since', '?')}; {reason}",
    )
