# SPDX-License-Identifier: GPL-3.0-or-later

"""Mount options: from profile and settings to the words of a unit, and against those in force."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ...documents import knowledge
from ...findings import Finding
from ..types import Skipped
from .settings import Mount

Value = str | int | bool
Options = Mapping[str, Value]
# In a unit and in a list of options the characters left out mean something.
_NAME = re.compile(r"[^\s,=%\\\"']+")
_VALUE = re.compile(r"[^\s,%\\\"']+")


@dataclass(frozen=True)
class Requested:
    """A mount's options in order, what was left out of the profile, and what is refused."""

    options: dict[str, Value]
    skipped: tuple[Skipped, ...] = ()
    findings: tuple[Finding, ...] = ()

    @property
    def has_kerberos(self) -> bool:
        """Whether the mount is by Kerberos."""
        return str(self.options.get("sec", "")).startswith("krb5")

    @property
    def text(self) -> str:
        """The options as mount(8) takes them."""
        return ",".join(
            name if value is True else f"{name}={value}" for name, value in self.options.items()
        )


@dataclass(frozen=True)
class Difference:
    """An option that is not in force; ``lowered`` is one that the server may lower."""

    option: str
    found: str
    expected: str
    lowered: bool = False


def _facts() -> Any:
    return knowledge("host/weight_cache.yml")


def requested(mount: Mount, kernel: str | None) -> Requested:
    """Return what a mount is requested to have on a host with this kernel."""
    facts = _facts()
    profile = mount.profile or ("read_mostly" if mount.is_nfs else "plain")
    options: dict[str, Value] = {}
    skipped: list[Skipped] = []
    for entry in facts["profiles"][profile]:
        name = entry["option"]
        least = entry.get("min_kernel")
        if least and kernel and name not in mount.options and _older(kernel, least):
            reason = f"{mount.path}: kernel {kernel} is older than {least}"
            skipped.append(Skipped(name, reason))
            continue
        options[name] = entry["value"]
    for name, value in mount.options.items():
        for group in facts["opposites"]:
            if name in group and value not in (None, False):
                for other in group:
                    options.pop(other, None)
        if value is None or value is False:
            options.pop(name, None)
        else:
            options[name] = value
    if mount.type == "bind":
        options = {"bind": True, **options}
    findings = _refused(mount, options)
    if mount.is_nfs:
        _fit_version(options)
        _fit_transport(mount, options)
        dropped, conflict = _fit_kerberos(mount, options)
        skipped += dropped
        findings += conflict
    return Requested(options, tuple(skipped), tuple(findings))


def _older(kernel: str, least: str) -> bool:
    """Say whether a kernel release is older than a version."""
    found = [int(part) for part in re.findall(r"\d+", kernel)[:2]]
    return found < [int(part) for part in least.split(".")]


def _refused(mount: Mount, options: Options) -> list[Finding]:
    """Return the refusals of options that harm whoever reads."""
    facts, findings = _facts(), []

    def refuse(code: str, message: str, source: str | None = None, **more: Any) -> None:
        findings.append(Finding(code, mount.path, message, source=source, **more))

    soft, secrets, connections = facts["refused"], facts["secrets"], facts["connections"]
    for name in soft["options"] if mount.is_nfs else ():
        if name in options:
            message = f"found the option {name}, expected hard: {soft['reason']}"
            refuse("WEIGHTS-SOFT", message, soft["source"], name=name)
    for name, value in options.items():
        # No more than the first word is shown: the rest may be a password.
        word = re.split(r"[^\w.-]", name)[0]
        instead = secrets["options"].get(word.lower())
        if instead:
            message = f"found the option {word}, which every user could read in the mount's unit"
            refuse("WEIGHTS-SECRET", message, secrets["source"], instead=instead)
        elif not _NAME.fullmatch(name) or not _VALUE.fullmatch(str(value)):
            refuse(
                "WEIGHTS-OPTION-TEXT",
                f"found a comma, blank, quote, % or backslash, or nothing, in {word or 'an'} "
                "option's name or value, expected plain words",
            )
        elif name == "nconnect" and mount.is_nfs and not _is_within(value, connections):
            message = f"found nconnect={value}, expected 1 to {connections['most']}"
            refuse("WEIGHTS-NUMBER", message, connections["source"])
    known = [name for name in facts["versions"] if name != "source"]
    version = str(options.get("vers", options.get("nfsvers", known[0])))
    if mount.is_nfs and version not in known:
        message = f"found NFS version {version}, expected one of {', '.join(known)}"
        refuse("WEIGHTS-VERSION", message, facts["versions"]["source"])
    return findings


def _is_within(value: Value, connections: Mapping[str, Any]) -> bool:
    text = str(value)
    return text.isdecimal() and 1 <= int(text) <= connections["most"]


def _fit_version(options: dict[str, Value]) -> None:
    """Call the version by one name, and add what it needs."""
    if "nfsvers" in options:
        options["vers"] = options.pop("nfsvers")
    entry = _facts()["versions"].get(str(options.get("vers", "")), {})
    for name, value in entry.get("adds", {}).items():
        options.setdefault(name, value)


def _fit_transport(mount: Mount, options: dict[str, Value]) -> None:
    """Give RDMA its port, and a literal IPv6 address the transport of its family."""
    proto = options.get("proto")
    if options.pop("rdma", False):
        proto = options["proto"] = "rdma"
    if proto in ("rdma", "rdma6"):
        options.setdefault("port", _facts()["rdma"]["port"])
    if mount.source.startswith("[") and proto in ("tcp", "rdma"):
        options["proto"] = f"{proto}6"


def _fit_kerberos(mount: Mount, options: dict[str, Value]) -> tuple[list[Skipped], list[Finding]]:
    """Keep Kerberos and nconnect apart: the profile's gives way, a requested one is refused."""
    facts = _facts()["kerberos"]
    name = facts["without"]
    if not str(options.get("sec", "")).startswith("krb5") or name not in options:
        return [], []
    if name not in mount.options:
        del options[name]
        return [Skipped(name, f"{mount.path}: {facts['reason']}")], []
    conflict = Finding(
        "WEIGHTS-KERBEROS",
        mount.path,
        f"found {name}={options[name]} with sec={options['sec']}: {facts['reason']}",
        name=name,
    )
    return [], [conflict]


def differences(wanted: Options, shown: Options) -> tuple[Difference, ...]:
    """Return which of the wanted options are not in force, as /proc/mounts shows them."""
    known = _facts()["shown"]["options"]
    result: list[Difference] = []
    for option, value in wanted.items():
        entry = known.get(option)
        if entry is None or entry["shown"] == "never":
            continue
        for name in entry.get("as", [option]):
            found = shown.get(name, entry.get("hidden"))
            if not _in_force(entry["shown"], value, found):
                told = "absent" if found is None else "set" if found is True else str(found)
                expected = "set" if value is True else str(value)
                lowered = entry["shown"] == "at_most" and found is not None
                result.append(Difference(name, told, expected, lowered))
    return tuple(result)


def _in_force(kind: str, wanted: Value, found: Value | None) -> bool:
    """Say whether a found value is what was requested."""
    if found is None:
        return False
    if kind == "flag":
        return found is True
    if kind == "version":
        least = _facts()["versions"].get(str(wanted), {}).get("at_least")
        return str(found) >= least if least else str(found) == str(wanted)
    if str(found) == str(wanted):
        return True
    # tcp6 is tcp over the other family: a name may have addresses of both.
    return str(wanted) in ("tcp", "rdma") and str(found) == f"{wanted}6"
