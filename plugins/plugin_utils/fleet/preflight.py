# SPDX-License-Identifier: GPL-3.0-or-later

"""Whether hosts have, and reach, what a run will need of them, before it changes anything.

Only what the run is to do counts: a host that pulls no image needs no registry.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from typing import Any

from ..documents import knowledge
from ..evidence.types import CommandOutput, Evidence
from ..findings import Finding, by_severity, has_errors
from ..plan.types import Plan, plan_of
from .applying import Pending
from .fetches import Resource, exports, requirements, sources
from .names import fold
from .survey import active_units

_PROCESS = re.compile(r'users:\(\("([^"]{1,100})",pid=(\d+)')
_RANGE = re.compile(r"(\d{1,5})(?:[-:](\d{1,5}))?/tcp")
_DROPPING = re.compile(r"hook input [^;}]{0,99};[^;}]{0,99}policy drop")
_TABLES, _OURS = re.compile(r"(?m)^(?=table )"), re.compile(r"table \w+ \S*apiary")
_NONE = CommandOutput((), None, "", "", 0.0)


def due(left: Pending) -> list[Resource]:
    """Return the resources that a run would change, and what belongs to a mount of them."""
    changed = {
        (report["role"], report["resource"])
        for reports in left.reports.values()
        for report in reports
        if report["changed"] or report["findings"]
    }
    return [
        each
        for concern, resources in left.resources.items()
        for each in resources
        if (concern, _name(each)) in changed or each["kind"] == "file"
    ]


def _name(resource: Resource) -> str:
    """Return a resource's name, as converge reports it."""
    keys = ("reference", "path", "deployment", "name")
    name = next((resource[key] for key in keys if resource.get(key)), None)
    return f"{resource['kind']} {name or ' '.join(resource.get('names') or ())}"


def plans_of(left: Pending) -> tuple[Plan, ...]:
    """Return the plans that a survey left, each once."""
    texts = {text for path, text in (left.saved or {}).items() if path.endswith("plan.json")}
    return tuple(plan_of(json.loads(text), left.survey.host) for text in sorted(texts))


def trials(resources: Sequence[Resource], everything: Sequence[Resource]) -> list[dict[str, str]]:
    """Return what is tried from the host, each once, for resources that would change."""
    found: dict[tuple[str, str], None] = {}
    kinds = {each["kind"] for each in resources}
    if kinds & {"repository", "packages", "transaction"}:
        found["apt", ""] = None
        rpm = (each for each in everything if each["kind"] == "repository")
        for each in rpm:
            found |= {
                ("url", index): None for _url, index in sources(each) if "/repodata/" in index
            }
    for each in resources:
        if each.get("state") == "absent":
            continue
        if each["kind"] == "image" and (registry := registry_of(each["reference"])):
            found["registry", registry] = None
        elif each["kind"] == "wheels":
            found |= dict.fromkeys(_wheels(each))
    found |= {("nfs", target): None for target in exports(resources)}
    return [{"kind": kind, "target": target} for kind, target in found]


def registry_of(reference: str) -> str | None:
    """Return the registry that a reference names; the default one has other addresses."""
    first, slash, _rest = reference.partition("/")
    named = slash and (set(first) & {".", ":"} or first == "localhost")
    return first if named and first != "docker.io" else None


def _wheels(resource: Resource) -> Iterator[tuple[str, str]]:
    if resource.get("wheels"):
        yield "path", resource["wheels"]
    if resource.get("index_url"):
        names = [name for name, _version, _digest in requirements(resource["requirements"])]
        engine = "vllm" if "vllm" in names else ""
        yield "url", f"{resource['index_url'].rstrip('/')}/{engine}{'/' if engine else ''}"


def evaluate(
    host: str, evidence: Evidence, resources: Sequence[Resource], plans: Sequence[Plan]
) -> tuple[Finding, ...]:
    """Return what a run would fail at, or should be known before it."""
    served = [each["deployment"] for each in resources if each["kind"] == "replicas"]
    due_plans = [plan for plan in plans if plan.deployment.name in served]
    mirrored = any("mirror" in json.dumps(each) for each in resources if _registries(each))
    found = (
        *_repositories(host, evidence),
        *_trials(host, evidence, mirrored),
        *_room(
            host, evidence, {each["kind"] for each in resources if each.get("state") != "absent"}
        ),
        *_clock(host, evidence),
        *_ports(host, evidence, due_plans),
        *_firewall(host, evidence, due_plans),
    )
    return tuple(sorted(found, key=by_severity))


