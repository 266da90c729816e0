# SPDX-License-Identifier: GPL-3.0-or-later

"""Join the checks of every role with those of the hardware and the replicas."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from ...module_utils.replicas.smoke import certificate
from ..documents import knowledge
from ..evidence.types import Evidence
from ..findings import ApiaryError, Finding, from_host, has_errors
from ..host.facts import command, serving_replicas
from ..host.types import Check, CheckState, ConcernPlan
from ..render.unit import directory
from ..topology.host import evidence_of, from_evidence
from ..topology.types import Topology
from . import board, measured, replicas
from .replicas import plans
from .types import Acceptance, Excerpt, Measured, Requested, Settings, Test

_NOT_ASKED, _NOT_MEASURED = Settings(), Measured()
# Letters of a value that a difference shows.
_SHORT = 160
_NO_PLANS: Mapping[str, ConcernPlan] = MappingProxyType({})


def accept(
    bundle: Mapping[str, Any],
    settings: Settings = _NOT_ASKED,
    plans: Mapping[str, ConcernPlan] = _NO_PLANS,
    reports: Sequence[Mapping[str, Any]] = (),
    given: Measured = _NOT_MEASURED,
    refused: tuple[Finding, ...] = (),
) -> Acceptance:
    """Return the acceptance of one host.

    ``plans`` are by role, decided on the same evidence, ``reports`` what converge in check
    mode reports of their resources. ``given`` is what the host answered to what `to_measure` asks,
    ``refused`` what of that was not asked.
    Raises ApiaryError (DOC-…) for a damaged document.
    """
    evidence = evidence_of(bundle)
    topology, refusals = _topology(evidence)
    complaints = [*refused, *refusals]
    checks: list[Check] = []
    if topology is not None:
        complaints += [item for item in topology.findings if item.severity != "info"]
        checks += board.hardware(evidence, topology, settings.gpus)
        checks += board.links(topology)
        checks += board.pcie(evidence, topology)
        checks += board.pcie_errors(evidence, topology)
        checks += board.memory(evidence, topology, settings.memory_gib)
    checks += board.bad_pages(evidence)
    checks += board.firmware(evidence)
    checks += board.versions(evidence, settings.versions)
    for plan in plans.values():
        complaints += [item for item in plan.findings if item.severity != "info"]
        checks += plan.checks
    for report in reports:
        findings = map(from_host, report["findings"])
        complaints += [item for item in findings if item.severity != "info"]
    inspected = [role for role, plan in plans.items() if not has_errors(plan.findings)]
    checks += _drift(evidence.host, inspected, reports)
    checks += replicas.checks(evidence)
    model = topology.model if topology else None
    checks += measured.checks(evidence.host, model, given, settings)
    return _joined(evidence, topology, settings, checks, complaints, given)


def _joined(
    evidence: Evidence,
    topology: Topology | None,
    settings: Settings,
    checks: Iterable[Check],
    complaints: Iterable[Finding],
    given: Measured,
) -> Acceptance:
    """Return an acceptance of these checks and complaints."""
    result = Acceptance(evidence.host, evidence.collected_at, True, (*checks,), (*complaints,))
    forbidding = ("error", "warning") if settings.strict else ("error",)
    severities = [check.severity for check in result.checks if check.state == "fail"]
    severities += [complaint.severity for complaint in result.complaints]
    accepted = not any(severity in forbidding for severity in severities)
    found = excerpts(evidence, result.findings, given)
    return replace(result, accepted=accepted, excerpts=found, gpus=_ids(topology))


def due(
    bundle: Mapping[str, Any],
    settings: Settings,
    burned: Acceptance | None,
    last: Acceptance | None,
) -> str:
    """Return why the host's GPUs are to be loaded now, "" where they are not.

    ``burned`` is what the last burn-in showed, ``last`` the host's last acceptance. A host that
    serves, served until it was stopped for this, or was accepted with the same GPUs is not new; the
    policy "always" asks only whether it serves.
    """
    evidence = evidence_of(bundle)
    ids = _ids(_topology(evidence)[0])
    if not ids or settings.burn_in == "never" or serving_replicas(evidence):
        return ""
    if settings.burn_in == "always":
        return "acceptance_burn_in is always"
    record = burned or last
    if record is None:
        return "" if settings.served else "neither a burn-in nor an acceptance of it is recorded"
    if burned and not burned.accepted:
        return "its last burn-in failed"
    if new := sorted(set(ids) - set(record.gpus or ids)):
        return f"GPUs are new in it: {', '.join(new)}"
    repairs = set(knowledge("acceptance/tests.yml")["burn_in"]["repairs"])
    if last and (burned is None or last.collected_at > burned.collected_at):
        failed = {finding.code for finding in last.findings if finding.severity != "info"}
        if found := sorted(failed & repairs):
            return f"its last acceptance found {', '.join(found)}"
    return ""


def burn_in(
    bundle: Mapping[str, Any], settings: Settings, given: Measured, refused: tuple[Finding, ...]
) -> Acceptance:
    """Return what the programs showed; where none could be run, nothing speaks against the host."""
    evidence = evidence_of(bundle)
    topology, _refusals = _topology(evidence)
    ran = replace(given, health=(), read=None)
    found = measured.checks(evidence.host, topology.model if topology else None, ran, settings)
    return _joined(evidence, topology, settings, found, refused, given)


def _ids(topology: Topology | None) -> tuple[str, ...]:
    """Return the GPUs by what stays with them in another slot, where they have such an id."""
    gpus = topology.gpus if topology else ()
    return tuple(sorted({gpu.unique_id or str(gpu.bdf) for gpu in gpus}))


def _topology(evidence: Evidence) -> tuple[Topology | None, tuple[Finding, ...]]:
    """Return the host's topology, or why there is none."""
    try:
        return from_evidence(evidence), ()
    except ApiaryError as refusal:
        return None, refusal.findings


