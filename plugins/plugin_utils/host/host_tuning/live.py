# SPDX-License-Identifier: GPL-3.0-or-later

"""Values in /sys: set now, and by a unit of ours at every boot."""

from __future__ import annotations

import fnmatch
import shlex
from collections.abc import Iterator

from ...evidence.types import Evidence
from ...numbers import natural
from ..program import unit_text
from ..types import UNITS, Check, HostFile, LiveSetting, Skipped
from .catalogue import Chosen, Part

UNIT = "apiary-host-tuning.service"
LOADER = "apiary-amdgpu.service"
IDLE = "/sys/devices/system/cpu/cpu[0-9]*/cpuidle/state[0-9]*"


def plan(evidence: Evidence, chosen: tuple[Chosen, ...], container: bool = False) -> Part:
    """Return units and live values for the chosen settings of /sys."""
    live: list[LiveSetting] = []
    lines: list[str] = []
    skipped: list[Skipped] = []
    for one in chosen:
        name, value = one.setting.id, one.value or ""
        if "cpu_state" in one.setting.facts:
            paths, why = _idle(evidence, str(one.setting.facts["cpu_state"])), "no CPU state "
            why += f"named {one.setting.facts['cpu_state']}"
            value, line = "1", _idle_line(str(one.setting.facts["cpu_state"]))
        elif "sysfs" in one.setting.facts:
            pattern = str(one.setting.facts["sysfs"])
            paths, why = _files(evidence, pattern), f"the kernel shows no {pattern}"
            line = _write(pattern, value)
            choices = _choices(evidence, one)
            if paths and choices and value not in choices:
                paths, why = [], f"{value} is none of {', '.join(sorted(choices))}"
            if container and one.setting.facts.get("container") is False:
                paths, why = [], "it belongs to the container's machine"
        else:
            continue
        line = f"# {one.setting.reason}\n{line}"
        if not paths:
            skipped.append(Skipped(name, why))
            # Booted with other arguments, the kernel may lack today what it has tomorrow.
            lines += [line] * (line in evidence.files.get(f"{UNITS}/{UNIT}", ""))
            continue
        live += [LiveSetting(path, value) for path in paths]
        lines.append(line)
    # No RemainAfterExit there: what has run is not a service that is up.
    unit = unit_text(UNIT, lines="\n".join(lines)) if lines else None
    loads = any(one.setting.id == "amdgpu_later" for one in chosen)
    files = (
        HostFile(f"{UNITS}/{UNIT}", unit),
        HostFile(f"{UNITS}/{LOADER}", unit_text(LOADER) if loads else None),
    )
    units = tuple(file.path.rpartition("/")[2] for file in files if file.content)
    checks = (_loaded(evidence),) if loads else ()
    return Part(files=files, live=tuple(live), units=units, checks=checks, skipped=tuple(skipped))


def _files(evidence: Evidence, pattern: str) -> list[str]:
    return sorted(fnmatch.filter(evidence.files, pattern), key=natural)


def _choices(evidence: Evidence, one: Chosen) -> frozenset[str]:
    """Return the values that the kernel offers for a setting; none where it does not tell."""
    pattern = one.setting.facts.get("choices")
    told = [evidence.files[path] for path in _files(evidence, pattern)] if pattern else []
    return frozenset(told[0].split()) if told else frozenset()


def _idle(evidence: Evidence, name: str) -> list[str]:
    """Return the `disable` files of the CPU state of a name; its number differs by CPU."""
    named = _files(evidence, f"{IDLE}/name")
    states = [path.rpartition("/")[0] for path in named if evidence.files[path].strip() == name]
    return [f"{state}/disable" for state in states if f"{state}/disable" in evidence.files]


def _idle_line(name: str) -> str:
    """Return the unit's command that switches a CPU state off, by its name."""
    named = f'[ "$(cat "$each/name")" = {shlex.quote(name)} ]'
    return _for_each(IDLE, f'if {named}; then echo 1 > "$each/disable"; fi')


def _write(pattern: str, value: str) -> str:
    """Return the unit's command that writes a value to every file of a pattern."""
    return _for_each(pattern, f'echo {shlex.quote(value)} > "$each"')


def _for_each(pattern: str, script: str) -> str:
    """Return a command that runs a script for each path of a pattern; none is no failure."""
    whole = f'for each in {pattern}; do if [ -e "$each" ]; then {script}; fi; done'
    return f"ExecStart=/bin/sh -c {_exec(whole)}"


def _exec(script: str) -> str:
    """Return a script as one word of an ExecStart= line: systemd expands `$` and `%` there."""
    return "'" + script.replace("%", "%%").replace("$", "$$").replace("'", r"\'") + "'"


def _loaded(evidence: Evidence) -> Check:
    state = evidence.files.get("/sys/module/amdgpu/initstate", "").strip()
    return Check(
        "TUNE-AMDGPU",
        f"{evidence.host}: amdgpu",
        "pass" if state == "live" else "fail",
        state or "not loaded",
        "live",
    )


def names(evidence: Evidence) -> Iterator[str]:
    """Yield the units of ours that the host has."""
    return (name for name in (UNIT, LOADER) if f"{UNITS}/{name}" in evidence.files)