def _registries(resource: Resource) -> bool:
    return resource["kind"] in ("file", "json_settings") and any(
        word in resource["path"] for word in ("registries", "daemon.json")
    )


def _repositories(host: str, evidence: Evidence) -> Iterator[Finding]:
    """Yield apt's repositories that don't answer; apt itself goes on without them."""
    output = evidence.commands.get("apt ", _NONE)
    if output.exit:
        for line in output.stderr.splitlines():
            yield Finding("PREFLIGHT-REPOSITORY", host, f"{line[:300]}", minor=True)


_CODES = {"registry": "PREFLIGHT-IMAGE", "path": "PREFLIGHT-WHEELS", "nfs": "PREFLIGHT-EXPORT"}


def _trials(host: str, evidence: Evidence, mirrored: bool) -> Iterator[Finding]:
    for output in evidence.commands.values():
        kind, target = (*output.argv, "")[:2]
        if not output.exit or kind not in (*_CODES, "url"):
            continue
        rpm = target.endswith("/repodata/repomd.xml")
        code = _CODES.get(kind) or ("PREFLIGHT-REPOSITORY" if rpm else "PREFLIGHT-WHEELS")
        where, _space, _options = target.partition(" ")
        minor = kind == "registry" and mirrored
        why = output.stderr.strip().rpartition("\n")[2][:300] or "gave no answer"
        yield Finding(code, host, f"{where}: {why}", minor=minor, target=where)


def _room(host: str, evidence: Evidence, kinds: set[str]) -> Iterator[Finding]:
    facts = knowledge("preflight.yml")
    engine, inodes = facts["engine"], facts["inodes"]
    places = {place for kind, place in engine["places"].items() if kind in kinds}
    for line in evidence.commands.get("room", _NONE).stdout.splitlines()[1:]:
        words = line.split()
        if len(words) != 4 or not words[2].isdigit():
            continue
        path, free = words[0], int(words[2])
        if path in places and free < engine["usual"]:
            usual = f"{engine['usual'] / 1e9:.1f}"
            message = f"{free / 1e9:.1f} GB are free, and an engine may take {usual}"
            yield _short(host, path, message, free >= engine["least"])
        # Btrfs and others have no number of inodes: "-" or 0.
        left = int(words[3]) if words[3].isdigit() else 0
        if path in (*places, "/var/lib") and 0 < left < inodes["usual"]:
            message = f"{left} inodes are free, expected {inodes['usual']}"
            yield _short(host, path, message, left >= inodes["least"])


def _short(host: str, path: str, message: str, minor: bool) -> Finding:
    return Finding("PREFLIGHT-SPACE", f"{host}: {path}", message, minor=minor, path=path)


def _clock(host: str, evidence: Evidence) -> Iterator[Finding]:
    output = evidence.commands.get("clock", _NONE)
    if output.exit == 0 and "NTPSynchronized=no" in output.stdout:
        on = "NTP=yes" in output.stdout.split()
        message = "its clock is not synchronised" + (" yet" if on else ", and no service does that")
        yield Finding("PREFLIGHT-CLOCK", host, message)


def _ports(host: str, evidence: Evidence, plans: Sequence[Plan]) -> Iterator[Finding]:
    """Yield the ports of replicas to come that others hold; those of running ones are their own."""
    units = {replica.unit for plan in plans for replica in plan.replicas}
    active = active_units(evidence)
    if active is None or any(unit.startswith("apiary-") and unit not in units for unit in active):
        return  # replicas that are to go may hold them now
    holders = {}
    for line in evidence.commands.get("listeners", _NONE).stdout.splitlines():
        words = line.split()
        if len(words) > 3:
            process = _PROCESS.search(line)
            shown = f"{process[1]} ({process[2]})" if process else "another process"
            holders[words[3].rpartition(":")[2]] = shown
    for plan in plans:
        for replica in plan.replicas:
            if replica.unit not in active and (holder := holders.get(str(replica.port))):
                message = f"{holder} listens on {replica.port}, the port of {replica.unit}"
                yield Finding("REPLICA-PORT-BUSY", host, message)


