# SPDX-License-Identifier: GPL-3.0-or-later

"""Run a playbook through ansible-runner, as `ansible-playbook` in this directory would run it."""

from __future__ import annotations

import json
import os
import shlex
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ansible_collections.apiary.instinct.plugins.plugin_utils import findings as collection
from ansible_collections.apiary.instinct.plugins.plugin_utils.files import write_text
from ansible_collections.apiary.instinct.plugins.plugin_utils.findings import error

from apiary.app.ansible_config import own_config
from apiary.app.runner_events import EventLog, Failed

PLAYBOOKS = Path(collection.__file__).parents[2] / "playbooks"
# How often ansible-runner looks whether it is to stop.
POLL_SECONDS = 0.5
# What ansible-playbook gets to end by itself after it was told to.
GRACE_SECONDS = 10.0
# Of longer results ansible-runner passes on only what Ansible prints.
LONGEST_RESULT = 50_000

# A file for each task of each host that went well is what a fleet drowns in; stdout has them all.
UNKEPT = frozenset(
    {"runner_on_start", "runner_on_ok", "runner_on_skipped"}
    | {"runner_item_on_ok", "runner_item_on_skipped", "verbose"}
)
EXTRA_VARS = "extra_vars.json"
_PROMPTS = {
    "ask_pass": "connection_password_file, or log in with a key",
    "become_ask_pass": "become_password_file, or ansible_become_password from a vault",
    "ask_vault_pass": "--vault-password-file",
}
# What ansible-runner itself says of a run that did not end by itself.
KILLED = 254

Event = Mapping[str, Any]


@dataclass(frozen=True)
class Ended:
    """How a playbook ended.

    ``rc`` is ansible-playbook's, ``status`` "successful", "failed" or "canceled". ``counts`` are
    Ansible's own numbers by host ({"ok": 3, "changed": 1, "failures": 0, "dark": 0, …}), empty
    where it did not get as far as that. ``failed`` says why, by host. ``custom`` is what the
    playbook's set_stats tasks reported of the host that they ran for, of localhost alone anything.
    ``touched`` are hosts that a task was begun on, ``aborted`` says whether a play ended early for
    all of its hosts (any_errors_fatal), ``output`` is what Ansible printed last where there are no
    counts.
    """

    rc: int
    status: str
    counts: Mapping[str, Mapping[str, int]]
    failed: Mapping[str, Failed]
    custom: Mapping[str, Any] = field(default_factory=dict)
    touched: frozenset[str] = frozenset()
    aborted: bool = False
    output: str = ""


def playbook_path(name: str) -> Path:
    """Return a playbook of the collection by its name, or the file that a path names.

    Raises FLEET-PLAYBOOK where there is neither.
    """
    own = PLAYBOOKS / f"{name}.yml"
    if "/" not in name and own.is_file():
        return own
    file = Path(name)
    if file.is_file():
        return file.absolute()
    available = ", ".join(sorted(path.stem for path in PLAYBOOKS.glob("*.yml")))
    raise error("FLEET-PLAYBOOK", name, "is no playbook of Apiary and no file", available=available)


def refuse_prompts() -> None:
    """Raise FLEET-PROMPT where Ansible's configuration has it ask for a password.

    ansible-runner gives it a terminal at which nobody sits, so it would wait for ever.
    """
    from ansible import constants  # slow to import, and mostly not needed

    for name, instead in _PROMPTS.items():
        if getattr(constants, f"DEFAULT_{name.upper()}", False):
            raise error(
                "FLEET-PROMPT",
                f"{name} in Ansible's configuration",
                "has Ansible ask for a password, and here nobody would be asked",
                name=name.upper(),
                instead=instead,
            )


def arguments(
    *,
    inventory: Sequence[str] = (),
    limit: str | None = None,
    extra: Sequence[str] = (),
    check: bool = False,
    diff: bool = False,
    tags: str | None = None,
    skip_tags: str | None = None,
    forks: int | None = None,
    vault_password_files: Sequence[str] = (),
) -> list[str]:
    """Return the options of ansible-playbook; ``extra`` are values of -e."""
    words: list[str] = []
    for source in inventory:
        words += ["-i", source]
    if limit is not None:
        words += ["--limit", limit]
    for item in extra:
        words += ["-e", item]
    for option, value in (("--tags", tags), ("--skip-tags", skip_tags), ("--forks", forks)):
        if value is not None:
            words += [option, str(value)]
    for vault_password_file in vault_password_files:
        words += ["--vault-password-file", vault_password_file]
    return [*words, *(["--check"] if check else []), *(["--diff"] if diff else [])]


