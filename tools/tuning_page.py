# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""docs/reference/tuning.md: every setting of a host with class, reason, source, and how checked."""

from __future__ import annotations

from collections.abc import Iterator

from ansible_collections.apiary.instinct.plugins.plugin_utils.documents import knowledge
from ansible_collections.apiary.instinct.plugins.plugin_utils.host.host_tuning.catalogue import (
    BY_NAME,
    Chosen,
    Setting,
    settings,
)
from rules_page import table

HEAD = """# Host settings

What the role `host_tuning` sets on a host, and what it looks at. `class` is AMD's word: required,
recommended or optional; `community` is what no AMD document asks for. `from` is the smallest
profile that has the setting (required < serving < full); "by name" means that only
`host_tuning_settings` brings it, "insecure" that only `host_tuning_insecure` does.

A virtual machine gets what has an effect there (marked "guests, too"); the role lists what it left
out. How to use it: [tune a host](../how-to/tune-a-host.md).
"""
KINDS = (
    ("Kernel command line", ("kernel_argument", "modprobe")),
    ("sysctl", ("sysctl",)),
    ("CPUs and memory management", ("cpu", "sysfs")),
    ("Limits of services", ("limits",)),
    ("Only looked at", ("acs", "bios_observable", "memory")),
)
COLUMNS = ("setting", "sets", "class", "from", "reason", "not when", "how checked", "source")


def sets(setting: Setting) -> str:
    """Return what a setting writes, in every place."""
    facts = setting.facts
    value = facts.get("value")
    parts = [f"`{word}`" for word in Chosen(setting, value).arguments]
    if "sysctl" in facts:
        parts.insert(0, f"`{facts['sysctl']} = {value}`" + " or more" * bool(facts.get("at_least")))
    elif "sysfs" in facts:
        parts.insert(0, f"`{value}` in `{facts['sysfs'].rpartition('/')[2]}`")
    elif "cpu_state" in facts:
        parts.insert(0, f"state {facts['cpu_state']} disabled")
    elif "limits" in facts:
        limits = " ".join(f"{name}={each}" for name, each in facts["limits"].items())
        more = " or more" * bool(facts.get("at_least"))
        parts.insert(0, f"`{limits}`{more} of {', '.join(facts['units'])}")
    return ", ".join(parts) or "-"


def rows(kinds: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """Yield one row a setting."""
    for one in settings():
        if one.kind not in kinds:
            continue
        profile = "by name" if one.profile == BY_NAME else one.profile
        if one.lowers_security:
            profile = f"insecure: {one.facts['lowers']}"
        where = "" if one.facts.get("platforms") == ["bare_metal"] else " (guests, too)"
        yield (
            f"`{one.id}`",
            sets(one) + where,
            one.grade,
            profile,
            one.reason,
            one.not_when,
            one.check,
            ", ".join(one.sources),
        )


def page() -> str:
    """Return the page."""
    lines = [HEAD]
    for title, kinds in KINDS:
        lines += [f"## {title}\n", *table(COLUMNS, rows(kinds))]
    lines += ["## Boot loaders\n"]
    document = knowledge("host/tuning_bootloaders.yml")
    lines += table(
        ("operating systems", "how", "source"),
        (
            (", ".join(one["families"]), f"`{one['id']}` with `{one['tool']}`", one["source"])
            for one in document["boot_loaders"]
        ),
    )
    lines += [f"Left alone, with `TUNE-BOOT-LOADER`: {', '.join(document['others'])}.\n"]
    lines += ["No option is set for the module amdgpu: AMD's server documents name none.\n"]
    return "\n".join(lines)