def _firewall(host: str, evidence: Evidence, plans: Sequence[Plan]) -> Iterator[Finding]:
    ports = sorted({replica.port for plan in plans for replica in plan.replicas})
    for name, allowed in _rules(evidence):
        shut = [port for port in ports if not any(low <= port <= high for low, high in allowed)]
        if shut:
            message = f"{name} is active, and has no rule for TCP {', '.join(map(str, shut))}"
            yield Finding("PREFLIGHT-FIREWALL", host, message, ports=f"{shut[0]}-{shut[-1]}")


def _rules(evidence: Evidence) -> Iterator[tuple[str, list[tuple[int, int]]]]:
    """Yield each firewall that is active, with the ports that it lets pass."""
    for name in ("firewalld", "ufw"):
        output = evidence.commands.get(name, _NONE)
        text = output.stdout
        off = output.exit != 0 or "target: ACCEPT" in text or "Status: inactive" in text
        if not off:
            yield name, [(int(low), int(high or low)) for low, high in _RANGE.findall(text)]
    output = evidence.commands.get("nftables", _NONE)
    others = (table for table in _TABLES.split(output.stdout) if not _OURS.match(table))
    ufw = evidence.commands.get("ufw", _NONE).exit == 0
    if not ufw and any(_DROPPING.search(body) for body in others):
        yield "a chain of nftables that drops by default", []


def ways(places: Mapping[str, tuple[str, Sequence[Plan]]]) -> dict[str, str]:
    """Return "address:port" of replicas with the host of each; places are addresses and plans."""
    return {
        f"{f'[{address}]' if ':' in address else address}:{replica.port}": host
        for host, (address, plans) in places.items()
        for plan in plans
        for replica in plan.replicas
    }


def blocked(router: str, evidence: Evidence, targets: Mapping[str, str]) -> Iterator[Finding]:
    """Yield the ports of hosts that a router does not reach; who refuses is reached."""
    shut: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
    for target, host in targets.items():
        output = evidence.commands.get(f"tcp {target}", _NONE)
        if output.exit and output.stdout != "ECONNREFUSED":
            port = target.rpartition(":")[2]
            shut[host, output.stderr.strip()[:200] or "no answer"].append(port)
    for (host, why), ports in shut.items():
        message = f"{router} does not reach TCP {', '.join(ports)}: {why}"
        yield Finding("PREFLIGHT-FIREWALL", host, message, ports=f"{ports[0]}-{ports[-1]}")


@dataclass(frozen=True)
class Row:
    """One line of the fleet's table: how many of the hosts pass, and what is wrong, together."""

    name: str
    outcome: str
    message: str
    findings: tuple[Finding, ...]


def table(found: Mapping[str, Iterable[Finding]]) -> tuple[Row, ...]:
    """Return the rows of the table; hosts that share what is wrong have one finding."""
    rows = []
    for row in knowledge("preflight.yml")["rows"]:
        sharing: defaultdict[tuple[Any, ...], dict[str, Finding]] = defaultdict(dict)
        for host, findings in found.items():
            for each in findings:
                if (
                    any(fnmatch(each.code, code) for code in row["codes"])
                    and each.severity != "info"
                ):
                    subject = each.subject.removeprefix(host)
                    sharing[each.code, subject, each.severity, each.message][host] = each
        together = []
        for (_code, subject, _severity, _message), hosts in sharing.items():
            whom = fold(hosts) if len(hosts) == 1 else f"{len(hosts)} hosts, {fold(hosts)}"
            rest = subject if subject.startswith(":") or not subject else f": {subject}"
            together.append(next(iter(hosts.values())).about(whom + rest))
        bad = {host for hosts in sharing.values() for host in hosts}
        worst = min(map(by_severity, together), default=2)
        outcome = ("error", "warning", "ok")[worst]
        passed = f"{len(found) - len(bad)} of {len(found)} hosts"
        rows.append(Row(row["name"], outcome, passed, tuple(together)))
    return tuple(rows)


def in_table(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Return those that a row is about."""
    codes = [code for row in knowledge("preflight.yml")["rows"] for code in row["codes"]]
    return tuple(each for each in findings if any(fnmatch(each.code, code) for code in codes))


def lines(rows: Sequence[Row]) -> list[str]:
    """Return the table as text, and below it what is wrong."""
    text = [f"{row.outcome:<8} {row.name:<22} {row.message}" for row in rows]
    wrong = [str(each) for row in rows for each in row.findings]
    stops = has_errors([each for row in rows for each in row.findings])
    return [*text, *wrong, *(["Nothing was changed on the hosts with an error."] if stops else [])]
