# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""AMD's driver and ROCm on a host: from settings and evidence to the plan that the role applies."""

from __future__ import annotations

from dataclasses import replace

from ...documents import to_document
from ...evidence.types import Evidence
from .. import resources
from . import plan as plans
from .types import Key, Package, RocmPlan, Settings

__all__ = ["Key", "Package", "RocmPlan", "Settings", "decide"]

_LINKER = "/etc/ld.so.conf.d/"
_WORK = ("packages", "repair", "enable", "unhold", "remove", "dkms", "hold", "optional")


def decide(settings: Settings, evidence: Evidence) -> RocmPlan:
    """Return what this host needs of AMD's driver and ROCm, and what holds of it now."""
    plan = plans.decide(settings, evidence)
    return replace(plan, resources=tuple(_resources(plan)))


def _resources(plan: RocmPlan) -> list[resources.Resource]:
    manager = plan.package_manager
    libraries = [item for item in plan.files if item.path.startswith(_LINKER)]
    repository = {
        "keys": to_document(plan.keys),
        "files": to_document([item for item in plan.files if item not in libraries]),
        "packages": to_document(plan.packages),
    }
    work = {name: to_document(getattr(plan, name)) for name in _WORK}
    # What the kernel module is built with must be there before the driver is.
    stages = [
        [name for name in plan.missing if (name in plan.prerequisites) is first]
        for first in (True, False)
    ]
    work |= {"install": stages, "initramfs": list(plan.initramfs or ())}
    return [
        {"kind": "repository", "name": "rocm", "manager": manager, **repository},
        {"kind": "transaction", "name": "rocm", "manager": manager, **work},
        *resources.files(libraries),
        *(
            {"kind": "command", "argv": ["ldconfig"], "after": [f"file {item.path}"]}
            for item in libraries
        ),
    ]