def run_playbook(
    playbook: str | Path,
    *,
    inventory: Sequence[str] = (),
    limit: Sequence[str] | None = None,
    extra_vars: Mapping[str, Any] | None = None,
    extra: Sequence[str] = (),
    artifacts: Path,
    on_event: Callable[[Event], None] | None = None,
    environment: Mapping[str, str] | None = None,
    stop: Callable[[], bool] | None = None,
    **options: Any,
) -> Ended:
    """Run a playbook, found as `playbook_path` says, and return how it ended.

    ``inventory`` are Ansible's sources, none for the configured one; ``limit`` host names or
    patterns; ``extra_vars`` go by a file that only this user reads, and are gone afterwards;
    ``extra`` are further values of -e, meant for "@FILE". ansible-runner's artifacts go to the
    directory ``artifacts``, which must be new. ``on_event`` gets each event of ansible-runner.
    ``stop`` is asked twice a second whether the run is to end at once; ``options`` are further ones
    of `arguments`.
    Raises FLEET-PLAYBOOK, FLEET-PROMPT, and FILE-UNWRITABLE where the artifacts cannot be written.
    """
    path = playbook_path(str(playbook))
    refuse_prompts()
    reported = EventLog()
    limited = None
    if limit is not None:
        limited = f"@{artifacts.absolute() / 'limit'}"
        write_text(artifacts / "limit", "".join(f"{item}\n" for item in limit))
    with tempfile.TemporaryDirectory(prefix="apiary-run-") as private:
        _private(Path(private), "env/settings", {"pexpect_timeout": POLL_SECONDS})
        values = list(extra)
        if extra_vars:
            _private(Path(private), EXTRA_VARS, extra_vars)
            values.append(f"@{private}/{EXTRA_VARS}")
        words = arguments(
            inventory=[_absolute(source) for source in inventory],
            limit=limited,
            extra=values,
            **options,
        )
        stopper = _Stopper(stop or (lambda: False), reported)
        runner = _runner(private, path, words, artifacts, environment, reported, on_event, stopper)
        try:
            runner.run()
        except OSError as failure:
            if reported.pid is not None:
                os.kill(reported.pid, signal.SIGTERM)  # nobody is left to hear it
            raise error(
                "FILE-UNWRITABLE",
                str(artifacts),
                f"cannot be written: {failure.strerror or failure}",
            ) from failure
    status = "canceled" if stopper.asked_at is not None else str(runner.status)
    return Ended(
        rc=KILLED if runner.rc is None else int(runner.rc),
        status=status,
        counts=reported.counts,
        failed=reported.failed(),
        custom=reported.custom,
        touched=frozenset(reported.touched),
        aborted=reported.aborted,
        output="" if reported.counts else _tail(artifacts / "stdout"),
    )


def _runner(
    private: str,
    path: Path,
    words: Sequence[str],
    artifacts: Path,
    environment: Mapping[str, str] | None,
    log: EventLog,
    on_event: Callable[[Event], None] | None,
    stopper: _Stopper,
) -> Any:
    """Return ansible-runner's runner with nothing set that the operator did not set."""
    from ansible_runner.interface import init_runner  # slow to import, and not always needed

    def handle(event: dict[str, Any]) -> bool:
        log(event)
        if event.get("event") == "playbook_on_start":
            # Ansible has read it; were this process killed, nobody would take it away.
            (Path(private) / EXTRA_VARS).unlink(missing_ok=True)
        if on_event is not None:
            on_event(event)
        return event.get("event") not in UNKEPT

    def status(state: Mapping[str, Any], runner_config: Any) -> None:
        if state["status"] == "running":
            _forget_environment(Path(runner_config.artifact_dir) / "command")

    artifacts.parent.mkdir(parents=True, exist_ok=True)
    runner = init_runner(
        private_data_dir=private,
        project_dir=os.getcwd(),
        artifact_dir=str(artifacts.absolute().parent),
        ident=artifacts.name,
        playbook=str(path),
        cmdline=shlex.join(words),
        envvars={
            "MAX_EVENT_RES": str(LONGEST_RESULT),
            "ANSIBLE_NOCOLOR": "1",
            **own_config(),
            **(environment or {}),
        },
        suppress_env_files=True,
        fact_cache_type="",  # the configured one stays
        quiet=True,
        event_handler=handle,
        status_handler=status,
        cancel_callback=stopper,
    )
    if "ANSIBLE_HOST_KEY_CHECKING" not in {**os.environ, **(environment or {})}:
        # ansible-runner switches it off; whether it is on is ansible.cfg's to say.
        runner.config.env.pop("ANSIBLE_HOST_KEY_CHECKING", None)
    beside = Path(sys.executable).with_name("ansible-playbook")
    if beside.exists():
        runner.config.command[0] = str(beside)
    return runner


class _Stopper:
    """Asked by ansible-runner whether to kill: first it only asks ansible-playbook to end."""

    def __init__(self, stop: Callable[[], bool], log: EventLog) -> None:
        self.stop, self.heard = stop, log
        self.asked_at: float | None = None

    def __call__(self) -> bool:
        if not self.stop():
            return False
        if self.asked_at is None:
            self.asked_at = time.monotonic()
            if self.heard.pid is not None:
                # Its workers are in sessions of their own: only it can end them.
                os.kill(self.heard.pid, signal.SIGTERM)
                return False
        return time.monotonic() - self.asked_at > GRACE_SECONDS or self.heard.pid is None


def _private(directory: Path, name: str, content: Mapping[str, Any]) -> None:
    """Write a file for this user's eyes only."""
    path = directory / name
    path.parent.mkdir(mode=0o700, exist_ok=True)
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as stream:
        json.dump(content, stream)


def _forget_environment(command: Path) -> None:
    """Take the environment, secrets and all, out of what ansible-runner has noted."""
    noted = json.loads(command.read_text(encoding="utf-8"))
    write_text(command, json.dumps({**noted, "env": {}}), mode=0o600)


def _absolute(source: str) -> str:
    return source if "," in source else os.path.abspath(source)


def _tail(stdout: Path) -> str:
    """Return the last lines that Ansible printed."""
    try:
        lines = stdout.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return ""
    return "\n".join(line.rstrip() for line in lines if line.strip())[-2000:]


@contextmanager
def on_signals(handle: Callable[[], None], *kinds: signal.Signals) -> Iterator[None]:
    """Call ``handle`` on these signals while the body runs; only a main thread gets any."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {kind: signal.signal(kind, lambda _number, _frame: handle()) for kind in kinds}
    try:
        yield
    finally:
        for kind, handler in before.items():
            signal.signal(kind, handler)
