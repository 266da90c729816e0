# SPDX-License-Identifier: GPL-3.0-or-later

"""Limits of services, as drop-ins: /etc/security/limits.conf holds for none of them."""

from __future__ import annotations

from ...evidence.types import Evidence
from ..facts import output
from ..types import Check, HostFile, Skipped
from .catalogue import Chosen, Part, settings

# systemd knows one number for what has no limit, and prints it as a word.
_ENDLESS = "infinity"


def drop_in(unit: str) -> str:
    """Return the path of our drop-in for a unit."""
    return f"/etc/systemd/system/{unit}.d/apiary.conf"


def shown(evidence: Evidence) -> dict[str, dict[str, str]]:
    """Return the properties of each unit that systemd has loaded."""
    units = {}
    for block in output(evidence, "service_limits").split("\n\n"):
        values = dict(line.partition("=")[::2] for line in block.strip().splitlines())
        if values.get("LoadState") == "loaded":
            units[values.get("Id", "")] = values
    return units


def plan(evidence: Evidence, chosen: tuple[Chosen, ...]) -> Part:
    """Return the drop-ins for the chosen limits; those no longer chosen are to be gone."""
    units = shown(evidence)
    wanted: dict[str, str] = {}
    checks: list[Check] = []
    skipped: list[Skipped] = []
    for one in chosen:
        limits: dict[str, str] = one.setting.facts["limits"]
        present = [unit for unit in one.setting.facts["units"] if unit in units]
        if not present:
            names = ", ".join(one.setting.facts["units"])
            skipped.append(Skipped(one.setting.id, f"none of {names} is installed"))
        for unit in present:
            # A line of ours would lower what the service has from elsewhere.
            lines = "".join(
                f"{name}={value}\n"
                for name, value in limits.items()
                if not (one.setting.facts.get("at_least") and _above(units[unit].get(name), value))
            )
            reason = one.setting.reason
            if lines:
                head = f"# Written by Apiary (host_tuning).\n# {reason}\n[Service]\n"
                wanted[unit] = head + lines
            checks += [
                _check(evidence.host, one, unit, name, units[unit].get(name, "unknown"), value)
                for name, value in limits.items()
            ]
    files = tuple(
        HostFile(drop_in(unit), wanted.get(unit))
        for setting in settings()
        for unit in setting.facts.get("units", ())
    )
    return Part(files=files, checks=tuple(checks), skipped=tuple(skipped))


def _above(found: str | None, value: str) -> bool:
    """Say whether a limit is higher than a value; one that is not known is not."""
    if value == _ENDLESS:
        return False
    return found == _ENDLESS or bool(found and found.isdigit() and int(found) > int(value))


def _check(host: str, one: Chosen, unit: str, name: str, found: str, value: str) -> Check:
    least = bool(one.setting.facts.get("at_least"))
    right = found == value or (least and _above(found, value))
    return Check(
        "TUNE-LIMIT",
        f"{host}: {unit}: {name}",
        "pass" if right else "fail",
        found,
        f"{value} or more" if least and value != _ENDLESS else value,
        source=one.setting.source,
    )
