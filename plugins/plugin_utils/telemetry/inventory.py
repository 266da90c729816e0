# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What Prometheus watches of an inventory's hosts: their addresses, places and exporters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..host.telemetry.amd import way
from ..router.types import RouterSettings

ADMIN_PORT = RouterSettings().admin_port
# Variables of -e and of INI inventories are texts.
_FALSE = ("false", "no", "off", "0")


def address_of(name: str, variables: Mapping[str, Any]) -> str:
    """Return the address that other hosts reach a host at."""
    address = variables.get("apiary_address") or variables.get("ansible_host") or name
    return str(address)


def watched_host(
    name: str, variables: Mapping[str, Any], has_gpus: bool, is_router: bool
) -> dict[str, Any]:
    """Return what is watched of a host, as `monitoring_hosts` has it.

    ``amd_packaged_only`` says that AMD's exporter comes only where AMD has a package of it.
    """
    rack = variables.get("apiary_rack")
    method = variables.get("telemetry_amd_method") or "auto"
    image = bool(variables.get("telemetry_amd_digest"))
    amd = has_gpus and way(method, image, True) != "none"
    packaged_only = amd and way(method, image, False) == "none"
    root = variables.get("apiary_artifacts") or "artifacts"
    return {
        "host": name,
        "address": address_of(name, variables),
        "artifacts": f"{root}/{name}" if has_gpus else None,
        "rack": rack,
        "failure_domain": variables.get("apiary_failure_domain") or rack,
        "router_port": variables.get("router_admin_port", ADMIN_PORT) if is_router else None,
        "exporters": ["amd", "node"] if amd else ["node"],
        "amd_port": variables.get("telemetry_amd_port"),
        "node_port": variables.get("telemetry_node_port"),
        "node_web": str(variables.get("telemetry_web_enabled")).lower() not in _FALSE,
        "amd_packaged_only": packaged_only and not variables.get("telemetry_amd_suite"),
    }
