# SPDX-License-Identifier: GPL-3.0-or-later

"""Checks of what serves: units as the plan renders them, running, and listening."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator

from ..evidence.types import Evidence
from ..findings import ApiaryError
from ..host.facts import command, serving_replicas
from ..host.types import Check
from ..plan.types import Plan, parse_plan
from ..render.replicas import render_systemd

_LISTENS = {None: "no list of ports", True: "listening", False: "nothing listens"}
_STATUS = re.compile(r"^Id=(\S+)\nStatusText=(.+)$", re.MULTILINE)
_PLAN = re.compile(r"^/etc/apiary/([^/]+)/plan\.json$")


def plans(evidence: Evidence) -> Iterator[Plan]:
    """Yield the plans that the host holds and that can be read."""
    for path, text in sorted(evidence.files.items()):
        if _PLAN.match(path):
            with contextlib.suppress(ApiaryError):
                yield parse_plan(text, path)


def checks(evidence: Evidence) -> Iterator[Check]:
    """Yield the checks of every deployment whose plan the host holds."""
    for path, text in sorted(evidence.files.items()):
        if not _PLAN.match(path):
            continue
        subject = f"{evidence.host}: {path}"
        try:
            plan = parse_plan(text, subject)
        except ApiaryError as refusal:
            actual, expected = refusal.findings[0].message, "the plan as it was written"
            yield Check("ACCEPT-PLAN", subject, "fail", actual, expected)
            continue
        yield from _files(evidence, plan)
        yield from _units(evidence, plan)


def _files(evidence: Evidence, plan: Plan) -> Iterator[Check]:
    """Yield one check a rendered file that evidence covers: is it as the plan has it?"""
    for item in render_systemd(plan):
        if item.path == f"/etc/apiary/{plan.deployment.name}/plan.json":
            continue  # it is what the rest is compared with
        actual = evidence.files.get(item.path)
        same = actual == item.content
        yield Check(
            "ACCEPT-UNIT-FILE",
            f"{evidence.host}: {item.path}",
            "pass" if same else "fail",
            "as planned" if same else "no such file" if actual is None else "another text",
            "the text that the plan renders to",
        )


def _units(evidence: Evidence, plan: Plan) -> Iterator[Check]:
    serving = serving_replicas(evidence)
    output = command(evidence, "listening")
    ports = set(re.findall(r":(\d+)\s", output.stdout)) if output else None
    said = command(evidence, "replica_status")
    statuses = dict(_STATUS.findall(said.stdout if said else ""))
    for replica in plan.replicas:
        subject, status = f"{evidence.host}: {replica.unit}", statuses.get(replica.unit, "")
        up, down = replica.unit in serving, f"not running: {status}" if status else "not running"
        found = "running" if up else down
        yield Check.of("ACCEPT-REPLICA", subject, up, found, "running", unit=replica.unit)
        right = None if ports is None else str(replica.port) in ports
        found, expected = _LISTENS[right], f"a listener on port {replica.port}"
        yield Check.of("ACCEPT-PORT", subject, right, found, expected, unit=replica.unit)
