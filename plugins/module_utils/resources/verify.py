# SPDX-License-Identifier: GPL-3.0-or-later

"""Models whose files have the sizes of their manifests; never applied, refused where they differ.

It is evaluated when nothing earlier in the role differs: what comes before it brings the models.
"""

from __future__ import annotations

from typing import Any

from ..weights import check
from .types import Difference, Host, Resource

OPTIONS: dict[str, Any] = {
    "directories": {"type": "list", "elements": "path", "default": []},
    "manifest_required": {"type": "bool", "default": False},
}


def name(resource: Resource) -> str:
    return " ".join(resource.get("directories") or ["weights"])


def inspect(host: Host, resource: Resource) -> Difference:
    if host.differs_earlier:
        return Difference()
    configured = check.configured_models(check.configuration())
    required = resource["manifest_required"]
    models = [
        check.check(path, required=required) for path in resource["directories"] or configured
    ]
    findings = [model["finding"] for model in models if model["finding"]]
    return Difference(
        refusals=tuple(finding for finding in findings if not finding.is_minor),
        warnings=tuple(finding for finding in findings if finding.is_minor),
    )


def apply(host: Host, resource: Resource, difference: Difference) -> None:
    """Do nothing: there is no difference that could be applied."""
