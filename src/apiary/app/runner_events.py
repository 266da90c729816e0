# SPDX-License-Identifier: GPL-3.0-or-later

"""What the events of ansible-runner say about hosts, and what of them may be kept."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from ansible_collections.apiary.instinct.plugins.plugin_utils.findings import Finding, findings_of

_SET_STATS = ("set_stats", "ansible.builtin.set_stats")
_NUMBERS = ("ok", "changed", "failures", "dark", "skipped", "rescued", "ignored", "processed")


@dataclass(frozen=True)
class Failed:
    """Why a host failed: the task, its message, and the findings in it."""

    task: str
    message: str
    findings: tuple[Finding, ...] = ()
    kind: Literal["failed", "unreachable"] = "failed"


class EventLog:
    """All that a run's events have reported so far.

    A call takes an event and takes out of it what Ansible would not have printed.
    """

    def __init__(self) -> None:
        self.pid: int | None = None
        self.counts: dict[str, dict[str, int]] = {}
        self.custom: dict[str, Any] = {}
        self.touched: set[str] = set()
        self.aborted = False
        self._first: dict[str, Failed] = {}
        self._telling: dict[str, Failed] = {}
        self._items: dict[str, Mapping[str, Any]] = {}

    def __call__(self, event: dict[str, Any]) -> None:
        data = event.get("event_data") or {}
        kind, host = event.get("event", ""), data.get("host")
        if kind == "playbook_on_start":
            self.pid = int(event["pid"])
        if kind == "playbook_on_stats":
            self._count(data)
        elif kind == "playbook_on_no_hosts_remaining":
            self.aborted = True
        elif host and kind == "runner_on_start":
            self.touched.add(host)
            self._items.pop(host, None)
        elif host and kind == "runner_item_on_failed":
            self._items.setdefault(host, data.get("res") or {})
        elif host and kind == "runner_on_ok" and data.get("task_action") in _SET_STATS:
            self._say(host, data.get("res") or {})
        elif host and kind == "runner_on_unreachable":
            self._note(host, data, event, "unreachable")
        elif host and kind == "runner_on_failed" and not data.get("ignore_errors"):
            self._note(host, data, event, "failed")
        _prune(event)

    def failed(self) -> dict[str, Failed]:
        """Return why hosts failed, of those that did not get over it."""
        lost = {
            host
            for host, numbers in self.counts.items()
            if numbers.get("failures") or numbers.get("dark")
        }
        # Where a task failed with findings, they are the reason; else what came first.
        return {
            host: self._telling.get(host) or first
            for host, first in self._first.items()
            if host in lost or not self.counts
        }

    def _count(self, data: Mapping[str, Any]) -> None:
        for number in _NUMBERS:
            for host, count in (data.get(number) or {}).items():
                self.counts.setdefault(host, {})[number] = int(count)
        # Of a run on this machine alone they are its own, and of any length.
        if self.touched == {"localhost"}:
            self.custom = dict(data.get("artifact_data") or {})

    def _say(self, host: str, result: Mapping[str, Any]) -> None:
        """Note what the playbook reports of this host; of others only their own results do.

        Statistics may be in the answer of any module, which is to say of any host.
        """
        for name, values in ((result.get("ansible_stats") or {}).get("data") or {}).items():
            if isinstance(values, Mapping) and host in values:
                self.custom.setdefault(str(name), {})[host] = values[host]

    def _note(
        self,
        host: str,
        data: Mapping[str, Any],
        event: Mapping[str, Any],
        kind: Literal["failed", "unreachable"],
    ) -> None:
        result = data.get("res") or {}
        if "results" in result:
            result = self._items.get(host, result)
        message = str(result.get("msg") or event.get("stdout") or "").strip()
        failed = Failed(str(data.get("task", "")), message, findings_of(result), kind)
        self._first.setdefault(host, failed)
        if failed.findings:
            self._telling.setdefault(host, failed)


def _prune(event: dict[str, Any]) -> None:
    """Take out what Ansible keeps to itself: results that went well, arguments, differences."""
    data = event.get("event_data")
    if not isinstance(data, dict) or not isinstance(data.get("res"), dict):
        return
    failed = event.get("event") in ("runner_on_failed", "runner_on_unreachable")
    retained = ("changed", "msg", "findings", "unreachable") if failed else ("changed",)
    data["res"] = {name: data["res"][name] for name in retained if name in data["res"]}
