# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Prometheus' own configuration and its files of targets."""

from __future__ import annotations

import json
from collections.abc import Sequence

from ..documents import knowledge
from .labels import JOBS
from .promql import configuration
from .targets import alertmanagers
from .types import Target, TelemetrySettings

CONFIG = "prometheus.yml"
RULES = ("rules/recording.yml", "rules/slo.yml", "rules/alerts.yml")


def target_file(job: str) -> str:
    """Return the path of a job's targets below Prometheus' directory."""
    return f"targets/{job}.json"


def target_files(all_targets: Sequence[Target]) -> dict[str, str]:
    """Return the files of file-based discovery, one for each job, as JSON; a job may have none."""
    files = {}
    for job in JOBS:
        groups = [
            {"targets": [target.address], "labels": dict(sorted(target.labels.items()))}
            for target in all_targets
            if target.job == job
        ]
        files[target_file(job)] = json.dumps(groups, indent=2, sort_keys=True) + "\n"
    return files


def prometheus_config(settings: TelemetrySettings) -> str:
    """Return prometheus.yml; the paths in it are relative to its directory."""
    bounds = knowledge("telemetry/settings.yml")["scrape"]["bounds"]
    return configuration(
        CONFIG,
        settings=settings,
        rules=RULES,
        alertmanagers=alertmanagers(settings),
        jobs={job: target_file(job) for job in JOBS},
        bounds={job: {**bounds["every"], **bounds.get(job, {})} for job in JOBS},
        dropped=knowledge("telemetry/amd.yml")["labels"]["dropped"],
    )
