# SPDX-License-Identifier: GPL-3.0-or-later

"""The playbooks of a wave: hold its hosts, change them, let them go; nothing that is not plain."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ansible_collections.apiary.instinct.plugins.plugin_utils.documents import dumps
from ansible_collections.apiary.instinct.plugins.plugin_utils.files import write_text
from ansible_collections.apiary.instinct.plugins.plugin_utils.findings import Finding
from ansible_collections.apiary.instinct.plugins.plugin_utils.fleet.runs import failures
from ansible_collections.apiary.instinct.plugins.plugin_utils.run_owner import controller

from apiary.app.runner import Ended, arguments, playbook_path
from apiary.rollout.records import HostOutcome, Records, host_outcomes

# Playbooks that tell of each host they are done with, so that silence is no success.
TELLING = ("rollout", "rollback", "maintain")


@dataclass
class Plays:
    """Runs the playbooks of a run, each with its own directory of artifacts.

    ``play`` is `run_playbook`; ``path`` the playbook that was asked for, ``own`` whether it is the
    collection's. ``inline`` are variables that are on no disk, ``outside`` hosts that the playbook
    also touches, such as routers. ``stop`` says whether to end at once. What went wrong beside
    the hosts is in ``findings``.
    """

    records: Records
    play: Callable[..., Ended]
    path: Path
    own: bool
    inline: Mapping[str, Any]
    outside: Sequence[str]
    stop: Callable[[], bool]
    on_event: Callable[[Mapping[str, Any]], None]
    findings: list[Finding] = field(default_factory=list)

    def validate(self) -> list[Finding]:
        """Return the mistakes in the variables of the hosts, before anything is touched."""
        hosts = [host.host for host in self.records.run.hosts if host.outcome == "waiting"]
        if not hosts or not self.own:
            return []
        ended = self._ours(0, "validate", "validate", hosts, {})
        if ended.rc == 0:
            return []
        matches = [finding for failed in ended.failed.values() for finding in failed.findings]
        reported = "; ".join(failed.message for failed in ended.failed.values()) or ended.output
        other = Finding("FLEET-RUN-FAILED", "validate", reported[-600:])
        return list(dict.fromkeys(matches)) or [other]

    def hold(self, number: int, hosts: list[str]) -> dict[str, HostOutcome]:
        """Keep other controllers away from hosts; who cannot be held is not changed, either."""
        take_over = self.records.run.options.take_over
        variables = {"hold_state": "present", "hold_take_over": take_over}
        ended = self._ours(number, "hold", "hold", hosts, variables)
        return host_outcomes(hosts, ended, self.records.store, None, must_tell=False)

    def release(self, number: int, hosts: list[str]) -> None:
        """Let others change the hosts again; what cannot be reached this controller keeps."""
        if not hosts:
            return
        ended = self._ours(number, "release", "hold", hosts, {"hold_state": "absent"})
        result = host_outcomes(hosts, ended, self.records.store, None, must_tell=False)
        kept = [name for name in hosts if result[name].outcome != "done"]
        if kept:
            self.findings.append(
                Finding(
                    "FLEET-HELD",
                    ", ".join(kept[:5]) + (" …" if len(kept) > 5 else ""),
                    f"{len(kept)} hosts could not be let go: other controllers keep off them",
                )
            )

    def change(self, number: int, hosts: list[str]) -> dict[str, HostOutcome]:
        """Run the playbook itself on the hosts of a wave."""
        run, store = self.records.run, self.records.store
        variables: dict[str, Any] = {}
        if self.own:
            variables |= {"target": list(hosts), "apiary_artifacts": str(store.artifacts)}
        if self.own and self.path.stem == "rollout":
            # The wave is the batch; how many of its replicas may be out is still the playbook's.
            variables |= {
                "rollout_batches": ["100%"],
                "rollout_canary": [],
                "rollout_failure_budget": max(0, run.options.failure_budget - failures(run)),
                "rollout_take_over": run.options.take_over,
            }
        options = run.options
        before = {host: store.quarantine(host) for host in hosts}
        ended = self._run(
            number,
            run.asked.playbook if self.own else self.path.stem,
            self.path,
            [*hosts, *(item for item in self.outside if item not in hosts)],
            variables,
            hidden=[f"{extra_name}=…" for extra_name in options.extra_names],
            check=run.asked.check,
            diff=options.diff,
            tags=run.asked.tags or None,
            skip_tags=run.asked.skip_tags or None,
        )
        self.findings += [_other(item, ended) for item in ended.failed if item not in hosts]
        telling = self.own and self.path.stem in TELLING
        return host_outcomes(hosts, ended, store, before, telling, self.own)

    def _ours(
        self, number: int, name: str, playbook: str, hosts: Sequence[str], more: Mapping[str, Any]
    ) -> Ended:
        """Run what goes around the playbook: for good, with no tags and no check."""
        # The same for every run of this controller and directory: it takes its own locks again.
        owner = controller(str(self.records.store.artifacts))
        variables = {"target": list(hosts), "hold_owner": owner, **more}
        return self._run(number, name, playbook_path(playbook), hosts, variables)

    def _run(
        self,
        number: int,
        name: str,
        path: Path,
        limit: Sequence[str],
        variables: Mapping[str, Any],
        hidden: Sequence[str] = (),
        **how: Any,
    ) -> Ended:
        """Run a playbook for a wave, and note the command that anybody could do it by.

        The wave 0 is what comes before all waves.
        """
        run, options = self.records.run, self.records.run.options
        wave = self.records.store.run_directory(run.id) / f"wave-{number:02d}"
        artifacts = wave / f"{len(list(wave.glob('[0-9]*-*'))) + 1:02d}-{name}"
        vars_file = artifacts / "variables.json"
        write_text(vars_file, dumps(variables))
        common: dict[str, Any] = {
            "inventory": options.inventory,
            "forks": options.forks,
            "vault_password_files": options.vault_password_files,
            **how,
        }
        extra = list(options.extra_files)
        if number:
            words = arguments(
                **common, limit=f"@{artifacts / 'limit'}", extra=[*extra, *hidden, f"@{vars_file}"]
            )
            command = shlex.join(["ansible-playbook", *words, str(path)])
            commands = (*run.waves[number - 1].commands, command)
            self.records.set_wave(number, commands=commands)
        ended = self.play(
            path,
            **common,
            limit=limit,
            extra=[*extra, f"@{vars_file.absolute()}"],
            extra_vars=self.inline or None,
            artifacts=artifacts,
            on_event=self.on_event,
            # Hosts are let go also where the operator wants an end at once.
            stop=_never if name == "release" else self.stop,
        )
        if number and not ended.counts and ended.status != "canceled":
            self.findings.append(_no_run(str(path), ended))
        return ended


def _never() -> bool:
    return False


def _other(host: str, ended: Ended) -> Finding:
    failed = ended.failed[host]
    reported = failed.message.splitlines()[0] if failed.message else ""
    return Finding(
        "FLEET-OTHER-FAILED",
        host,
        f"failed in this wave, though it is none of its hosts: {failed.task}: {reported}",
    )


def _no_run(playbook: str, ended: Ended) -> Finding:
    return Finding(
        "FLEET-RUN-FAILED",
        playbook,
        f"ansible-playbook ended with status {ended.rc} before its end: {ended.output[-600:]}",
    )