_WEIGHTS = "/etc/apiary/weights.json"


def to_measure(bundle: Mapping[str, Any], settings: Settings) -> Requested:
    """Return what to measure on a host: its replicas always, the rest where it is asked for.

    GPU programs are refused while anything serves on the host, reading unless it is allowed. Where
    the evidence makes no topology none can be started. Raises ApiaryError (DOC-…) for a damaged
    document.
    """
    evidence = evidence_of(bundle)
    topology, _refusal = _topology(evidence)
    serving = serving_replicas(evidence)
    refused: list[Finding] = []
    runs: tuple[dict[str, Any], ...] = ()
    if settings.tests and serving:
        refused.append(_busy(evidence.host, ", ".join(settings.tests), serving))
    elif settings.tests and topology is not None:
        runs = tuple(run for test in settings.tests for run in _runs(test, topology))
    reading = None
    if settings.nfs_throughput and serving and not settings.nfs_while_serving:
        refused.append(_busy(evidence.host, "nfs", serving))
    elif settings.nfs_throughput:
        reading = _reading(evidence)
    return Requested(
        tuple(_health(evidence)),
        reading,
        runs,
        settings.tests_seconds,
        settings.burn_in_seconds if settings.burn_in != "never" else None,
        knowledge("host/workloads.yml")["vram"]["bytes"],
        tuple(refused),
    )


def _busy(host: str, what: str, serving: tuple[str, ...]) -> Finding:
    allow = ", or set acceptance_nfs_while_serving" if what == "nfs" else ""
    return Finding(
        "ACCEPT-BUSY",
        f"{host}: {what}",
        f"was asked for and not run: {', '.join(serving[:4])} would be disturbed",
        allow=allow,
    )


