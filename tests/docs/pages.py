# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which pages are followed, on what, and in which order: each finds what those before it left."""

from __future__ import annotations

from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"
DEMO = DOCS / "tutorial/demo.md"
FIRST_HOST = DOCS / "tutorial/first-host.md"

# They need no host: some seconds each.
ALONE = (
    "add-a-vllm-version",
    "choose-a-layout",
    "explain-a-plan",
    "keep-secrets",
    "look-at-a-host",
    "read-a-report",
    "run-beside-an-older-ansible",
    "run-in-awx",
    "run-in-containers",
    "use-the-dashboards",
)
# On a host that serves, behind a router; they leave it as it was.
SERVING = (
    "set-up-an-inventory",
    "check-before-the-first-run",
    "run-without-internet",
    "provision-hosts",
    "only-tuning",
    "only-replicas",
    "kubernetes-node",
    "slurm-node",
    "probe-hosts",
    "serve-on-kubernetes",
    "plan-a-fleet",
    "tune-a-host",
    "verify-a-fleet",
    "several-models",
    "drain-a-host",
    "route-requests",
    "roll-out-a-fleet",
    "publish-weights",
    "mount-weights",
    "roll-out-a-change",
    "trace-a-request",
    "make-a-support-bundle",
    "run-containers",
    "run-replicas",
    "watch-a-fleet",
)
# A host's life after its first day: much is stopped, started and made anew.
DAY_2 = (
    "add-a-host",
    "change-the-layout",
    "upgrade-vllm",
    "change-the-model",
    "upgrade-the-driver",
    "replace-a-gpu",
    "re-image-a-host",
    "remove-a-host",
    "multi-node",
)
# Between the two, minutes each: engines are restarted to be measured, hosts made for a page alone.
LONG = ("benchmark", "tune-a-deployment", "install-rocm")


def how_to(name: str) -> Path:
    """Return a how-to page."""
    return DOCS / f"how-to/{name}.md"


FOLLOWED = (DEMO, FIRST_HOST, *(how_to(name) for name in (*ALONE, *SERVING, *DAY_2, *LONG)))
