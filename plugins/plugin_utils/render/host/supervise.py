# SPDX-License-Identifier: GPL-3.0-or-later

"""The life of one replica: checks, start, serving, stop. The main process of its unit."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from typing import Any

from ....module_utils.finding import ApiaryError
from . import backoff, gpus, preflight
from .agent import Agent
from .client import Client, Prober, wrong_answer
from .context import Context, Event, StoppedError, replica_error
from .engine import (
    Engine,
    adopt_orphans,
    certificate_file,
    descendants,
    key_arguments,
    tls_arguments,
)
from .output import VARIABLES
from .progress import Ending, Hang, Phases, drains_itself, duration, overdue, planned
from .questions import RECORD, Questions

TICK_SECONDS = 1.0
KILL_SECONDS = 10


class Supervisor:
    """Starts one engine and stays until it is gone."""

    def __init__(self, context: Context, command: list[str]) -> None:
        self._context, self._command = context, command
        self._spec, self._life = context.spec, context.life
        self._notifier = context.notifier
        self._ending = Ending(context)
        self._published = ""
        self._pinged = float("-inf")

    def run(self) -> None:
        """Return when the replica was stopped; raises ApiaryError when it ends otherwise."""
        context = self._context
        self._publish("checks")
        backoff.wait(context, preflight.passing_refusal)
        self._notifier.status("checking the host")
        preflight.end_processes(context)
        preflight.remove_locks(context)
        for check in preflight.inside(context):
            check(context)
            context.pause(0)
        preflight.check_share(context, self._command)
        keys = preflight.check_isolation(context)
        self._tell(keys)
        secrets = self._secrets()
        backoff.wait_turn(context)
        agent = Agent(context)
        adopt_orphans()
        phases = Phases(self._life)
        phases.enter("launch")
        self._publish(phases.phase)
        self._notifier.status(phases.text())
        variable = self._life["answer"]["key_variable"]
        api_keys = [line for line in secrets.get(variable, "").split("\n") if line]
        first = {variable: api_keys[0]} if api_keys else {}
        environment = self._environment(len(keys), {**secrets, **first})
        pem = certificate_file(context)
        options = [*key_arguments(context, api_keys), *tls_arguments(context, pem)]
        hidden = [text for value in secrets.values() for text in value.split("\n") if text[7:]]

        def see(line: str) -> None:
            phases.see(line)
            self._ending.see(line)

        client = Client(context, first.get(variable), pem)
        engine = Engine([*self._command, *options], environment, context.journal, see, hidden)
        agent.start()
        prober = Prober(context, client)
        serving = False
        try:
            prober.start()
            self._start(engine, phases, agent)
            phases.watching = False
            self._ending.serves(client.metrics)
            serving = True
            self._serve(engine, client, agent)
        except StoppedError:
            prober.end()
            self._stop(engine, client, serving, agent.down())
        finally:
            prober.end()
            agent.down()
            self._end(engine)
            agent.end()

    def _publish(self, phase: str) -> None:
        if phase != self._published:
            self._published = phase
            self._context.publish(phase)

    def _tell(self, keys: list[str]) -> None:
        host = gpus.gpus_of_host(self._context.root)
        shown = [
            f"{ordinal} = {key} ({host[key].render}"
            + (f", GPU-{host[key].unique_id:016x})" if host[key].unique_id else ")")
            for ordinal, key in enumerate(keys)
        ]
        self._context.journal.say(f"GPUs as the engine will number them: {', '.join(shown)}")

    def _secrets(self) -> dict[str, str]:
        """Return the values of credentials by name; they go nowhere but into the engine."""
        values = {}
        directory = self._context.environment.get("CREDENTIALS_DIRECTORY", "")
        certificate = certificate_file(self._context)
        for name in self._spec.secrets:
            path = os.path.join(directory, name)
            try:
                with open(path, encoding="utf-8", newline="") as stream:
                    text = stream.read().rstrip("\r\n")
            except (OSError, ValueError) as failure:
                raise replica_error(
                    "REPLICA-NO-SECRET",
                    f"cannot read the credential {name}: {type(failure).__name__}",
                ) from None
            # The key is a header's value, which those are not.
            header = name == self._life["answer"]["key_variable"]
            lines = text.split("\n") if header else ()
            if "\0" in text or not all(line.isascii() and line.isprintable() for line in lines):
                raise replica_error(
                    "REPLICA-NO-SECRET",
                    f"the credential {name} has characters that it can't have (it is not shown)",
                )
            if path != certificate:
                values[name] = text
        return values

    def _environment(self, gpu_count: int, secrets: dict[str, str]) -> dict[str, str]:
        ordinals = ",".join(map(str, range(gpu_count)))
        environment = {**self._context.environment, "HIP_VISIBLE_DEVICES": ordinals, **secrets}
        # Indices of ROCR and HIP compound, and vLLM refuses two that differ.
        drop = ("ROCR_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES", "CREDENTIALS_DIRECTORY")
        for name in (*drop, *VARIABLES, "JOURNAL_STREAM"):
            environment.pop(name, None)
        return environment

    def _next(self, engine: Engine) -> Event | None:
        """Return what happened within a tick; raises when told to stop or the engine is gone."""
        event = self._context.next_event(TICK_SECONDS)
        if self._context.stopping:
            raise StoppedError
        engine.reap()
        if engine.status is not None:
            raise self._died(engine)
        if event is not None and event.kind == "blind":
            raise replica_error(
                "REPLICA-HUNG",
                f"nobody can tell whether the engine works: asking it failed by {event.value}",
            )
        return event

    def _died(self, engine: Engine) -> ApiaryError:
        # Its last lines first.
        engine.drained(1)
        status = engine.status or 0
        how = f"was killed by signal {-status}" if status < 0 else f"exited with status {status}"
        if status == self._life["exit_statuses"]["bad_arguments"] and not self._serving:
            message = "the engine refuses its command line"
            return self._ending.died("REPLICA-ENGINE-ARGUMENTS", message, served=False)
        message = f"the engine {how} {'while it served' if self._serving else 'before it answered'}"
        return self._ending.died("REPLICA-ENGINE-DIED", message, self._serving)

    @property
    def _serving(self) -> bool:
        return self._published == "serving"

    def _start(self, engine: Engine, phases: Phases, agent: Agent) -> None:
        began = time.monotonic()
        refused = None
        while True:
            event = self._next(engine)
            now = time.monotonic()
            self._publish(phases.phase)
            self._notifier.status(phases.text(now))
            self._context.extend()
            if event is not None and event.kind == "answers":
                break
            if event is not None and event.kind == "refused":
                phases.enter("answering")
                if 400 <= event.value.status < 500:
                    refused = refused or now
                    if now - refused > self._life["start"]["refused_seconds"]:
                        raise wrong_answer(event.value)
                else:
                    refused = None
            late = overdue(
                self._life, self._spec.start_timeout_seconds, now - began, now - phases.progress
            )
            if late:
                text = f"{late}; it was {phases.text(now)}; its last line: {phases.last_line}"
                raise self._ending.stood_still(
                    "REPLICA-NOT-READY", text, phases.phase, phases.progress
                )
        self.check_use()
        events = self._context.events
        engine.watch_core(self._life["core"]["names"], lambda: events.put(Event("core")))
        # Before systemd knows: who starts after this replica finds routers told.
        agent.up()
        self._publish("serving")
        self._notifier.tell(READY=1, STATUS="serving")
        self._context.journal.say(f"serving after {duration(time.monotonic() - began)}")

    def check_use(self) -> None:
        """Refuse an engine that has memory on other GPUs than its own, by the kernel's word."""
        if self._spec.runtime != "native":  # the kernel tells process numbers of the host
            return
        host = gpus.gpus_of_host(self._context.root)
        held = gpus.holders(self._context.root)
        used = set().union(*(held.get(pid, set()) for pid in descendants(os.getpid())))
        foreign = used - {host[key].gpu_id for key in self._spec.gpus if key in host}
        if foreign:
            names = [key for key, gpu in host.items() if gpu.gpu_id in foreign]
            raise replica_error(
                "REPLICA-NOT-ISOLATED",
                f"the engine uses GPUs of others: {', '.join(names or map(str, foreign))}",
            )

    def _serve(self, engine: Engine, client: Client, agent: Agent) -> None:
        """Stay with an engine that serves; raises when it is gone, hangs or must stop."""
        hang = Hang(self._spec.hang_seconds, time.monotonic())
        began = led = time.monotonic()
        proven = False
        known, per_hour = self._context.life["questions"], self._spec.quality_questions_per_hour
        questions = Questions(known, per_hour, self._command, began)
        self._record(questions)
        while True:
            event = self._next(engine) or Event("tick")
            now = time.monotonic()
            reason = None
            if event.kind == "core":
                agent.down()
                self._end_without_core(engine)
            elif event.kind == "load":
                hang.take(event.value, now)
                if event.value is not None:
                    load = event.value
                    self._notifier.status(f"serving {load.running:g}, waiting {load.waiting:g}")
                question = questions.due(event.value, now)
                if question is not None:
                    self._send("question", client, question)
            elif event.kind == "question":
                questions.take(event.value)
                self._record(questions)
            elif event.kind == "canary" and not event.value.status and hang.means_hang():
                reason = f"a completion of one token got no answer: {event.value.body}"
            elif event.kind == "leader" and event.value.status:
                led = now
            if self._spec.headless:
                self._check_leader(now - led)
            else:
                reason = reason or hang.verdict(now)
                if hang.wants_proof(now):
                    self._send("canary", client, {})
            if reason:
                agent.down()
                # Without its core the API tells everybody that waits; killed first, it could not.
                engine.kill(spared=engine.pid)
                self._await_exit(engine, now + self._life["core"]["grace_seconds"])
                message = f"the engine lives and does not work: {reason}"
                raise self._ending.died("REPLICA-HUNG", message, True, self._spec.hang_seconds)
            self._ping(now)
            if not proven and now - began > self._life["backoff"]["good_seconds"]:
                proven = True
                backoff.forget(self._context)

    def _send(self, kind: str, client: Client, body: dict[str, Any]) -> None:
        """Request a completion in the background; posts an event of the kind with the answer."""

        def send() -> None:
            answer = client.complete(self._spec.hang_seconds, **body)
            self._context.events.put(Event(kind, answer))

        threading.Thread(target=send, name=kind, daemon=True).start()

    def _record(self, questions: Questions) -> None:
        if self._spec.quality_questions_per_hour:
            facts = {"counts": questions.counts, "answers": questions.answers}
            recipe = planned(self._context).get("recipe")
            self._context.record(RECORD, {"recipe": recipe, **facts})

    def _end_without_core(self, engine: Engine) -> None:
        """Let requests in flight have their errors, and no new ones come."""
        self._await_exit(engine, time.monotonic() + self._life["core"]["grace_seconds"])
        if self._context.stopping:
            raise StoppedError
        engine.drained(0.1)
        message = "the engine's core process ended while it served"
        raise self._ending.died("REPLICA-ENGINE-DIED", message, served=True)

    def _check_leader(self, gone: float) -> None:
        if gone > self._life["leader"]["gone_seconds"]:
            raise replica_error(
                "REPLICA-LEADER-GONE",
                f"the replica's first host, {self._spec.probe_address}, has not answered "
                f"for {duration(gone)}",
            )

    def _ping(self, now: float) -> None:
        every = self._notifier.ping_seconds
        if every is not None and now - self._pinged >= every:
            self._pinged = now
            self._notifier.send(WATCHDOG=1)

    def _stop(self, engine: Engine, client: Client, serving: bool, heard: float) -> None:
        """End the engine: one that serves finishes its requests, one that starts is deaf.

        ``heard`` is in how many seconds the routers send nothing new.
        """
        limits = self._life["drain"]
        self._publish("stopping")
        self._notifier.tell(STOPPING=1)
        now = time.monotonic()
        if not serving or self._spec.headless:
            self._notifier.status("stopping before it served" if not serving else "stopping")
            engine.terminate()
            self._await_exit(engine, now + self._life["start"]["deaf_seconds"])
            return
        deadline = now + self._spec.drain_timeout_seconds
        if heard:
            self._notifier.status("waiting until routers send nothing new")
            self._await_exit(engine, now + heard)
        if drains_itself(self._command, limits["flag"]):
            engine.terminate()
        left = self._drain(engine, client, deadline)
        if left and engine.status is None:
            cut = replica_error(
                "REPLICA-DRAIN-CUT",
                f"{left} requests did not end within {self._spec.drain_timeout_seconds} s",
            )
            self._context.report(cut)
        engine.terminate()
        self._await_exit(engine, deadline + limits["teardown_seconds"])

    def _drain(self, engine: Engine, client: Client, deadline: float) -> int:
        """Wait until the engine is idle or gone, and return how many requests are left."""
        limits = self._life["drain"]
        own = drains_itself(self._command, limits["flag"])
        idle = requests = 0
        while time.monotonic() < deadline:
            load = client.load(min(5.0, max(deadline - time.monotonic(), 0.1)))
            engine.reap()
            if engine.status is not None:
                return 0
            if load is not None:
                requests = int(load.running + load.waiting)
                idle = idle + 1 if requests == 0 else 0
                self._notifier.status(f"draining {requests} requests")
            if idle >= limits["idle_polls"] and not own:
                return 0
            self._await_exit(engine, min(time.monotonic() + limits["poll_seconds"], deadline))
        return requests

    def _await_exit(self, engine: Engine, deadline: float) -> None:
        while engine.status is None and time.monotonic() < deadline:
            self._context.next_event(min(deadline - time.monotonic(), TICK_SECONDS))
            engine.reap()

    def _end(self, engine: Engine) -> None:
        """Leave nothing behind."""
        deadline = time.monotonic() + KILL_SECONDS
        while not engine.kill() and time.monotonic() < deadline:
            self._context.next_event(0.05)
        with contextlib.suppress(RuntimeError):
            engine.drained(2)
