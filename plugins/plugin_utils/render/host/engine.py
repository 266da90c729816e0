# SPDX-License-Identifier: GPL-3.0-or-later

"""The engine as a process with all that it starts, and files of its user alone that it reads."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import select
import signal
import subprocess
import threading
from collections.abc import Callable, Iterable, Mapping

from ....module_utils.kfd import read
from .context import Context, replica_error
from .output import Journal, Pump

_SET_PDEATHSIG, _SET_CHILD_SUBREAPER = 1, 36  # linux/prctl.h
_LIBC = ctypes.CDLL(None, use_errno=True)


def adopt_orphans() -> None:
    """Become the parent of whatever loses its own, so that none of the engine's gets away."""
    _LIBC.prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


class Engine:
    """One engine, in a session of its own; ``status`` is None while it lives.

    The status is the exit status, or minus the number of the signal that ended it.
    """

    def __init__(
        self,
        command: list[str],
        environment: Mapping[str, str],
        journal: Journal,
        see: Callable[[str], None],
        secrets: Iterable[str] = (),
    ) -> None:
        self.status: int | None = None
        pipes = [os.pipe(), os.pipe()]
        try:
            self._process = subprocess.Popen(
                command,
                env=dict(environment),
                stdin=subprocess.DEVNULL,
                stdout=pipes[0][1],
                stderr=pipes[1][1],
                start_new_session=True,
                # No thread runs yet that could hold a lock across the fork.
                preexec_fn=_die_with_parent,
            )
        except OSError as failure:
            raise replica_error(
                "REPLICA-NO-ENGINE", f"cannot run {command[0]}: {failure.strerror}"
            ) from failure
        finally:
            for _reading, writing in pipes:
                os.close(writing)
        self.pid = self._process.pid
        self._pumps = [
            Pump(reading, journal.sink(number), see, secrets)
            for number, (reading, _writing) in enumerate(pipes, start=1)
        ]
        for pump in self._pumps:
            pump.start()

    def reap(self) -> None:
        """Take the status of the engine if it ended, and of orphans that were adopted."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if pid == self.pid:
                code = os.waitstatus_to_exitcode(status)
                self.status = self._process.returncode = code

    def watch_core(self, names: list[str], gone: Callable[[], object]) -> None:
        """Call ``gone`` from a thread when a process of these names ends; needs Linux 5.3."""
        watched = []
        for pid in descendants(os.getpid()):
            with contextlib.suppress(OSError, AttributeError):
                if read(f"/proc/{pid}/comm") in names:
                    watched.append(os.pidfd_open(pid))
        if watched:
            arguments = (watched, gone)
            threading.Thread(target=_await_end, args=arguments, name="core", daemon=True).start()

    def terminate(self) -> None:
        """Ask the engine itself to end; its children are its own to end."""
        with contextlib.suppress(OSError):
            os.kill(self.pid, signal.SIGTERM)

    def kill(self, spared: int | None = None) -> bool:
        """Kill all that the engine started; say whether nothing is left. Call until True."""
        for pid in descendants(os.getpid()):
            if pid != spared:
                with contextlib.suppress(OSError):
                    os.kill(pid, signal.SIGKILL)
        self.reap()
        return not descendants(os.getpid())

    def drained(self, seconds: float) -> None:
        """Wait until the last of its output is handed on, at most so long each."""
        for pump in self._pumps:
            pump.join(seconds)


def _await_end(descriptors: list[int], gone: Callable[[], object]) -> None:
    # A descriptor of a process is readable once it has ended (pidfd_open(2)).
    select.select(descriptors, [], [])
    gone()


def _die_with_parent() -> None:
    _LIBC.prctl(_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def descendants(ancestor: int) -> list[int]:
    """Return every process below one, nearest first."""
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat", "rb") as stream:
                    text = stream.read()
            except OSError:
                continue
            # The name may hold anything, a closing bracket too.
            parent = int(text[text.rindex(b")") + 2 :].split()[1])
            children.setdefault(parent, []).append(int(name))
    pids: list[int] = []
    level = [ancestor]
    while level:
        level = [child for parent in level for child in children.get(parent, ())]
        pids.extend(level)
    return pids


def key_arguments(context: Context, keys: list[str]) -> list[str]:
    """Return the engine's arguments for several keys; for one there is a variable.

    They are in a file of the engine's user alone, vLLM's own configuration, because everybody on
    the host may read arguments. JSON is YAML.
    """
    directory = context.environment.get("RUNTIME_DIRECTORY", "").split(":")[0]
    path = os.path.join(directory, "keys.yaml")
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
    if len(keys) < 2:
        return []
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "w", encoding="ascii") as stream:
        json.dump({"api-key": keys}, stream)
    return ["--config", path]


def certificate_file(context: Context) -> str | None:
    """Return where a replica that speaks TLS has its certificate, its key and the authority."""
    name = f"{context.spec.deployment}.pem"
    directory = context.environment.get("CREDENTIALS_DIRECTORY", "")
    return os.path.join(directory, name) if name in context.spec.secrets else None


def tls_arguments(context: Context, path: str | None) -> list[str]:
    """Return the engine's arguments for TLS; one that serves no HTTP has none."""
    if path is None or context.spec.headless:
        return []
    return ["--ssl-certfile", path, "--ssl-keyfile", path]