def _health(evidence: Evidence) -> Iterator[dict[str, Any]]:
    """Yield the replicas that run and listen; the others fail without being asked."""
    serving = serving_replicas(evidence)
    output = command(evidence, "listening")
    ports = set(re.findall(r":(\d+)\s", output.stdout)) if output else set()
    for plan in plans(evidence):
        if plan.node is not None and plan.node.rank > 0:
            continue  # workers serve no HTTP
        for replica in plan.replicas:
            if replica.unit in serving and str(replica.port) in ports:
                address = _address(replica.argv)
                secret = f"{directory(plan)}/credentials/{certificate(plan.deployment.name)}"
                authority = {"authority": secret} if plan.deployment.tls else {}
                place = {"port": replica.port, "address": address}
                yield {"unit": replica.unit, **place, **authority}


def _address(argv: tuple[str, ...]) -> str:
    """Return the address that a command listens on; a wildcard answers on loopback as well."""
    address = next((argv[at + 1] for at, word in enumerate(argv[:-1]) if word == "--host"), "")
    return address if address not in ("", "0.0.0.0", "::", "*") else "127.0.0.1"  # noqa: S104 - is compared


def _reading(evidence: Evidence) -> dict[str, Any] | None:
    """Return the read of this host's model directories; None where no weights are mounted."""
    try:
        document = json.loads(evidence.files.get(_WEIGHTS, "{}"))
    except ValueError:
        document = {}
    mounts = [str(mount["path"]) for mount in document.get("mounts", ()) if "path" in mount]
    below = tuple(f"{path.rstrip('/')}/" for path in mounts)
    models = [path for path in map(str, document.get("models", ())) if f"{path}/".startswith(below)]
    facts = knowledge("acceptance/nfs.yml")["throughput"]
    if not mounts:
        return None
    limits = {name: facts[name] for name in ("bytes", "readers", "block_bytes")}
    return {"paths": models or mounts, "seconds": float(facts["seconds"]), **limits}


def _runs(test: Test, topology: Topology) -> Iterator[dict[str, Any]]:
    facts: Mapping[str, Any] = knowledge("acceptance/tests.yml")[test]
    usable = sum(gpu.healthy is not False for gpu in topology.gpus)
    for run in facts["runs"]:
        attempts = []
        for place in facts["places"]:
            words = {"needs": "", **place, "gpus": usable, "model": topology.model or "none"}
            for attempt in run["attempts"]:
                argv = [*place["program"], *(word.format(**words) for word in attempt["arguments"])]
                needs = attempt.get("needs", words["needs"]).format(**words)
                attempts.append({"argv": argv, "needs": needs or None})
        yield {"test": test, "name": run["name"], "attempts": attempts}


# Of one check, and of one host: a panel is read, not searched.
_LINES, _WIDTH, _MOST = 12, 300, 24
_WHERE = "acceptance/excerpts.yml"
_PCI = re.compile(r"[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")


def excerpts(
    evidence: Evidence, findings: Sequence[Finding], measured: Measured
) -> tuple[Excerpt, ...]:
    """Return excerpts for findings that are no mere notes, each piece of evidence once."""
    result: dict[tuple[str, str], Excerpt] = {}
    for finding in findings:
        if finding.severity == "info":
            continue
        for origin, text in _of(evidence, finding, measured):
            if text and (finding.code, origin) not in result and len(result) < _MOST:
                result[finding.code, origin] = Excerpt(
                    finding.code, finding.subject, origin, _cut(text)
                )
    return tuple(result.values())


