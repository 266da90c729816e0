# SPDX-License-Identifier: GPL-3.0-or-later

"""The files that a host's weights need: mount units, programs, what the kernel is told."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from ...documents import knowledge
from ..program import findings
from ..types import MANAGED, UNITS, HostFile
from .mounts import unit_name
from .options import Requested
from .settings import LOCAL, Mount, Settings

PROGRAMS = "/usr/libexec/apiary"
CONFIGURATION = "/etc/apiary/weights.json"
UDEV_RULE = "/etc/udev/rules.d/99-zz-apiary-weights.rules"
MODPROBE = "/etc/modprobe.d/apiary-nfs.conf"
SCHEMA = "apiary.weight-cache/v1"
_SOURCES = Path(__file__).parents[3] / "module_utils/weights"
# On hosts the programs lie side by side and are no part of a collection.
_IMPORTS = {
    "from . import manifest as weights_manifest\n": "import weights_manifest\n",
    "from ..finding import ": "from weights_finding import ",
}


def program(name: str) -> str:
    """Return one of module_utils as a host runs it."""
    return "#!/usr/bin/env -S python3 -B\n" + _standing_alone(name)


def _standing_alone(name: str) -> str:
    text = (_SOURCES / f"{name}.py").read_text(encoding="utf-8")
    for form, here in _IMPORTS.items():
        text = text.replace(form, here)
    if "from ." in text:
        raise AssertionError(f"{name}: imports of the collection have changed their form")
    return text


def files(
    settings: Settings, family: str, requested: Sequence[tuple[Mount, Requested]]
) -> tuple[HostFile, ...]:
    """Return every file, in the order in which they are written; those without text go."""
    here = settings.state == "present"
    mounted = [(mount, options) for mount, options in requested if mount.type != LOCAL]
    tuned = here and any(mount.wanted_readahead for mount, _options in mounted)
    slots = (
        settings.session_slots if here and any(mount.is_nfs for mount, _options in mounted) else 0
    )
    cache = local_cache_file(family, requested)
    units = [
        HostFile(f"{UNITS}/{unit_name(mount.path)}", mount_unit(mount, options) if here else None)
        for mount, options in mounted
    ]
    return (
        HostFile(f"{PROGRAMS}/weights_finding.py", findings("WEIGHTS") if here else None),
        HostFile(f"{PROGRAMS}/weights_manifest.py", _standing_alone("manifest") if here else None),
        HostFile(f"{PROGRAMS}/weights-check", program("check") if here else None, "0755"),
        HostFile(f"{PROGRAMS}/weights-readahead", program("readahead") if tuned else None, "0755"),
        HostFile(CONFIGURATION, configuration(settings) if here else None),
        HostFile(UDEV_RULE, udev_rule() if tuned else None),
        HostFile(MODPROBE, f"{MANAGED}options nfs max_session_slots={slots}\n" if slots else None),
        *((cache,) if here and cache else ()),
        *units,
    )


def configuration(settings: Settings) -> str:
    """Return what the programs read: mount points with their readahead, models, stores."""
    document = {
        "schema": SCHEMA,
        "mounts": [
            {"path": one.path, "type": one.type, "readahead_kib": one.wanted_readahead}
            for one in settings.mounts
        ],
        "models": list(settings.models),
        "stores": list(dict.fromkeys(one.to for one in settings.staged)),
        "manifest_required": settings.manifest_required,
    }
    return json.dumps(document, indent=2, sort_keys=True) + "\n"


def udev_rule() -> str:
    """Return the rule that sets the readahead of our mounts whenever they appear."""
    return (
        f"{MANAGED}"
        "# The kernel forgets a mount's readahead with the mount. RUN comes after every rule's\n"
        "# assignments, so nfs-utils' own rule for all NFS mounts does not undo it.\n"
        'ACTION=="add", SUBSYSTEM=="bdi", KERNEL=="0:*", '
        f'RUN+="{PROGRAMS}/weights-readahead --device %k"\n'
    )


def mount_unit(mount: Mount, requested: Requested) -> str:
    """Return the unit of one mount; see docs/decisions/0005-plain-mount-unit.md."""
    remote = mount.is_nfs or "_netdev" in requested.options
    kind = {"bind": "none", "nfs4": "nfs"}.get(mount.type, mount.type)
    lines = [
        MANAGED + "[Unit]",
        f"Description=Weights from {_word(mount.source)}",
        "Documentation=https://man7.org/linux/man-pages/man5/nfs.5.html" if mount.is_nfs else "",
        "Wants=network-online.target" if remote else "",
        "After=network-online.target" if remote else "",
        "Wants=cachefilesd.service" if "fsc" in requested.options else "",
        "After=cachefilesd.service" if "fsc" in requested.options else "",
        # Not of a bind mount, of which another text means another mount.
        ""
        if mount.type == "bind"
        else "# Every start of a replica tries it again, of all replicas of the host.\n"
        "StartLimitIntervalSec=0",
        "\n[Mount]",
        f"What={_word(mount.source)}",
        f"Where={_word(mount.path)}",
        f"Type={kind}",
        f"Options={requested.text}" if requested.options else "",
        "# mount.nfs goes on trying for the minutes of retry=."
        if "retry" in requested.options
        else "",
        "TimeoutSec=infinity" if "retry" in requested.options else "TimeoutSec=90",
        "# Without it, stopping would wait for a server that is gone." if mount.is_nfs else "",
        "ForceUnmount=yes" if mount.is_nfs else "",
        "\n[Install]",
        f"WantedBy={'remote' if remote else 'local'}-fs.target",
    ]
    return "\n".join(line for line in lines if line) + "\n"


def _word(text: str) -> str:
    """Return text as a unit reads it back: only % means something there."""
    return text.replace("%", "%%")


def local_cache_file(family: str, requested: Sequence[tuple[Mount, Requested]]) -> HostFile | None:
    """Return the file without which cachefilesd does not start, where a mount asks for it."""
    entry = knowledge("host/weight_cache.yml")["families"].get(family, {}).get("fsc_file")
    if not entry or not any("fsc" in options.options for _mount, options in requested):
        return None
    return HostFile(entry["path"], entry["content"])
