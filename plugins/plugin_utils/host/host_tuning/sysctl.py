# SPDX-License-Identifier: GPL-3.0-or-later

"""sysctl: our file, the live values, and other files that override ours."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterator, Mapping

from ...evidence.types import Evidence
from ..types import Check, HostFile, Kept, LiveSetting, Skipped
from .catalogue import Chosen, Part

# The last name of all, so that it wins over 99-local.conf and the like.
PATH = "/etc/sysctl.d/zz-apiary.conf"
# systemd-sysctl does not read it, but `sysctl --system` does, after every directory.
LAST = "/etc/sysctl.conf"
# A file in an earlier directory hides those of the same name in later ones.
DIRECTORIES = ("/etc/sysctl.d", "/run/sysctl.d", "/usr/local/lib/sysctl.d", "/usr/lib/sysctl.d")
_LINE = re.compile(r"^[ \t]*+(?:-[ \t]*+)?([^\s=#;][^=\n]*)=(.*)$", re.MULTILINE)


def path_of(key: str) -> str:
    """Return a key's file in /proc/sys."""
    return "/proc/sys/" + key.replace(".", "/")


def assignments(text: str) -> Iterator[tuple[str, str]]:
    """Yield key and value of each line of a sysctl.d file; `/` in keys is `.`."""
    for key, value in _LINE.findall(text):
        yield key.rstrip(" \t").replace("/", "."), " ".join(value.split())


def in_order(files: Mapping[str, str]) -> list[str]:
    """Return the sysctl.d files in the order in which they are applied, hidden ones left out."""
    chosen: dict[str, str] = {}
    for directory in DIRECTORIES:
        for path in files:
            folder, _slash, name = path.rpartition("/")
            if folder == directory and name.endswith(".conf"):
                chosen.setdefault(name, path)
    return [chosen[name] for name in sorted(chosen)] + [LAST] * (LAST in files)


def setters(files: Mapping[str, str], key: str) -> list[tuple[str, str]]:
    """Return path and value of each file that sets a key, the one that wins last."""
    return [
        (path, value)
        for path in in_order(files)
        for name, value in assignments(files[path])
        if fnmatch.fnmatchcase(key, name)
    ]


def plan(evidence: Evidence, chosen: tuple[Chosen, ...]) -> Part:
    """Return file, live values and checks for the chosen sysctl settings."""
    lines: list[str] = []
    live: list[LiveSetting] = []
    checks: list[Check] = []
    skipped: list[Skipped] = []
    for one in chosen:
        setting, value = one.setting, one.value or ""
        key = str(setting.facts["sysctl"])
        now = evidence.files.get(path_of(key))
        if now is None:
            skipped.append(Skipped(setting.id, f"the kernel has no {key}"))
            continue
        at_least = bool(setting.facts.get("at_least"))
        others = [told for told in setters(evidence.files, key) if told[0] != PATH]
        if at_least and others and _reaches(others[-1][1], value):
            # Writing ours would lower it.
            skipped.append(Kept(setting.id, f"{others[-1][0]} sets {key} = {others[-1][1]}"))
        else:
            lines.append(f"# {setting.reason}\n{key} = {value}\n")
            checks.append(_last_word(evidence, one, key))
        if not (at_least and _reaches(now, value)):
            live.append(LiveSetting(path_of(key), value))
    content = "# Written by Apiary (host_tuning).\n" + "".join(lines) if lines else None
    return Part(
        files=(HostFile(PATH, content),),
        live=tuple(live),
        checks=tuple(checks),
        skipped=tuple(skipped),
    )


def _reaches(found: str, wanted: str) -> bool:
    return found.strip().isdigit() and int(found) >= int(wanted)


def _last_word(evidence: Evidence, one: Chosen, key: str) -> Check:
    """Check that no other file has the last word."""
    value, setting = one.value or "", one.setting
    told = setters(evidence.files, key)
    # Before ours is written it is where it will be.
    order = [path for path, _found in told]
    after = told[order.index(PATH) + 1 :] if PATH in order else [t for t in told if _later(t[0])]
    against = [(path, found) for path, found in after if path != PATH and found != value]
    return Check(
        "TUNE-SYSCTL-OVERRIDDEN",
        f"{evidence.host}: {key}",
        "fail" if against else "pass",
        "; ".join(f"{path} sets {found}" for path, found in against) or f"{PATH} has the last word",
        f"nothing sets another value than {value} after {PATH}",
        source=setting.source,
        key=key,
        files=", ".join(dict.fromkeys(path for path, _v in against)) or "it",
    )


def _later(path: str) -> bool:
    return path == LAST or path.rpartition("/")[2] > PATH.rpartition("/")[2]