def _of(evidence: Evidence, finding: Finding, measured: Measured) -> Iterator[tuple[str, str]]:
    text = f"{finding.subject} {finding.message}"
    if finding.code == "ACCEPT-KERNEL-LOG":
        yield from _log(evidence, finding)
        return
    for ran in measured.runs:
        if ran.argv and f": {ran.test} {ran.name}" in finding.subject:
            yield " ".join(ran.argv), "\n".join(ran.output.splitlines()[-_LINES:])
    where: Mapping[str, Any] = next(
        (entry for entry in knowledge(_WHERE)["excerpts"] if entry["code"] in finding.code), {}
    )
    for name in where.get("commands", ()):
        output = command(evidence, name)
        if output:
            yield " ".join(output.argv), output.stdout
    functions = _PCI.findall(text) or [None]
    for bdf in functions[:2]:
        card = _card(evidence, bdf) or "card[0-9]+"
        if pattern := where.get("files"):
            words = pattern.replace("{bdf}", re.escape(bdf or "-")).replace("{card}", card)
            paths = [path for path in sorted(evidence.files) if re.fullmatch(words, path)]
            if finding.code == "ACCEPT-FIRMWARE":
                paths = [path for path in paths if _component(path) in finding.message]
            lines = [_line(path, evidence.files[path]) for path in paths]
            if lines:
                yield paths[0] if len(paths) == 1 else f"{len(paths)} files", "\n".join(lines)


def _component(path: str) -> str:
    """Return the component of a firmware's file as the check names it: "mec: "."""
    name = path.rsplit("/", 1)[-1]
    return f"{name.removesuffix('_fw_version').removesuffix('_version')}: "


def _line(path: str, text: str) -> str:
    """Return a short file beside its path, as grep would."""
    return f"{path}: {' '.join(text.split())}"


def _log(evidence: Evidence, finding: Finding) -> Iterator[tuple[str, str]]:
    output = command(evidence, "kernel_log")
    for kind in knowledge("host/acceptance.yml")["kernel_log"]:
        if output and finding.subject.endswith(f", {kind['id']}"):
            lines = [
                line for line in output.stdout.splitlines() if re.search(kind["pattern"], line)
            ]
            yield f"{' '.join(output.argv)}: {kind['id']}", "\n".join(lines[-_LINES:])


def _card(evidence: Evidence, bdf: str | None) -> str | None:
    """Return the DRM card of a PCI function."""
    for path, target in evidence.links.items():
        match = re.fullmatch(r"/sys/class/drm/(card\d+)", path)
        if match and bdf and bdf in _PCI.findall(target)[-1:]:
            return match[1]
    return None


def _cut(text: str) -> str:
    lines = text.strip("\n").splitlines()
    shown = [line if len(line) <= _WIDTH else f"{line[: _WIDTH - 1]}…" for line in lines[:_LINES]]
    if len(lines) > _LINES:
        shown.append(f"… {len(lines) - _LINES} more lines")
    return "\n".join(shown)


def _drift(
    host: str, roles: Iterable[str], reports: Sequence[Mapping[str, Any]]
) -> Iterator[Check]:
    """Yield one check a resource that differs, and one a role without any.

    ``reports`` are of resources that differ or can't be inspected, which their own findings say.
    """
    for report in reports:
        if report["changed"]:
            differences = [*report["steps"], *map(_difference, report["diff"])]
            found = f"a run would {'; '.join(differences)}"
            yield _check(f"{host}: {report['resource']}", report["role"], found)
    differing = {report["role"] for report in reports if report["changed"] or _refused(report)}
    for role in roles:
        if role not in differing:
            yield _check(f"{host}: {role}", role, None)


def _refused(report: Mapping[str, Any]) -> bool:
    return has_errors(tuple(map(from_host, report["findings"])))


def _check(subject: str, role: str, found: str | None) -> Check:
    expected = f"what the role {role} decides"
    state: CheckState = "fail" if found else "pass"
    return Check("ACCEPT-DRIFT", subject, state, found or expected, expected, role=role)


def _difference(entry: Mapping[str, str]) -> str:
    """Return a diff in a few words: short values, and of longer texts that they differ."""
    before, after = (
        "; ".join(str(entry.get(side, "")).strip().splitlines()) for side in ("before", "after")
    )
    subject = entry.get("after_header") or entry.get("before_header") or "it"
    if max(len(before), len(after)) <= _SHORT and before and after:
        return f"change {subject} from {before} to {after}"
    return f"{'change' if before and after else 'remove' if before else 'write'} {subject}"
